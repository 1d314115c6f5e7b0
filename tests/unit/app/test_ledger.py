"""An application's state and its rules in a session: what follows, what fails, and what is written then."""

import asyncio
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.support.transact import transact
from tests.unit.app.desk import ADA, Desk, bodies, desk, play
from turnlog import Agent, App
from turnlog.agents import Scripted
from turnlog.app import ClientEvent, Membership
from turnlog.app.app_state import SessionAppState
from turnlog.app.messages import Chat
from turnlog.errors import CallerError, RuleError, RulesDidNotConverge, StoreError
from turnlog.events import (
    BlockDelta,
    Envelope,
    Event,
    Payload,
    Scope,
    UiMessage,
    Vocabulary,
    decode_envelope,
    encode_envelope,
)
from turnlog.ids import new_id
from turnlog.log import Log, MemoryStore, SqliteStore
from turnlog.state.history import Message
from turnlog.state.rules import Rule

NAME = "sess_1"
State = dict[str, Any]


class Note(Payload, frozen=True, kw_only=True):
    """Something was noted; some words are hard to take."""

    ORIGINS: ClassVar[Any] = frozenset({"ui", "model", "app"})

    text: str


class Seal(Payload, frozen=True, kw_only=True):
    """A rule said so."""

    ORIGINS: ClassVar[Any] = frozenset({"app"})

    step: int


class Vow(Payload, frozen=True, kw_only=True):
    """Only a page may say this."""

    ORIGINS: ClassVar[Any] = frozenset({"ui"})


def noted(state: State, note: Note, at: Envelope) -> State:
    if note.text == "poison":
        raise ZeroDivisionError
    return {**state, "notes": [*state["notes"], note.text]}


def sealed(state: State, seal: Seal, at: Envelope) -> State:
    return {**state, "seals": [*state["seals"], [seal.step, at.seq]]}


def has(word: str) -> Any:
    return lambda state: word in state["notes"]


def step(number: int, word: str = "seal") -> Any:
    """The next seal is this one."""
    return lambda state: word in state["notes"] and len(state["seals"]) == number


def seals(number: int) -> Any:
    return lambda state: [Seal(step=number)]


def raising(_: State) -> Any:
    raise KeyError("secret")


def raising_at(word: str) -> Any:
    return lambda state: raising(state) if word in state["notes"] else False


RULES = [
    Rule("third", "apply", step(2), seals(2)),
    Rule("second", "apply", step(1), seals(1)),
    Rule("first", "apply", step(0), seals(0)),
    Rule("model's", "submit", step(3), seals(3)),
    Rule("ping", "apply", has("loop"), seals(8)),
    Rule("bad when", "apply", raising_at("bad when"), seals(0)),
    Rule("bad emit", "apply", has("bad emit"), raising),
    Rule("no event", "apply", has("no event"), lambda state: [3]),  # type: ignore[list-item]
    Rule("vow", "apply", has("vow"), lambda state: [Vow()]),
]


def script(messages: list[Message]) -> Iterator[str]:
    """A model that notes what it is told."""
    word = str(messages[-1].content[-1]["text"])
    yield f'I note it. <agent-event type="note" data=\'{{"text": "{word}"}}\' />'


def make(rules: list[Rule] = RULES) -> App:
    return App(
        "notes",
        Agent("Clerk", "", Scripted(script)),
        vocabulary=Vocabulary("notes", [Note, Seal, Vow]),
        reducers={Note: noted, Seal: sealed},
        rules=rules,
        initial_state=lambda: {"notes": [], "seals": []},
    )


def note(app: App, text: str, **scope: Any) -> Event:
    return app.catalog.build_event(Note(text=text), id=new_id("evt_"), origin="ui", scope=Scope(**scope))


def applied(ledger: SessionAppState, *events: Event) -> None:
    for seq, event in enumerate(events):
        ledger.apply(
            decode_envelope(encode_envelope(event, session_id=NAME, seq=seq, ts_ms=0)), event.payload
        )


class TestWhatFollows:
    def test_rules_speak_to_a_fixed_point_each_in_its_name(self) -> None:
        app = make()
        ledger = SessionAppState(app, NAME)
        batch = [note(app, "a", trace_id="tr_1", channel="front", actor="ada"), note(app, "seal")]
        emitted = ledger.rule_events(batch, 10, "apply")
        assert [event.payload for event in emitted] == [Seal(step=0), Seal(step=1), Seal(step=2)]
        assert [event.scope.actor for event in emitted] == ["first", "second", "third"]
        assert {event.origin for event in emitted} == {"app"}
        assert {(event.scope.trace_id, event.scope.channel) for event in emitted} == {("tr_1", "front")}
        assert len({event.id for event in emitted}) == 3
        assert ledger.state == {"notes": [], "seals": []}, "it is only tried"

    @pytest.mark.parametrize(("channel", "turn"), [("front", "tr_1"), ("back", None)])
    def test_follows_of_a_batch_whose_last_event_has_no_turn_are_in_the_turn_of_its_channel(
        self, channel: str, turn: str | None
    ) -> None:
        app = make()
        batch = [note(app, "a", trace_id="tr_1", channel="front"), note(app, "seal", channel=channel)]
        emitted = SessionAppState(app, NAME).rule_events(batch, 10, "apply")
        assert {(event.scope.trace_id, event.scope.channel) for event in emitted} == {(turn, channel)}

    def test_rules_of_the_model_speak_after_the_model(self) -> None:
        app = make()
        emitted = SessionAppState(app, NAME).rule_events([note(app, "seal")], -1, "submit")
        assert [event.scope.actor for event in emitted] == ["first", "second", "third", "model's"]

    def test_reducers_find_the_place_that_an_event_will_have(self) -> None:
        app, seen = make(), list[State]()

        def looks(state: State) -> bool:
            seen.append(state)
            return False

        app.rules = (*app.rules, Rule("looks", "apply", looks, seals(0)))
        ledger = SessionAppState(app, NAME)
        ledger.rule_events([note(app, "seal")], 41, "apply")
        assert seen[-1]["seals"] == [[0, 43], [1, 44], [2, 45]]

    def test_where_nothing_holds_or_there_are_no_rules_nothing_follows(self) -> None:
        assert SessionAppState(make(), NAME).rule_events([note(make(), "a")], 0, "submit") == []
        assert SessionAppState(make([]), NAME).rule_events([note(make(), "seal")], 0, "submit") == []

    @pytest.mark.parametrize(("rules", "bound"), [(RULES, True), ([], False)])
    def test_a_batch_is_bound_to_its_place_by_rules_and_reducers(self, rules: Any, bound: bool) -> None:
        app = make(rules)
        said = app.catalog.build_event(UiMessage(text="a"), id="evt_1", origin="ui")
        assert SessionAppState(app, NAME).may_react_to([said, note(app, "a")]) is bound
        assert not SessionAppState(app, NAME).may_react_to([said])


class TestWhatFails:
    def test_a_reducer_that_raises_changes_nothing_and_is_reported(self, caplog: Any) -> None:
        app = make()
        ledger = SessionAppState(app, NAME)
        applied(ledger, note(app, "a"), note(app, "poison"), note(app, "b"))
        assert ledger.state["notes"] == ["a", "b"]
        [record] = caplog.records
        assert record.getMessage() == "the reducer of notes.note failed at seq 1"
        assert record.exc_info[0] is ZeroDivisionError

    def test_before_it_happens_it_is_not_reported_and_rules_are_heard(self, caplog: Any) -> None:
        app = make()
        emitted = SessionAppState(app, NAME).rule_events([note(app, "poison"), note(app, "seal")], 0, "apply")
        assert len(emitted) == 3
        assert not caplog.records

    @pytest.mark.parametrize(
        ("word", "problem"),
        [
            ("bad when", "the rule bad when failed with KeyError"),
            ("bad emit", "the rule bad emit failed with KeyError"),
            ("no event", "the rule no event failed with "),
            ("vow", "the rule vow failed with InvalidEvent"),
        ],
    )
    def test_a_rule_that_fails_is_named_and_reported(self, caplog: Any, word: str, problem: str) -> None:
        app = make()
        with pytest.raises(RuleError, match=f"^{problem}") as fault:
            SessionAppState(app, NAME).rule_events([note(app, word)], 0, "apply")
        assert fault.value.rules == (word,)
        assert "secret" not in str(fault.value), "what the application says goes to its journal alone"
        [record] = caplog.records
        assert record.getMessage().startswith(f"notes: {problem}")
        assert record.exc_info is not None

    def test_rules_that_do_not_settle_are_named_and_reported(self, caplog: Any) -> None:
        app = make()
        with pytest.raises(RulesDidNotConverge, match=r"still matching: ping$"):
            SessionAppState(app, NAME).rule_events([note(app, "loop")], 0, "apply")
        assert [record.levelno for record in caplog.records] == [logging.ERROR]

    def test_no_state_is_made_of_live_events(self) -> None:
        with pytest.raises(CallerError, match="app x: expected no reducer of BlockDelta, which is live"):
            App("x", Agent("A", "", Scripted(script)), reducers={BlockDelta: lambda *_: 1})


async def post(at: Desk, seat: Membership, *words: str) -> list[int]:
    return await at.sessions.post(
        seat, [ClientEvent("notes.note", {"text": word}, new_id("evt_")) for word in words]
    )


class TestInASession:
    @pytest.mark.parametrize("word", ["loop", "bad when", "vow"])
    def test_a_post_that_the_rules_cannot_follow_is_refused_whole(self, word: str) -> None:
        async def run() -> None:
            async with desk(make()) as at:
                ada = await at.sessions.create(ADA)
                before = await at.told(ada)
                direct = [ClientEvent("notes.note", {"text": word}, new_id("evt_"))]
                with pytest.raises(RuleError):
                    await post(at, ada, "a", word)
                with pytest.raises(RuleError):
                    await at.sessions.chat(ada, Chat(None, direct, UiMessage(text="Well?")))
                assert await at.told(ada) == before
                await post(at, ada, "seal")
                assert len(await at.told(ada, "notes.seal")) == 3, "the session goes on"

        play(run)

    @pytest.mark.parametrize(
        ("word", "code"), [("loop", "rules_unsettled"), ("bad when", "rule_failed"), ("vow", "rule_failed")]
    )
    def test_the_models_turn_ends_and_says_what_is_wrong(self, word: str, code: str) -> None:
        async def run() -> None:
            async with desk(make()) as at:
                ada = await at.sessions.create(ADA)
                sent = await at.sessions.chat(ada, Chat(None, (), UiMessage(text=word)))
                [error] = await at.told(ada, "session.error")
                assert (error.trace_id, error.origin) == (sent.turn, "system")
                [body] = bodies([error])
                assert body["code"] == code
                assert ("ping" if word == "loop" else word) in body["message"]
                [end] = bodies(await at.told(ada, "agent.end"))
                assert end["stop_reason"] == "end_turn"
                assert (await at.sessions.state(ada))[1]["notes"] == [word], "what it said stands"

        play(run)

    def test_the_models_events_are_followed_by_all_rules_in_its_turn(self) -> None:
        async def run() -> None:
            async with desk(make()) as at:
                ada = await at.sessions.create(ADA)
                sent = await at.sessions.chat(ada, Chat(None, (), UiMessage(text="seal")))
                told = await at.told(ada, "notes.seal", "agent.end")
                assert [one.actor for one in told[1:]] == ["first", "second", "third", "model's"]
                assert {one.trace_id for one in told} == {sent.turn}
                assert [one.seq for one in told] == list(range(told[0].seq, told[0].seq + 5)), "one batch"

        play(run)

    def test_a_reducer_that_raises_stops_neither_a_post_nor_a_turn(self, caplog: Any) -> None:
        async def run() -> None:
            async with desk(make()) as at:
                ada = await at.sessions.create(ADA)
                await post(at, ada, "poison", "a")
                await at.sessions.chat(ada, Chat(None, (), UiMessage(text="poison")))
                assert (await at.sessions.state(ada))[1]["notes"] == ["a"]
                assert (await at.sessions.load_read_models(ada)).state["notes"] == ["a"]
                assert len(await at.told(ada, "notes.note")) == 3

        play(run)
        assert len([one for one in caplog.records if "the reducer of notes.note" in one.getMessage()]) == 2

    def test_what_a_dead_process_left_unsaid_is_said_once(self) -> None:
        async def run() -> None:
            log = Log(MemoryStore())
            async with desk(make([]), log=log) as at:
                ada = await at.sessions.create(ADA)
                await post(at, ada, "seal")
            for _ in range(2):
                async with desk(make(), log=log) as again:
                    seat = await again.sessions.get_membership(ADA, ada.session_id)
                    await again.wait_for_runner(seat)
                    assert len((await again.sessions.state(seat))[1]["seals"]) == 3
            said = await at.told(ada, "notes.seal")
            assert [one.actor for one in said] == ["first", "second", "third"]
            await log.close()

        play(run)

    def test_rules_that_fail_when_a_session_is_opened_keep_nobody_out(self) -> None:
        async def run() -> None:
            log = Log(MemoryStore())
            async with desk(make([]), log=log) as at:
                ada = await at.sessions.create(ADA)
                await post(at, ada, "bad when")
            async with desk(make(), log=log) as again:
                seat = await again.sessions.get_membership(ADA, ada.session_id)
                await again.wait_for_runner(seat)
                assert (await again.sessions.state(seat))[1]["notes"] == ["bad when"]
                [error] = bodies(await again.told(seat, "session.error"))
                assert error["code"] == "rule_failed"
            await log.close()

        play(run)

    def test_a_batch_and_what_follows_are_written_together_or_not_at_all(self, tmp_path: Path) -> None:
        async def run() -> None:
            store = SqliteStore(tmp_path / "log.db")
            log = Log(store)
            async with desk(make(), log=log) as at:
                ada = await at.sessions.create(ADA)
                full = "create temp trigger full before insert on event when instr(new.meta, 'notes.seal') "
                await transact(
                    log, lambda _: execute(store, full + "begin select raise(abort, 'disk full'); end")
                )
                before = await at.told(ada)
                with pytest.raises(StoreError, match="disk full"):
                    await post(at, ada, "seal")
                assert await at.told(ada) == before
                assert (await at.sessions.state(ada))[1] == {"notes": [], "seals": []}
                await post(at, ada, "a")
                await transact(log, lambda _: execute(store, "drop trigger full"))
                await post(at, ada, "seal")
                assert (await at.sessions.state(ada))[1]["notes"] == ["a", "seal"]
                assert len((await at.sessions.state(ada))[1]["seals"]) == 3
            await log.close()

        play(run)

    def test_two_posts_at_once_are_followed_once(self) -> None:
        async def run() -> None:
            async with desk(make()) as at:
                ada = await at.sessions.create(ADA)
                await asyncio.gather(*[post(at, ada, word) for word in ("seal", "a", "seal", "b")])
                assert [one.actor for one in await at.told(ada, "notes.seal")] == ["first", "second", "third"]

        play(run)


def execute(store: SqliteStore, statement: str) -> None:
    store._writer_connection.execute(statement)
