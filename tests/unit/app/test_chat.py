"""Direct events and rules in a session: what one request appends, what follows from it, and sent again."""

import asyncio
from typing import Any, ClassVar

import pytest

from tests.unit.app.desk import ADA, BOB, ROOT, Desk, bodies, desk, play
from turnlog import Agent, App
from turnlog.agents import Scripted
from turnlog.agents.runtime.session_folds import NoAppState, SessionFolds
from turnlog.agents.runtime.session_writer import SessionWriter
from turnlog.app import ClientEvent, Membership, Roles
from turnlog.app.app_state import SessionAppState
from turnlog.app.messages import Chat, SendResult
from turnlog.errors import Conflict
from turnlog.events import Envelope, Event, EventDraft, Payload, Scope, UiMessage, Vocabulary
from turnlog.ids import new_id
from turnlog.log import Lease, Log, MemoryStore
from turnlog.state.history import Message
from turnlog.state.rules import Rule

READ: list[list[Message]] = []


class Note(Payload, frozen=True, kw_only=True):
    """Something was noted."""

    ORIGINS: ClassVar[Any] = frozenset({"ui", "model", "app"})

    text: str


class Count(Payload, frozen=True, kw_only=True):
    """So many notes were there, when it was the time to count."""

    ORIGINS: ClassVar[Any] = frozenset({"app"})

    notes: int


State = dict[str, Any]


def noted(state: State, note: Note, at: Envelope) -> State:
    return {**state, "notes": [*state["notes"], note.text]}


def counted(state: State, count: Count, at: Envelope) -> State:
    return {**state, "counted": count.notes}


def even(state: State) -> bool:
    """Two notes more than were counted: one by the page and one by the model are enough."""
    return bool(len(state["notes"]) >= state["counted"] + 2)


COUNTING = Rule("counting", "apply", even, lambda state: [Count(notes=len(state["notes"]))])
NOTES = Vocabulary("notes", [Note, Count])


def script(messages: list[Message]) -> list[str]:
    READ.append(messages)
    return [f"I read {len(messages[-1].content)}."]


def make(*channels: str) -> App:
    """Two notes are counted; every channel has its clerk."""
    agents = {name: Agent(f"Clerk of {name}", "", Scripted(script)) for name in channels}
    return App(
        "notes",
        agents or Agent("Clerk", "", Scripted(script)),
        vocabulary=NOTES,
        reducers={Note: noted, Count: counted},
        rules=[COUNTING],
        initial_state=lambda: {"notes": [], "counted": 0},
        roles=Roles(creator=("front",), invitable_roles={"front": ("back",)}),
    )


def note(text: str, id: str = "") -> ClientEvent:
    return ClientEvent("notes.note", {"text": text}, id or new_id("evt_"))


async def chat(
    at: Desk, seat: Membership, *direct: ClientEvent, text: str | None = None, **more: Any
) -> SendResult:
    message = None if text is None else UiMessage(text=text, channel=more.get("channel", seat.channel))
    return await at.sessions.chat(
        seat, Chat(more.get("channel", seat.channel), direct, message, more.get("key"))
    )


def texts(message: Message) -> list[str]:
    return [part["text"] for part in message.content]


TOLD = '[The user acted: {{"type":"note","data":{{"text":"{}"}}}}]'


def test_events_of_a_page_alone_have_a_turn() -> None:
    async def run() -> None:
        async with desk(make()) as at:
            ada = await at.sessions.create(ADA)
            sent = await chat(at, ada, note("a"), note("b"))
            started, said = await at.told(ada, "agent.start", "assistant.message")
            assert started.trace_id == said.trace_id == sent.turn
            assert texts(READ[-1][-1]) == [
                TOLD.format("a"),
                TOLD.format("b"),
                '[It followed: {"type":"count","data":{"notes":2}}]',
            ]

    play(run)


def test_what_follows_is_in_the_batch_with_its_rule_and_its_turn() -> None:
    async def run() -> None:
        async with desk(make("front")) as at:
            ada = await at.sessions.create(ADA)
            sent = await chat(at, ada, note("a"), note("b"), text="Please")
            told = await at.told(ada, "notes.note", "ui.message", "notes.count")
            assert [one.type for one in told] == ["notes.note", "notes.note", "ui.message", "notes.count"]
            assert [one.seq for one in told] == list(range(sent.seq, sent.seq + 4)), "one batch"
            assert {(one.trace_id, one.channel) for one in told} == {(sent.turn, "front")}
            assert [(one.origin, one.actor) for one in told][2:] == [("ui", "ada"), ("app", "counting")]

    play(run)


def test_what_follows_from_a_post_stays_in_its_channel() -> None:
    async def run() -> None:
        async with desk(make("front", "back")) as at:
            ada = await at.sessions.create(ADA)
            await at.sessions.post(ada, [note("a"), note("b")])
            [count] = await at.told(ada, "notes.count")
            assert (count.channel, count.trace_id, count.actor) == ("front", None, "counting")

    play(run)


def test_what_a_process_did_not_live_to_settle_follows_in_its_channel() -> None:
    async def run() -> None:
        app, log = make("front", "back"), Log(MemoryStore())
        session = await log.create(app.name)
        for text in "ab":
            scope = Scope(channel="back", actor="bob")
            noted = app.catalog.build_event(Note(text=text), id=new_id("evt_"), origin="ui", scope=scope)
            await log.append(session, [noted])
        async with desk(app, log=log) as at:
            root = await at.sessions.get_membership(ROOT, session)
            await at.wait_for_runner(root)
            [count] = await at.told(root, "notes.count")
            assert (count.channel, count.actor, bodies([count])) == ("back", "counting", [{"notes": 2}])
        await log.close()

    play(run)


def test_a_request_that_comes_again_changes_nothing_and_answers_the_same() -> None:
    async def run() -> None:
        async with desk(make()) as at:
            ada = await at.sessions.create(ADA)
            direct = note("a", "evt_a"), note("b", "evt_b")
            first = await chat(at, ada, *direct, text="Please", key="evt_c")
            before = await at.told(ada)
            assert await chat(at, ada, *direct, text="Please", key="evt_c") == first
            assert await at.sessions.post(ada, direct) == [first.seq, first.seq + 1]
            assert await at.told(ada) == before, "and no rule speaks again"
            alone = await chat(at, ada, *direct)
            assert (alone.seq, alone.turn) == (first.seq, first.turn)
            assert await at.told(ada) == before
            for other in ((note("c", "evt_a"),), (note("a", "evt_a"), note("c", "evt_b"))):
                with pytest.raises(Conflict):
                    await chat(at, ada, *other)
            with pytest.raises(Conflict):
                await chat(at, ada, *direct, text="Please not", key="evt_c")

    play(run)


def test_another_request_under_a_key_is_refused_and_leaves_nothing() -> None:
    async def run() -> None:
        async with desk(make()) as at:
            ada = await at.sessions.create(ADA)
            a, b, c = note("a", "evt_k_0"), note("b", "evt_k_1"), note("c", "evt_k_2")
            first = await chat(at, ada, a, b, text="Please", key="evt_k")
            before = await at.told(ada)
            assert await chat(at, ada, a, b, text="Please", key="evt_k") == first
            more, fewer = (a, b, c), (a,)
            for direct, text in ((more, "Please"), (fewer, "Please"), ((), "Please"), ((a, b), None)):
                with pytest.raises(Conflict, match="key is that of another request") as refused:
                    await chat(at, ada, *direct, text=text, key="evt_k")
                assert refused.value.last == before[-1].seq
            assert await at.told(ada) == before
            assert (await chat(at, ada, note("a", "evt_k_0"), text="Anew", key="evt_l")).turn != first.turn

    play(run)


def test_a_new_message_with_events_that_are_known_is_a_new_turn() -> None:
    async def run() -> None:
        async with desk(make()) as at:
            ada = await at.sessions.create(ADA)
            first = await chat(at, ada, note("a", "evt_a"))
            second = await chat(at, ada, note("a", "evt_a"), text="Well?")
            assert first.turn != second.turn
            assert len(await at.told(ada, "notes.note")) == 1
            assert [end.trace_id for end in await at.told(ada, "agent.end")] == [first.turn, second.turn]

    play(run)


def test_events_that_wait_for_their_turn_are_read_when_it_begins() -> None:
    async def run() -> None:
        async with desk(make()) as at:
            ada = await at.sessions.create(ADA)
            turns = await asyncio.gather(
                chat(at, ada, text="one"),
                chat(at, ada, note("two")),
                chat(at, ada, note("three"), text="four"),
            )
            ends = [end.trace_id for end in await at.told(ada, "agent.end")]
            assert ends == [turn.turn for turn in turns], "one after the other"
            assert [(one.role, texts(one)) for one in READ[-1]] == [
                ("user", ["one"]),
                ("assistant", ["I read 1."]),
                ("user", [TOLD.format("two")]),
                ("assistant", ["I read 1."]),
                (
                    "user",
                    [TOLD.format("three"), '[It followed: {"type":"count","data":{"notes":2}}]', "four"],
                ),
            ]

    play(run)


def test_events_go_to_the_channel_that_is_named() -> None:
    async def run() -> None:
        async with desk(make("front", "back")) as at:
            ada = await at.sessions.create(ADA)
            both = await at.member(ada, BOB, "front", "back")
            root = await at.sessions.get_membership(ROOT, ada.session_id)
            for seat in (both, root):
                sent = await chat(at, seat, note("a"), channel="back")
                turn = [one for one in await at.told(ada) if one.trace_id == sent.turn]
                assert {one.channel for one in turn} == {"back"}
                assert turn[-1].agent_name == "Clerk of back"

    play(run)


def test_a_role_invites_whom_its_application_lets_it() -> None:
    async def run() -> None:
        async with desk(make("front", "back")) as at:
            ada = await at.sessions.create(ADA)
            bob = await at.member(ada, BOB, "back")
            assert ada.may_invite(["back"])
            assert not ada.may_invite(["back", "owner"])
            assert ada.may_invite(["front"]), "who made the session may give the role it has itself"
            assert not bob.may_invite(["back"])

    play(run)


class Writing:
    """A writer in a session to which another one appends at the same moment."""

    def __init__(self, ledger: SessionAppState | NoAppState, log: Log, session_id: str) -> None:
        self._log, self._session = log, session_id
        self._app, self.ledger = make(), ledger
        self.folds = SessionFolds(log, session_id, self._app.catalog, ledger)
        self.writer = SessionWriter(log, Lease(session_id, "one", 1), self.folds)
        self.looks = 0

    def event(self, text: str) -> Event:
        return self._app.catalog.build_event(Note(text=text), id=new_id("evt_"), origin="ui")

    async def look(self) -> int:
        """What there is is taken into account; then somebody writes, the first time."""
        self.looks += 1
        page = await self._log.read(self._session)
        if isinstance(self.ledger, SessionAppState):
            self.ledger.state = self._app.initial_state()
            for envelope in page.envelopes():
                self.ledger.apply(envelope, self._app.catalog.decode_payload(envelope))
        self.folds.durable_count = len(page)
        if self.looks == 1:
            await self._log.append(self._session, [self.event("meanwhile")])
        self.folds.durable_count = page[-1].durable_count if page else 0
        return page.last if page else -1


@pytest.mark.parametrize(
    ("bound", "looks", "types"),
    [(True, 2, ["notes.note", "notes.note", "notes.count"]), (False, 1, ["notes.note", "notes.note"])],
)
def test_of_two_batches_at_one_moment_the_second_is_seen_with_the_first(
    bound: bool, looks: int, types: list[str]
) -> None:
    """The control has a ledger that binds nothing: then the rule is not heard."""

    async def run() -> None:
        log = Log(MemoryStore())
        session = await log.create("notes")
        writing = Writing(SessionAppState(make(), session) if bound else NoAppState(), log, session)
        await writing.writer.append_with_rules(
            [EventDraft(Note(text="mine"), Scope(), "model")], writing.look
        )
        page = await log.read(session)
        assert ([row.type for row in page], writing.looks) == (types, looks)
        if bound:
            assert bodies([*page.envelopes()])[-1] == {"notes": 2}
        await log.close()

    play(run)
