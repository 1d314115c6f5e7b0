"""What an application ties together."""

from pathlib import Path
from typing import Any

import pytest
from msgspec import Raw, json

from tests.support.written_logs import plain_log
from turnlog.agents import Agent, Scripted
from turnlog.agents.claude.claude_code import ClaudeCode
from turnlog.app import App
from turnlog.errors import CallerError, InvalidEvent
from turnlog.events import Envelope, Payload, UiMessage, Vocabulary
from turnlog.state.descriptions import is_page_event
from turnlog.state.fold import fold
from turnlog.vocabularies import DIALECTS, FULL_CATALOG
from turnlog_examples.tour import NoteTrip, make_app

AGENT = Agent("Guide", "Plan it.", Scripted(lambda messages: []))


FROM_PAGE = Envelope(
    type="counter.counted", id="evt_1", seq=0, ts="", session_id="sess_1", origin="ui", payload=Raw(b"{}")
)


class Counted(Payload, frozen=True, kw_only=True):
    pass


class Impostor(Payload, frozen=True, kw_only=True):
    TYPE = "tool.call"


def count(state: int, payload: Counted, _: Envelope) -> int:
    return state + 1


def test_an_application_may_be_a_name_and_an_agent() -> None:
    app = App("plain", AGENT)
    assert (app.name, app.agent, app.vocabulary, app.reducers) == ("plain", AGENT, None, {})
    assert app.catalog.types == FULL_CATALOG.types
    assert app.initial_state() == {}
    assert app.initial_state() is not app.initial_state()


def test_its_default_dialect_is_one_that_it_has() -> None:
    assert App("plain", AGENT).dialect == "turnlog"
    assert App("office", AGENT, dialect="office").dialect == "office"
    factory = DIALECTS.definitions["blocks"].factory
    assert App("own", AGENT, dialects={"own": factory}, dialect="own").dialect == "own"
    expected = r"app plain: expected one of the dialects turnlog, blocks, .*, got 'own'"
    with pytest.raises(CallerError, match=expected):
        App("plain", AGENT, dialect="own")


def test_its_vocabulary_is_added_to_the_catalog() -> None:
    app = App("counter", AGENT, vocabulary=Vocabulary("counter", [Counted]))
    assert set(app.catalog.types) == {*FULL_CATALOG.types, "counter.counted"}
    assert app.catalog.get_type_name(Counted) == "counter.counted"
    assert app.catalog.get_event_type("roster.join") is FULL_CATALOG.get_event_type("roster.join")


def test_a_vocabulary_cannot_take_a_name_of_the_package() -> None:
    with pytest.raises(InvalidEvent, match=r"each type once, got tool\.call twice"):
        App("impostor", AGENT, vocabulary=Vocabulary("impostor", [Impostor]))


def test_who_can_be_spoken_to_is_everybody_the_agents_reach() -> None:
    writer = Agent("Writer", "Write.", AGENT.model)
    planner = Agent("Planner", "Plan.", AGENT.model, agents=[writer], handoffs=[AGENT])
    assert App("plain", planner).agent_names == ("Planner", "Writer", "Guide")
    assert App("split", {"guest": writer, "staff": planner}).agent_names == ("Writer", "Planner", "Guide")
    assert App("office", ClaudeCode(name="Julian")).agent_names == ("Julian",)


def test_its_own_types_are_those_that_a_page_may_tell_the_model() -> None:
    """What the folds count as the application's: no event of the package or of a team."""
    declared = App("counter", AGENT, vocabulary=Vocabulary("counter", [Counted]))
    assert declared.event_types == ("counter.counted",)
    assert App("plain", AGENT).event_types == ()
    examples = {
        kind.name: kind.decoder.decode(json.encode(kind.payload_class.EXAMPLE)) for kind in declared.catalog
    }
    told = [name for name, payload in examples.items() if is_page_event(FROM_PAGE, payload)]
    assert told == list(declared.event_types)


def test_reducers_and_start_are_a_fold() -> None:
    app = App(
        "counter",
        AGENT,
        vocabulary=Vocabulary("counter", [Counted]),
        reducers={Counted: count},
        initial_state=lambda: 40,
    )
    items = plain_log([Counted(), UiMessage(text="hi"), Counted()], app.catalog)
    assert fold(app.reducers, items, app.initial_state()) == 42


def test_the_tour_keeps_its_trips_and_begins_each_session_without_any() -> None:
    app = make_app()
    trips = [NoteTrip(city="Oslo", weather="rain"), NoteTrip(city="Rome", weather="snow")]
    state: Any = fold(app.reducers, plain_log(trips, app.catalog), app.initial_state())
    cities = [trip["city"] for trip in state["trips"]]
    assert cities == ["Oslo", "Rome"]
    assert app.initial_state() == {"trips": []}


def test_a_guide_that_is_a_path_is_read_when_the_application_is_made(tmp_path: Path) -> None:
    path = tmp_path / "guide.md"
    path.write_bytes("# Grüße\n".encode())
    app = App("plain", AGENT, guide=path)
    path.write_text("changed")
    assert app.guide == "# Grüße\n"


def test_a_guide_that_is_text_is_no_file_name(tmp_path: Path) -> None:
    path = tmp_path / "guide.md"
    path.write_text("# In the file")
    assert App("plain", AGENT, guide=str(path)).guide == str(path)


def test_a_missing_guide_is_named(tmp_path: Path) -> None:
    with pytest.raises(CallerError, match=r"app plain: cannot read the guide .*absent\.md.*: No such file"):
        App("plain", AGENT, guide=tmp_path / "absent.md")


def test_a_guide_that_is_not_utf_8_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "guide.md"
    path.write_bytes(b"\xff")
    with pytest.raises(CallerError, match=r"guide\.md.*: it is not UTF-8"):
        App("plain", AGENT, guide=path)
