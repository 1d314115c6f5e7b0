"""The dialects `office` and `agentic`, and the roster, on legal logs with the life of a team between."""

import json
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.folds import apply_events, fold_documents
from tests.support.random_logs import Legal, expected, logs, pruned
from tests.support.written_logs import Item, log
from turnlog import events as ev
from turnlog.events import ui
from turnlog.events.agent import strip_agent_prefix
from turnlog.state.snapshot import dump, load
from turnlog.state.tree import scope_without_actor
from turnlog.team.events import ArtifactWrite, RosterJoin, RosterMember, RosterStatus, ScreenCommand
from turnlog.team.roster import Roster
from turnlog.vocabularies import DIALECTS
from turnlog.wire.dialects.base import DEFAULT_OPTIONS, DONE, Dialect, no_history

quick = examples(14)
EACH = pytest.mark.parametrize("name", ["office", "agentic"])
Placed = tuple[int, int, bytes]  # a seq, the number within the event, and the message

seats = st.integers(0, 8)
names = st.sampled_from(["Lyra", "Mira", "Nils"])
members = st.builds(
    RosterMember, name=names, status=st.sampled_from(["alive", "idle", "shutdown"]), seat=seats
)
sleepers = st.builds(
    ui.WakeAgent,
    name=names,
    color=st.just("#fff"),
    color_name=st.just("white"),
    seat=seats,
    has_soul=st.booleans(),
    has_transcript=st.booleans(),
)
commands = st.one_of(
    st.builds(ui.Summon),
    st.builds(ui.Wake, agents=st.lists(sleepers, max_size=3).map(tuple)),
    st.builds(ui.Stop),
)
lives: st.SearchStrategy[ev.Payload] = st.one_of(
    st.builds(RosterJoin, name=names, seat=seats),
    st.builds(RosterStatus, agents=st.lists(members, max_size=4).map(tuple)),
    st.builds(ev.UiCommand, command=commands),
    st.just(ev.ProcessEnd(process="model", reason="process_crash", exit_code=137)),
    st.just(ev.ProcessStart(process="model", pid=2)),
    st.just(ev.ProcessEnd(process="server", reason="server_shutdown")),
    st.just(ev.ProcessStart(process="server", pid=1)),
    st.just(ScreenCommand(command="FACE happy", expression="happy")),
    st.just(ArtifactWrite(filename="a.html", path="memory/a.html", is_new=True, size_bytes=1)),
)


@st.composite
def team_logs(draw: st.DrawFn) -> Legal:
    """A legal log with events of a team anywhere in it."""
    items, turns = draw(logs())
    entries = [
        (payload, scope_without_actor(envelope))
        for envelope, payload in items
        if isinstance(payload, ev.Payload)
    ]
    for life, place in draw(st.lists(st.tuples(lives, st.integers(0, 2**16)), max_size=8)):
        at = place % (len(entries) + 1)
        entries.insert(at, (life, ev.Scope()))
        turns = [(first + (at <= first), last + (at <= last)) for first, last in turns]
    return Legal(log(*entries), turns)


def fresh(name: str) -> Dialect:
    return DIALECTS.definitions[name].factory(DEFAULT_OPTIONS, no_history)


def resumed(name: str, before: list[Item]) -> Dialect:
    """A dialect that goes on after these events, as the server makes it."""
    dialect = fresh(name)
    for envelope, payload in reversed(before):
        if envelope.type in DIALECTS.definitions[name].earlier_types and not envelope.depth:
            dialect.convert(envelope, payload)
            break
    return dialect


def convert(dialect: Dialect, items: list[Item]) -> list[Placed]:
    return [
        (envelope.seq, number, message)
        for envelope, payload in items
        for number, message in enumerate(dialect.convert(envelope, payload))
    ]


@EACH
@quick
@given(legal=team_logs(), cuts=st.lists(st.integers(0, 2**16), min_size=1, max_size=4))
def test_a_reader_that_comes_back_misses_and_repeats_nothing(
    name: str, legal: Legal, cuts: list[int]
) -> None:
    whole = convert(fresh(name), legal.items)
    for cut in cuts:
        seq, number, _ = whole[cut % len(whole)]
        complete = cut % len(whole) == len(whole) - 1 or whole[cut % len(whole) + 1][0] > seq
        start = legal.turn_start(seq if complete else seq - 1)
        again = convert(resumed(name, legal.items[:start]), legal.items[start:])
        before = [one for one in whole if one[:2] <= (seq, number)]
        assert before + [one for one in again if one[:2] > (seq, number)] == whole


@EACH
@quick
@given(legal=team_logs())
def test_between_turns_nothing_is_kept_and_a_response_ends(name: str, legal: Legal) -> None:
    dialect, begins = fresh(name), {first for first, _ in legal.turns}
    for envelope, payload in legal.items:
        if envelope.seq in begins:
            assert dialect.idle
        dialect.convert(envelope, payload)
    assert dialect.idle
    assert dialect.close() == [DONE]


@EACH
@quick
@given(legal=team_logs(), cut=st.integers(0, 2**16))
def test_a_response_may_end_anywhere_and_leaves_nothing_open(name: str, legal: Legal, cut: int) -> None:
    dialect = fresh(name)
    messages = [message for _, _, message in convert(dialect, legal.items[: cut % (len(legal.items) + 1)])]
    *ends, done = dialect.close()
    assert (done, DONE in ends) == (DONE, False)
    open_: Counter[tuple[str, int]] = Counter()
    for body in map(json.loads, messages + ends):
        if body["type"] in ("completion_start", "completion_end"):
            open_[body["agent"], body["depth"]] += 1 if body["type"] == "completion_start" else -1
    assert not any(open_.values())


@EACH
@quick
@given(legal=team_logs())
def test_a_message_is_one_object_on_one_line(name: str, legal: Legal) -> None:
    for _, _, message in convert(fresh(name), legal.items):
        assert b"\n" not in message
        assert isinstance(json.loads(message), dict)


@quick
@given(legal=team_logs())
def test_the_office_needs_no_live_events(legal: Legal) -> None:
    assert convert(fresh("office"), pruned(legal.items)) == convert(fresh("office"), legal.items)


@quick
@given(legal=team_logs())
def test_a_turn_of_the_office_has_one_result(legal: Legal) -> None:
    kinds = Counter(json.loads(message)["type"] for _, _, message in convert(fresh("office"), legal.items))
    assert kinds["claude_result"] == len(legal.turns)


@quick
@given(legal=team_logs())
def test_the_office_has_a_system_message_per_process_and_change(legal: Legal) -> None:
    dialect = fresh("office")
    known: Any = None
    for envelope, payload in legal.items:
        kinds = [json.loads(message)["type"] for message in dialect.convert(envelope, payload)]
        if isinstance(payload, ev.ProcessStart | ev.ProcessEnd):
            known = None
        elif isinstance(payload, ev.AgentStart) and not envelope.depth:
            now = (payload.source_session, payload.tools)
            assert kinds == ([] if now == known else ["claude_system"])
            known = now


def standing(items: list[Item]) -> dict[str, str]:
    """What stands of each agent's text, as a reader of `agentic` has it."""
    agentic, pieces = fresh("agentic"), dict[str, list[str]]()
    for envelope, payload in items:
        mine = pieces.setdefault(strip_agent_prefix(envelope.agent_id or ""), [])
        for body in map(json.loads, agentic.convert(envelope, payload)):
            if body["type"] == "chat_output":
                mine.append(body["payload"]["content"])
            elif body["type"] == "completion_end" and "retracted" in body["payload"]["metadata"]:
                void = body["payload"]["metadata"]["retracted"]["chat_outputs"]
                del mine[len(mine) - void :]
    return {agent: "".join(mine) for agent, mine in pieces.items() if "".join(mine)}


@quick
@given(legal=team_logs())
def test_the_texts_of_agentic_are_what_the_log_says_with_and_without_deltas(legal: Legal) -> None:
    said: dict[str, list[tuple[str, Any]]] = expected(legal.items)
    wanted = {agent: "".join(text for kind, text in mine if kind == "text") for agent, mine in said.items()}
    wanted = {agent: text for agent, text in wanted.items() if text}
    assert standing(legal.items) == wanted
    assert standing(pruned(legal.items)) == wanted


@quick
@given(legal=team_logs(), cut=st.integers(0, 2**16))
def test_a_roster_goes_on_from_any_snapshot(legal: Legal, cut: int) -> None:
    at = cut % (len(legal.items) + 1)
    kept = load(Roster, dump(apply_events(Roster(), legal.items[:at])))
    assert dump(apply_events(kept, legal.items[at:])) == dump(apply_events(Roster(), legal.items))
    assert dump(apply_events(Roster(), pruned(legal.items))) == dump(apply_events(Roster(), legal.items))


@quick
@given(legal=team_logs())
def test_a_roster_has_no_ghosts_and_knows_whom_the_documents_know(legal: Legal) -> None:
    roster = apply_events(Roster(), legal.items)
    for document in fold_documents(legal.items).values():
        if document.type == "agent-identity":
            body = json.loads(document.body)
            member = roster.teams[""].seats[body["gridPosition"]]
            assert (member.state == "alive") == (body["status"] == "alive")
    for everyone in apply_events(
        roster, log((ev.ProcessEnd(process="server", reason="process_crash"), ev.Scope()))
    ).teams.values():
        assert {member.state for member in everyone.seats.values()} <= {"sleeping"}
        assert everyone.hatching is None
