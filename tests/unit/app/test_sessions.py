"""Sessions: who has a seat, the one without a name, several applications, and whose roles count in a turn."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.app.desk import ADA, BOB, EVE, ROOT, Desk, agent, bodies, desk, make_app, play
from turnlog import Agent, tool
from turnlog.agents import Scripted, ToolUse
from turnlog.agents.models import Request
from turnlog.app import App, Principal, Roles, Sessions
from turnlog.errors import BadInput, CallerError, NotFound, SessionClosed
from turnlog.events import Payload
from turnlog.ids import now_ms
from turnlog.log import Log, MemoryStore, open_log
from turnlog.parse.reply import ReplyBuilder


async def seats_of(at: Desk, principal: Principal) -> list[str]:
    return [one.membership.session_id for one in (await at.sessions.list_summaries(principal))[0]]


async def states_of(at: Desk, principal: Principal) -> dict[str, str]:
    return {one.membership.session_id: one.state for one in (await at.sessions.list_summaries(principal))[0]}


class TestSeats:
    def test_whoever_makes_a_session_is_its_first_member(self) -> None:
        async def run() -> None:
            async with desk(make_app(roles=Roles(creator=("clerk", "writer")))) as at:
                ada = await at.sessions.create(ADA, title="A case")
                assert ada.roles == {"clerk", "writer"}
                assert ada.record.title == "A case"
                [member] = await at.told(ada, "session.member")
                assert (member.actor, member.origin) == ("ada", "system")
                assert len(ada.session_id) >= len("sess_") + 22, "128 bits"

        play(run)

    def test_there_is_no_seat_for_others_nor_where_nothing_is(self) -> None:
        async def run() -> None:
            async with desk() as at:
                ada = await at.sessions.create(ADA)
                said = []
                for principal, name in (
                    (BOB, ada.session_id),
                    (ADA, "sess_none"),
                    (ROOT, "sess_none"),
                    (BOB, ""),
                ):
                    with pytest.raises(NotFound) as refusal:
                        await at.sessions.get_membership(principal, name)
                    said.append(str(refusal.value).replace(name, "X"))
                assert len(set(said[:3])) == 1, "one cannot tell a foreign session from none"
                assert said[3] == "no session was named".replace("", "X")
                root = await at.sessions.get_membership(ROOT, ada.session_id)
                assert (root.roles, root.is_owner) == (frozenset(), True)

        play(run)

    def test_members_come_change_and_go(self) -> None:
        async def run() -> None:
            async with desk() as at:
                ada = await at.sessions.create(ADA)
                assert (await at.member(ada, BOB, "guest")).roles == {"guest"}
                assert (await at.member(ada, BOB, "clerk", "owner")).roles == {"clerk", "owner"}
                with pytest.raises(NotFound):
                    await at.member(ada, BOB)
                assert (await at.log.info(ada.session_id)).members == {"ada": ("owner",)}
                members = await at.told(ada, "session.member")
                assert [one.actor for one in members] == ["ada", "bob", "root", "root"]

        play(run)

    def test_sessions_are_listed_with_what_they_do_the_last_active_first(self) -> None:
        async def run() -> None:
            async with desk() as at:
                rests, waits, closed, foreign = [
                    await at.sessions.create(who) for who in (ADA, ADA, ADA, BOB)
                ]
                await at.say(waits, "confirm it")
                await at.until(waits, "tool.await")
                await at.sessions.tree(waits)
                await at.log.close_session(closed.session_id)
                names = {rests.session_id: "idle", waits.session_id: "waiting", closed.session_id: "closed"}
                assert await states_of(at, ADA) == names
                assert await states_of(at, ROOT) == names | {foreign.session_id: "idle"}
                await at.say(rests, "confirm it")
                await at.until(rests, "tool.await")  # what is read below does not move any more
                heads = [await at.log.info(name) for name in await seats_of(at, ADA)]
                times = [head.updated_ms for head in heads]
                assert times == sorted(times, reverse=True)

        play(run)

    def test_one_that_runs_is_running_until_it_rests(self) -> None:
        async def run() -> None:
            begun, go = asyncio.Event(), asyncio.Event()

            async with desk(App("busy", Agent("Busy", "", Slow(begun, go)))) as at:
                seat = await at.sessions.create(ADA)
                await at.say(seat, "hello")
                await begun.wait()
                assert await states_of(at, ADA) == {seat.session_id: "running"}
                go.set()
                await at.until(seat, "agent.end")
                await at.sessions.tree(seat)
                assert await states_of(at, ADA) == {seat.session_id: "idle"}

        play(run)

    def test_a_session_that_is_closed_can_be_looked_at_and_takes_nothing(self, tmp_path: Path) -> None:
        async def run() -> None:
            log = await open_log(f"sqlite:///{tmp_path}/log.db")
            async with desk(log=log) as at:
                seat = await at.sessions.create(ADA)
                await at.say(seat, "confirm it")
                await at.until(seat, "tool.await")
                await log.close_session(seat.session_id)
                last = (await log.info(seat.session_id)).last
            async with desk(log=log) as at:
                await at.sessions.start()
                seat = await at.sessions.get_membership(ADA, seat.session_id)
                assert len((await at.sessions.tree(seat)).open) == 1
                assert (await at.sessions.state(seat))[0] == last
                for work in (at.say(seat, "hello"), at.sessions.stop(seat), at.member(seat, BOB, "guest")):
                    with pytest.raises(SessionClosed):
                        await work
                assert await states_of(at, ADA) == {seat.session_id: "closed"}
            assert (await log.info(seat.session_id)).last == last
            await log.close()

        play(run)


class TestDefault:
    def test_it_is_the_same_for_the_same_principal_and_application(self) -> None:
        async def run() -> None:
            async with desk(make_app("one"), make_app("two")) as at:
                default = at.sessions.ensure_default_session
                first = await default(ADA)
                assert (await default(ADA)).session_id == first.session_id
                assert (await default(ADA, "one")).session_id == first.session_id
                others = [await default(ADA, "two"), await default(BOB), await default(BOB, "two")]
                assert len({first.session_id, *[seat.session_id for seat in others]}) == 4
                assert [seat.app.name for seat in others] == ["two", "one", "two"]
                assert (await at.log.info(first.session_id)).members == {"ada": ("owner",)}

        play(run)

    def test_names_that_run_together_are_others(self) -> None:
        async def run() -> None:
            async with desk(make_app("b"), make_app("a:b")) as at:
                pairs = [("x", "a:b"), ("x:a", "b"), ("3:x", "b"), ("x", "b")]
                seats = [
                    await at.sessions.ensure_default_session(Principal(name), app) for name, app in pairs
                ]
                assert len({seat.session_id for seat in seats}) == len(pairs)

        play(run)

    def test_one_that_is_closed_has_a_successor(self) -> None:
        async def run() -> None:
            async with desk() as at:
                names = []
                for _ in range(3):
                    seat = await at.sessions.ensure_default_session(ADA)
                    await at.log.close_session(seat.session_id)
                    names.append(seat.session_id)
                assert len(set(names)) == 3

        play(run)

    def test_who_was_sent_away_gets_another(self) -> None:
        async def run() -> None:
            async with desk() as at:
                first = await at.sessions.ensure_default_session(ADA)
                root = await at.sessions.get_membership(ROOT, first.session_id)
                with pytest.raises(NotFound):
                    await at.member(root, ADA)
                second = await at.sessions.ensure_default_session(ADA)
                assert second.session_id != first.session_id
                assert (await at.sessions.ensure_default_session(ADA)).session_id == second.session_id

        play(run)

    def test_many_requests_at_once_make_one(self) -> None:
        async def run() -> None:
            async with desk() as at:
                seats = await asyncio.gather(
                    *[at.sessions.ensure_default_session(who) for who in (ADA, BOB) for _ in range(8)]
                )
                assert len({seat.session_id for seat in seats}) == 2
                assert len(await at.log.sessions()) == 2
                assert len(await at.told(seats[0], "session.member")) == 1

        play(run)

    def test_an_application_that_is_not_there_is_refused(self) -> None:
        async def run() -> None:
            async with desk(make_app("one"), make_app("two")) as at:
                for work in (
                    at.sessions.ensure_default_session(ADA, "three"),
                    at.sessions.create(ADA, "three"),
                ):
                    with pytest.raises(BadInput, match="expected one of the applications one, two"):
                        await work

        play(run)


class TestJoining:
    def test_who_acts_by_roles_it_has_everywhere_becomes_a_member_first(self) -> None:
        async def run() -> None:
            async with desk() as at:
                ada = await at.sessions.create(ADA)
                root = await at.sessions.get_membership(ROOT, ada.session_id)
                await at.sessions.tree(root)
                assert len(await at.told(ada, "session.member")) == 1, "looking is not acting"
                for text in ("hello", "again"):
                    await at.until(ada, "agent.end", trace_id=await at.say(root, text))
                told = await at.told(ada, "session.member", "ui.message")
                assert [(one.type, one.actor) for one in told[1:]] == [
                    ("session.member", "root"),
                    ("ui.message", "root"),
                    ("ui.message", "root"),
                ]
                assert bodies(told)[1] == {"principal": "root", "roles": ["operator"]}

        play(run)

    def test_it_keeps_the_roles_that_it_has_there(self) -> None:
        async def run() -> None:
            async with desk() as at:
                ada = await at.sessions.create(ADA)
                await at.member(ada, Principal("root"), "clerk")
                root = await at.sessions.get_membership(ROOT, ada.session_id)
                await at.say(root, "hello")
                assert (await at.log.info(ada.session_id)).members["root"] == ("clerk", "operator")

        play(run)


class TestSeveralApplications:
    def test_each_session_has_the_agent_of_its_application(self) -> None:
        async def run() -> None:
            async with desk(make_app("one", agent=agent("One")), make_app("two", agent=agent("Two"))) as at:
                for name in ("two", "one", None):
                    seat = await at.sessions.create(ADA, name)
                    await at.say(seat, "hello")
                    await at.until(seat, "agent.end")
                    [start] = await at.told(seat, "agent.start")
                    assert start.agent_name == (name or "one").title()

        play(run)

    @pytest.mark.parametrize(
        ("names", "words"), [((), "expected an application, got none"), (("one", "one"), "got one twice")]
    )
    def test_they_have_names_of_their_own(self, names: tuple[str, ...], words: str) -> None:
        async def run() -> None:
            log = Log(MemoryStore())
            with pytest.raises(CallerError, match=words):
                Sessions(log, [make_app(name) for name in names], 1)
            await log.close()

        play(run)

    def test_what_is_of_one_that_is_not_served_is_not_there_and_not_touched(self, tmp_path: Path) -> None:
        async def run() -> None:
            url = f"sqlite:///{tmp_path}/log.db"
            log = await open_log(url)
            async with desk(make_app("old"), make_app("new"), log=log) as at:
                old, new = await at.sessions.create(ADA, "old"), await at.sessions.create(ADA, "new")
                for seat in (old, new):
                    await at.say(seat, "confirm it")
                    await at.until(seat, "tool.await")
            before = [(await log.info(seat.session_id)).last for seat in (old, new)]
            async with desk(make_app("new"), log=log) as at:
                await at.sessions.start()
                assert (await log.info(old.session_id)).last == before[0], "it is not touched"
                restarts = [event.type async for event in log.events(new.session_id, after=before[1])]
                # the server says that it has started, sooner or later
                assert set(restarts) <= {"process.start"}, "a session that waits has nothing to do"
                assert await states_of(at, ADA) == {new.session_id: "waiting"}
                assert await seats_of(at, ROOT) == [new.session_id]
                for principal in (ADA, ROOT):
                    with pytest.raises(NotFound):
                        await at.sessions.get_membership(principal, old.session_id)
                with pytest.raises(NotFound):
                    await at.sessions.member_changes.change_roles(old, "bob", ("guest",), now_ms())
            async with desk(make_app("old"), log=log) as at:
                await at.sessions.start()
                assert await states_of(at, ADA) == {old.session_id: "waiting"}, "it waited all the time"
            await log.close()

        play(run)


class TestRolesInATurn:
    @pytest.mark.parametrize(
        ("roles", "said"), [(("guest",), "DENIED"), (("admin",), None), (("guest", "admin"), None)]
    )
    def test_a_tool_for_a_role_looks_at_who_spoke(self, roles: tuple[str, ...], said: str | None) -> None:
        async def run() -> None:
            async with desk() as at:
                ada = await at.sessions.create(ADA)
                bob = await at.member(ada, BOB, *roles)
                await at.say(bob, "erase it")
                result = await at.until(ada, "tool.result")
                assert (result["error"] or {}).get("code") == said
                assert result["result"] == (None if said else "it is gone")

        play(run)

    def test_in_one_session_each_turn_has_the_roles_of_its_speaker(self) -> None:
        async def run() -> None:
            async with desk() as at:
                ada = await at.sessions.create(ADA)
                guest, admin = await at.member(ada, BOB, "guest"), await at.member(ada, EVE, "admin")
                codes = []
                for seat in (guest, admin, guest, ada, admin):
                    turn = await at.say(seat, "erase it")
                    result = await at.until(ada, "tool.result", trace_id=turn)
                    codes.append((result["error"] or {}).get("code"))
                    await at.until(ada, "agent.end", trace_id=turn)
                assert codes == ["DENIED", None, "DENIED", "DENIED", None]

        play(run)

    def test_who_goes_on_with_a_turn_that_waits_brings_its_own_roles(self) -> None:
        async def run() -> None:
            async with desk() as at:
                ada = await at.sessions.create(ADA)
                guest, admin = await at.member(ada, BOB, "guest"), await at.member(ada, EVE, "admin")
                for first, second, code in ((admin, guest, "DENIED"), (guest, admin, None)):
                    turn = await at.say(first, "confirm it")
                    await at.until(ada, "tool.await", trace_id=turn)
                    assert await at.say(second, "erase it") == turn
                    result = await at.until(ada, "tool.result", trace_id=turn, tool="erase")
                    assert (result["error"] or {}).get("code") == code
                    await at.until(ada, "agent.end", trace_id=turn)

        play(run)

    def test_roles_that_were_taken_away_do_not_count_any_more(self) -> None:
        async def run() -> None:
            async with desk() as at:
                ada = await at.sessions.create(ADA)
                admin = await at.member(ada, EVE, "admin")
                turn = await at.say(admin, "confirm it")
                await at.until(ada, "tool.await")
                guest = await at.member(ada, EVE, "guest")
                assert await at.say(guest, "erase it") == turn
                result = await at.until(ada, "tool.result", tool="erase")
                assert result["error"]["code"] == "DENIED"

        play(run)

    def test_an_approval_is_given_by_who_has_the_role(self) -> None:
        async def run() -> None:
            async with desk() as at:
                ada = await at.sessions.create(ADA)
                guest, admin = await at.member(ada, BOB, "guest"), await at.member(ada, EVE, "admin")
                await at.say(admin, "pay bob")
                asked = await at.until(ada, "approval.request")
                decision = {
                    "call_id": asked["call_id"],
                    "args_hash": asked["args_hash"],
                    "decision": "approve",
                }
                for seat in (guest, ada):
                    with pytest.raises(CallerError, match="the role admin may decide this"):
                        await at.post(seat, "approval.decision", decision)
                await at.post(admin, "approval.decision", decision)
                assert (await at.until(ada, "tool.result"))["result"] == "bob is paid"
                [decided] = await at.told(ada, "approval.decision")
                assert decided.actor == "eve"

        play(run)


class Slow:
    """A model that says nothing until it is told to."""

    name = "slow"

    def __init__(self, begun: asyncio.Event, go: asyncio.Event) -> None:
        self.begun, self.go = begun, go

    async def stream(self, request: Request, reply: ReplyBuilder) -> AsyncIterator[list[Payload]]:
        self.begun.set()
        await self.go.wait()
        yield [*reply.text("Done."), *reply.done("end_turn")]


class Looking:
    """A model that looks at the images it is told of, and says what it saw."""

    name = "looking"

    def __init__(self, *names: str) -> None:
        self.names = list(names)
        self.seen: list[Any] = []

    async def stream(self, request: Request, reply: ReplyBuilder) -> AsyncIterator[list[Payload]]:
        for name in self.names:
            try:
                self.seen.append((await request.read_blob(name)).data)
            except NotFound:
                self.seen.append(None)
        yield [*reply.text("Seen."), *reply.done("end_turn")]


def test_a_model_is_shown_the_blobs_of_its_session_only() -> None:
    async def run() -> None:
        model = Looking()
        app = App("looking", Agent("Eye", "", model))
        async with desk(app) as at:
            own, other = await at.sessions.create(ADA), await at.sessions.create(BOB)
            for seat in (own, other):
                name = await at.log.put_blob(seat.session_id, seat.session_id.encode(), "image/png")
                model.names.append(name)
            model.names.append(model.names[0].rpartition("/")[2])
            await at.say(own, "look")
            await at.until(own, "agent.end")
            assert model.seen[:3] == [own.session_id.encode(), None, None]

    play(run)


def test_the_state_is_of_everything_that_was_sent() -> None:
    async def run() -> None:
        async with desk(make_app(initial_state=lambda: {"n": 0})) as at:
            ada = await at.sessions.create(ADA)
            seq, state = await at.sessions.state(ada)
            assert (seq, state) == ((await at.log.info(ada.session_id)).last, {"n": 0})

    play(run)


def test_a_stop_says_who_stopped() -> None:
    async def run() -> None:
        async with desk() as at:
            ada = await at.sessions.create(ADA)
            await at.say(ada, "confirm it")
            await at.until(ada, "tool.await")
            await at.sessions.stop(await at.member(ada, BOB, "guest"))
            assert (await at.until(ada, "agent.end"))["stop_reason"] == "cancelled"
            [command] = await at.told(ada, "ui.command")
            assert command.actor == "bob"

    play(run)


def test_all_sessions_stop_at_once() -> None:
    async def run() -> None:
        both, begun = asyncio.Barrier(2), asyncio.Semaphore(0)

        @tool
        async def work() -> str:
            """Work until it is stopped, and then until the other one is, too."""
            begun.release()
            try:
                await asyncio.Event().wait()
            finally:
                await both.wait()
            return ""

        busy = Agent("Busy", "", Scripted(lambda messages: [ToolUse("work", {})]), tools=(work,))
        async with desk(App("busy", busy)) as at:
            for _ in range(2):
                await at.say(await at.sessions.create(ADA), "hello")
                await begun.acquire()
            await at.sessions.close()
            assert (both.n_waiting, both.broken) == (0, False), "they met"
            assert await both_ended(at) == ["process.end"] * 2, "the next owner continues their turns"

    async def both_ended(at: Desk) -> list[str]:
        seats = [one.membership for one in (await at.sessions.list_summaries(ADA))[0]]
        return [one.type for seat in seats for one in await at.told(seat, "agent.end", "process.end")]

    play(run)
