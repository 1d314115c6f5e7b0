"""How the owner of a session appends: alone, or with the events of rules, and under its fence."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.unit.log.delegates import scenario
from turnlog.agents.runtime.session_folds import NoAppState, SessionFolds
from turnlog.agents.runtime.session_writer import SessionWriter
from turnlog.errors import Conflict, Fenced, RuleError, RulesDidNotConverge
from turnlog.events import (
    CATALOG,
    BlockDelta,
    Envelope,
    Event,
    EventDraft,
    Payload,
    Scope,
    SessionTitle,
    UiMessage,
    UnknownPayload,
)
from turnlog.ids import new_id
from turnlog.log import Lease, Log, MemoryStore

NAME = "sess_1"
HERE = Scope(trace_id="tr_1", agent_id="agt_1", agent_name="A", depth=0, channel="front")


def event(payload: Payload, origin: Any = "app") -> Event:
    return CATALOG.build_event(payload, id=new_id("evt_"), origin=origin, scope=Scope())


class Books:
    """A ledger that says what a test wants."""

    state = None

    def __init__(self, say: Callable[[int], list[Event]], binding: bool = False) -> None:
        self._say, self._binding = say, binding
        self.asked: list[tuple[int, int, str]] = []

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        raise AssertionError("a writer does not read")

    def may_react_to(self, events: Sequence[Event]) -> bool:
        return self._binding

    def rule_events(self, events: Sequence[Event], last: int, phase: Any) -> list[Event]:
        self.asked.append((len(events), last, phase))
        return self._say(last)


class Desk:
    """A writer, and another one that appends when the first has read the log."""

    def __init__(self, log: Log, lease: Lease, books: Books | None, *between: Payload) -> None:
        self.log, self.between = log, list(between)
        self.folds = SessionFolds(log, NAME, CATALOG, books)
        self.writer = SessionWriter(log, lease, self.folds)

    async def look(self) -> int:
        head = await self.log.info(NAME)
        self.folds.durable_count = head.durable_count
        self.folds.tree.last_seq = head.last
        if self.between:
            payload = self.between.pop(0)
            origin = "model" if isinstance(payload, BlockDelta) else "system"
            await self.log.append(NAME, [event(payload, origin)])
        return head.last

    async def types(self) -> list[str]:
        return [row.type for row in await self.log.read(NAME)]


async def desk(books: Books | None, *between: Payload) -> Desk:
    log = Log(MemoryStore())
    await log.create("app", NAME)
    await log.append(NAME, [event(UiMessage(text="a"), "ui")])
    lease = await log.leases.claim(NAME, "one")
    assert lease is not None
    return Desk(log, lease, books, *between)


WORDS = [EventDraft(UiMessage(text="b"), HERE, "ui"), EventDraft(UiMessage(text="c"), HERE, "ui")]
DELTA, TITLE = BlockDelta(block_id="b1", text="x"), SessionTitle(title="t")


def title(_: int) -> list[Event]:
    return [event(SessionTitle(title="follows"), "system")]


@scenario
async def test_a_batch_and_what_follows_are_one_append() -> None:
    books = Books(title)
    at = await desk(books)
    assert await at.writer.append_with_rules(WORDS, at.look) == 2, "the last of its own"
    assert await at.types() == ["ui.message", "ui.message", "ui.message", "session.title"]
    assert books.asked == [(2, 0, "submit")]


@scenario
async def test_what_follows_from_nothing_is_written_too() -> None:
    at = await desk(Books(title))
    assert await at.writer.append_with_rules([], at.look, "apply") == 0
    assert await at.types() == ["ui.message", "session.title"]
    silent = await desk(Books(lambda _: []))
    assert await silent.writer.append_with_rules([], silent.look) == 0
    assert await silent.types() == ["ui.message"]


@pytest.mark.parametrize(
    ("between", "binding", "say", "looks"),
    [
        (TITLE, True, lambda _: [], 2),
        (TITLE, False, title, 2),
        (TITLE, False, lambda _: [], 1),  # nothing looks at where it stands
        (DELTA, True, lambda _: [], 1),  # live events change nothing that a rule can see
        (DELTA, False, title, 1),
    ],
)
def test_what_rules_may_look_at_is_made_again_when_something_durable_came_first(
    between: Payload, binding: bool, say: Any, looks: int
) -> None:
    async def run() -> None:
        books = Books(say, binding)
        at = await desk(books, between)
        await at.writer.append_with_rules(WORDS, at.look)
        assert len(books.asked) == looks
        assert (await at.types()).count("ui.message") == 3, "it is written once"

    asyncio.run(run())


@scenario
async def test_an_id_that_is_taken_is_not_tried_for_ever() -> None:
    at = await desk(None)
    [taken] = (await at.log.read(NAME)).envelopes()
    other = CATALOG.build_event(SessionTitle(title="x"), id=taken.id, origin="system", scope=Scope())
    at.folds.app_state = Books(lambda _: [other])
    with pytest.raises(Conflict, match="is the id of another event"):
        await at.writer.append_with_rules(WORDS, at.look)
    assert await at.types() == ["ui.message"]


@pytest.mark.parametrize(
    ("fault", "code"),
    [
        (RulesDidNotConverge(["ping", "pong"], 100), "rules_unsettled"),
        (RuleError("the rule ping failed with KeyError", "ping"), "rule_failed"),
    ],
)
@pytest.mark.parametrize(
    ("items", "scope"), [(WORDS, Scope(trace_id="tr_1", channel="front")), ([], Scope())]
)
def test_rules_that_cannot_be_followed_are_said_in_the_turn_of_the_batch(
    fault: RuleError, code: str, items: list[EventDraft], scope: Scope
) -> None:
    def fail(_: int) -> list[Event]:
        raise fault

    async def run() -> None:
        at = await desk(Books(fail))
        await at.writer.append_with_rules(items, at.look)
        [*written, error] = (await at.log.read(NAME)).envelopes()
        assert len(written) == 1 + len(items)
        assert (error.type, error.origin) == ("session.error", "system")
        assert (error.trace_id, error.channel, error.agent_id) == (scope.trace_id, scope.channel, None)
        problem = CATALOG.decode_payload(error)
        assert getattr(problem, "code", None) == code
        assert "ping" in getattr(problem, "message", "")

    asyncio.run(run())


@scenario
async def test_without_a_ledger_nothing_follows() -> None:
    at = await desk(None, TITLE)
    assert isinstance(at.folds.app_state, NoAppState)
    assert await at.writer.append_with_rules(WORDS, at.look) == 3
    assert await at.writer.append([]) == at.folds.last_seq
    assert await at.writer.append(WORDS[:1]) == 4
    envelope = (await at.log.read(NAME)).envelopes()[-1]
    at.folds.app_state.apply(envelope, CATALOG.decode_payload(envelope))


@scenario
async def test_writer_whose_session_was_claimed_again_is_fenced() -> None:
    at = await desk(None)
    await at.writer.append(WORDS[:1])
    await at.log.leases.claim(NAME, "one")
    with pytest.raises(Fenced):
        await at.writer.append(WORDS[1:])
    assert await at.types() == ["ui.message", "ui.message"]
