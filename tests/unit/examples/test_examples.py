"""The parts of the examples that are no agents: what they read from words, what they draw, what they know."""

import struct
import zlib

import pytest

from tests.support.tables import for_each_row
from turnlog.agents.models import AnthropicModel
from turnlog_examples import assistant, pipeline
from turnlog_examples.assistant import chart, live
from turnlog_examples.assistant.script import place_of
from turnlog_examples.assistant.tools import HOURS, LIMIT_KNOTS, forecast, register
from turnlog_examples.pipeline.archive import ARCHIVE, claims_about, verdict_on
from turnlog_examples.pipeline.team import subjects_of


@for_each_row(
    ("topic", "subjects"),
    [
        ("honey", ["honey"]),
        ("honey, bees and the Moon?", ["honey", "bees", "the Moon"]),
        ("sand & Sandy and", ["sand", "Sandy"]),
        ("bees, bees", ["bees"]),
        ("...", ["..."]),
    ],
)
def test_a_topic_is_split_into_its_subjects(topic: str, subjects: list[str]) -> None:
    assert subjects_of(topic) == subjects


@for_each_row(
    ("question", "place"),
    [("Oslo", "Oslo"), ("Can we fly from Vang Vieng?", "Vang Vieng"), ("A flight over Wick!", "Wick")],
)
def test_a_question_names_a_place(question: str, place: str) -> None:
    assert place_of(question) == place


def test_the_archive_knows_its_claims_and_no_others() -> None:
    assert claims_about(ARCHIVE, "The moon") == [claim.text for claim in ARCHIVE["the Moon"]]
    assert claims_about(ARCHIVE, "ghosts") == []
    verdicts = [verdict_on(ARCHIVE, claim) for claim in claims_about(ARCHIVE, "bees")]
    assert verdicts == ["true", "false: Its wings whirl the air and carry it well."]
    assert verdict_on(ARCHIVE, "Ghosts are cold.") == "unknown"


def pixels(data: bytes) -> list[list[tuple[int, ...]]]:
    """The pixels of a PNG as the examples write them; every part must have its checksum."""
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    parts, place = {}, 8
    while place < len(data):
        (size,) = struct.unpack_from(">I", data, place)
        body = data[place + 4 : place + 8 + size]
        assert struct.unpack_from(">I", data, place + 8 + size) == (zlib.crc32(body),)
        parts[body[:4]], place = body[4:], place + 12 + size
    width, height, *kind = struct.unpack(">IIBBBBB", parts[b"IHDR"])
    assert kind == [8, 2, 0, 0, 0]
    raw, line = zlib.decompress(parts[b"IDAT"]), 1 + 3 * width
    assert len(raw) == height * line
    rows = [raw[start + 1 : start + line] for start in range(0, len(raw), line)]
    return [[tuple(row[at : at + 3]) for at in range(0, len(row), 3)] for row in rows]


def test_a_chart_has_a_bar_for_each_value_and_marks_what_is_above_the_limit() -> None:
    rows = pixels(chart.bars([2, 12], 10))
    assert (len(rows), len(rows[0])) == (chart.STEP * 13, chart.GAP + 2 * (chart.BAR + chart.GAP))
    heights = [sum(row[column] != chart.PAPER for row in rows) for column in (5, -5)]
    assert heights == [2 * chart.STEP, 12 * chart.STEP]
    assert (rows[-1][5], rows[-1][-5]) == (chart.CALM, chart.STRONG)
    assert (rows[-1][0], rows[-1][-1]) == (chart.PAPER, chart.PAPER)


@for_each_row("clouds", range(9))
def test_every_sky_can_be_drawn(clouds: int) -> None:
    assert len(pixels(chart.sky(clouds))) == 64


def test_a_place_has_its_own_wind_and_always_the_same() -> None:
    assert forecast("oslo") == forecast("Oslo") != forecast("Rome")
    assert list(forecast("Oslo")) == list(HOURS)
    strongest = [max(forecast(f"place {number}").values()) for number in range(100)]
    windy = sum(knots > LIMIT_KNOTS for knots in strongest)
    assert 10 < windy < 90, "both outcomes happen"


def test_a_field_that_is_not_registered_fails_the_tool() -> None:
    with pytest.raises(KeyError):
        register.function("Oslo")
    assert register.function("Göreme") == "1104 m above the sea"


def test_a_real_model_may_take_the_place_of_the_script() -> None:
    minds = {agent.name: agent.model for agent in live.app.agent.iter_team()}
    assert set(minds) == {"Assistant", "Tower"}
    assert all(isinstance(mind, AnthropicModel) for mind in minds.values())
    scripted = [agent.model.name for agent in assistant.app.agent.iter_team()]
    assert scripted == ["scripted:claude-sonnet-4-5", "scripted:claude-haiku-4-5"]
    assert {agent.name for agent in pipeline.app.agent.iter_team()} == {
        *("Planner", "Researcher", "Fact checker", "Writer")
    }
