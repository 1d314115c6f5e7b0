"""What the assistant can use: the wind and the sky of a place (computed from its name), the register of
launch fields, and a question to the page."""

from typing import Any
from zlib import crc32

from turnlog import tool
from turnlog.agents import ImageContent, ToolContext
from turnlog_examples.assistant import chart

LIMIT_KNOTS = 10
HOURS = range(6, 14)
FIELDS = {"albuquerque": 1619, "bristol": 38, "göreme": 1104, "vang vieng": 254}  # metres above the sea


def forecast(place: str) -> dict[int, int]:
    """The wind in knots, hour by hour: every place has its own, and always the same."""
    number = crc32(place.casefold().encode())
    base = 1 + number % 9
    return {hour: base + (number >> 3 * hour % 29) % 5 for hour in HOURS}


@tool
def wind(place: str, context: ToolContext) -> list[Any]:
    """The wind over a place, hour by hour, with a chart.

    Args:
        place: A town or a launch field.
    """
    knots = forecast(place)
    context.progress(f"{len(knots)} hours from the station")
    found = {"strongest": max(knots.values()), "calmest_hour": min(knots, key=lambda hour: knots[hour])}
    return [found, ImageContent(chart.bars(list(knots.values()), LIMIT_KNOTS), "image/png")]


@tool
def camera(place: str) -> list[Any]:
    """A picture of the sky over a place.

    Args:
        place: A town or a launch field.
    """
    clouds = crc32(place.casefold().encode()) % 9
    return [f"{clouds} of 8 parts cloudy", ImageContent(chart.sky(clouds), "image/png")]


@tool
def register(place: str) -> str:
    """Look up a launch field in the register.

    Args:
        place: The name of the field.
    """
    return f"{FIELDS[place.casefold()]} m above the sea"  # a field that is not there fails the tool


@tool(executor="frontend")
def confirm(question: str) -> bool:
    """Ask the user a yes-or-no question.

    Args:
        question: The question, in one sentence.
    """
    raise NotImplementedError  # the page answers
