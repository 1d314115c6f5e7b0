"""The tour: the smallest application that goes through every room.

A guide looks up the weather (a backend tool), asks a scout (a sub-agent), asks the page for a yes or no (a
frontend tool), and notes the trip with an inline tag that becomes an application event. The words are
scripted, the rest is real.
"""

from collections.abc import Iterator
from typing import Any, ClassVar

from turnlog import Agent, App, Vocabulary, tool
from turnlog.agents import Emit, Scripted, ScriptPart, ScriptTurn, ToolUse
from turnlog.events import Envelope, Payload
from turnlog_examples.greetings import is_greeting

WEATHER = ("clear and 21 °C", "cloudy and 14 °C", "rain and 11 °C", "snow and -3 °C")
SIGHTS = ("the harbour at dusk", "the old market hall", "the river path", "the hill with the view")


class NoteTrip(Payload, frozen=True, kw_only=True):
    """The guide noted a trip that the visitor agreed to."""

    ORIGINS: ClassVar = frozenset({"model"})
    EXAMPLE: ClassVar = {"city": "Oslo", "weather": "clear and 21 °C"}

    city: str
    weather: str


def note_trip(state: dict[str, Any], trip: NoteTrip, _: Envelope) -> dict[str, Any]:
    """The state of the tour: the trips noted so far."""
    noted = {"city": trip.city, "weather": trip.weather}
    return {**state, "trips": [*state.get("trips", []), noted]}


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return WEATHER[len(city) % len(WEATHER)]


@tool(executor="frontend")
def confirm(question: str) -> bool:
    """Ask the visitor a yes-or-no question."""
    raise NotImplementedError  # the page answers


def guide(turn: ScriptTurn) -> Iterator[ScriptPart]:
    """What the guide says: one step for each result it has."""
    city = turn.text
    found = [result.text for result in turn.results if result.ok]
    if is_greeting(city):
        yield "Hello! Name a city, and I look at its weather and ask my scout what to see there."
    elif len(found) == 0:
        yield f"Let me see what {city} is like today. I will look at the sky first."
        yield ToolUse("weather", {"city": city})
    elif len(found) == 1:
        yield f"It is {found[0]}. My scout knows the place, one moment."
        yield ToolUse("scout", {"prompt": city})
    elif len(found) == 2:
        yield f"{found[1]} Shall I note the trip?"
        yield ToolUse("confirm", {"question": f"Note a trip to {city}?"})
    elif found[2] == "true":
        yield f"Noted: {city}, {found[0]}. Have a good time!\n"
        yield Emit(NoteTrip(city=city, weather=found[0]))
    else:
        yield "As you like, nothing is noted. Name another place when you want one."


def scout(turn: ScriptTurn) -> Iterator[str | ToolUse]:
    """What the scout says."""
    city = turn.text
    yield f"In {city}, do not miss {SIGHTS[len(city) % len(SIGHTS)]}."


def make_app(pace_s: float = 0.0) -> App:
    """The application; a pace makes the words come as from a model."""
    scouting = Agent("Scout", "Name one sight.", Scripted(scout, pace_s))
    guiding = Agent(
        "Guide", "Plan a trip.", Scripted(guide, pace_s), tools=(weather, confirm), agents=(scouting,)
    )
    return App(
        "tour",
        guiding,
        vocabulary=Vocabulary("tour", [NoteTrip]),
        reducers={NoteTrip: note_trip},
        initial_state=lambda: {"trips": []},
    )


app = make_app(pace_s=0.05)
