"""Row 6: who may not read any more reads no more: open streams end at once and do not come back."""

import asyncio
from typing import Any

import pytest

from tests.security.apps import Clinging, endless, make, plain
from tests.security.desk import Call, Desk, desk, expiring, run
from tests.support.invitations import redemption
from turnlog.app import Membership
from turnlog.server.auth.authentication import get_identity
from turnlog.server.routes import agent, messages, sessions
from turnlog.server.streaming.event_stream import EventStreamRoute
from turnlog.server.streaming.streams import StreamRegistry

QUERIES = ("", "&dialect=blocks", "&types=ui,assistant", "&dialect=blocks-raw&depth=1", "&after=0")
SECRET = "said after bob had to go"


async def shared(at: Desk, app: str) -> str:
    """A session of ada's in which bob is a guest."""
    session = await at.session("ada", app)
    await at.enrol("ada", session, "bob", "guest")
    return session


async def open_streams(at: Desk, session: str, own: str) -> list[Call]:
    """Every kind of stream that bob can have of a session."""
    begun = await at.send("ada", session, "go")
    paths = [f"session={session}{query}" for query in QUERIES]
    paths += [f"session={own},{session}", f"session={session}&turn={begun['turn']}"]
    calls = [at.follow("bob", path) for path in paths]
    for call in calls:
        await call.until(lambda answer: len(answer.body) > 40)
        assert call.answer.status == 200
    return calls


def test_every_stream_ends_when_its_reader_is_no_member_any_more() -> None:
    async def scenario() -> None:
        async with desk([plain, endless]) as at:
            session, own = await shared(at, "endless"), await at.session("bob")
            calls = await open_streams(at, session, own)
            await at.enrol("ada", session, "bob")
            for call in calls:
                await call.end()
            assert (await at.get("bob", f"/api/events?session={session}")).status == 404
            assert (await at.get("bob", f"/api/events?session={own},{session}")).status == 404
            assert (await at.get("bob", f"/api/log?session={session}")).status == 404

    run(scenario())


def test_a_response_ends_as_well_and_the_turn_goes_on() -> None:
    async def scenario() -> None:
        async with desk(endless) as at:
            session = await shared(at, "endless")
            call = at.call("bob", "POST", "/agent/run", {"agent_uuid": session, "user_prompt": "go"})
            await call.word("word")
            await at.enrol("ada", session, "bob")
            assert b"[DONE]" not in (await call.end()).body
            log = await at.log("ada", session)
            assert "agent.end" not in [event["type"] for event in log]

    run(scenario())


def test_a_change_of_roles_ends_streams_of_the_one_who_changed_only() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            session = await shared(at, "plain")
            his, hers = at.follow("bob", f"session={session}"), at.follow("ada", f"session={session}")
            await his.word("session.member")
            await at.enrol("ada", session, "bob", "guest")  # the same again is no change
            await at.send("ada", session, "still here")
            await his.word("still here")
            await at.enrol("ada", session, "bob", "friend")
            await his.end()
            await at.send("ada", session, SECRET)
            await hers.word(SECRET)
            assert SECRET.encode() not in (await hers.leave()).body.partition(b"friend")[0]
            assert SECRET.encode() not in his.answer.body

    run(scenario())


def test_control_a_server_that_does_not_look_goes_on_telling(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(StreamRegistry, "on_members_changed", lambda *_: None)
        async with desk(plain) as at:
            session = await shared(at, "plain")
            call = at.follow("bob", f"session={session}")
            await call.word("session.member")
            await at.enrol("ada", session, "bob")
            await at.send("ada", session, SECRET)
            await call.word(SECRET)
            await call.leave()

    run(scenario())


async def removed_while_a_stop_waits() -> Call:
    """Remove bob, who reads, while the stop of a turn waits for a tool that ignores it."""
    clinging = Clinging()
    async with desk(make(tools=(clinging.tool(),))) as at:
        session = await shared(at, "plain")
        call = at.follow("bob", f"session={session}")
        await at.send("ada", session, "cling")
        await clinging.begun.wait()
        assert (await at.post("ada", "/api/stop", {"session": session})).status == 202
        await call.word('"kind":"stop"')

        await at.enrol("ada", session, "bob")
        await at.send("ada", session, SECRET)
        await call.until(lambda answer: SECRET.encode() in answer.body)
        clinging.let_go.set()
        return call


def test_stream_of_a_removed_member_ends_while_a_stop_waits_for_a_tool() -> None:
    async def scenario() -> None:
        call = await removed_while_a_stop_waits()
        assert call.answer.ended
        assert SECRET.encode() not in call.answer.body

    run(scenario())


def test_control_where_the_log_reports_no_change_the_removed_member_reads_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(StreamRegistry, "on_members_changed", lambda *_: None)
        call = await removed_while_a_stop_waits()
        assert SECRET.encode() in call.answer.body

    run(scenario())


async def spend(at: Desk) -> list[int]:
    """What a guest, who was sent away, gets when it asks for agents and sessions of its own."""
    session = await at.session("ada")
    link = (await at.post("ada", "/api/links", {"session": session, "roles": ["guest"]})).value["path"]
    joined = await at.post(None, *redemption(link))
    cookie = {"cookie": joined.header("set-cookie").partition(";")[0]}
    name = (await at.ask(None, "GET", "/api/me", None, cookie)).value["name"]
    await at.enrol("ada", session, name)
    again = await at.get(None, link)
    assert again.status == 403
    bodies = {"/api/sessions": {}, "/api/send": {"message": "go"}, "/agent/run": {"user_prompt": "go"}}
    return [(await at.ask(None, "POST", path, body, cookie)).status for path, body in bodies.items()]


def test_a_guest_has_the_session_of_its_link_and_makes_none() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            assert await spend(at) == [403, 403, 403]

    run(scenario())


def test_control_guests_that_make_sessions_go_on_at_the_hosts_cost(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        for module in (agent, messages, sessions):
            monkeypatch.setattr(module, "get_session_creator", lambda scope: get_identity(scope).principal)
        async with desk(plain) as at:
            assert await spend(at) == [201, 202, 200]

    run(scenario())


async def late(at: Desk, monkeypatch: pytest.MonkeyPatch) -> Call:
    """A stream whose reader is sent away after it was let in, and before the first byte."""
    session = await shared(at, "plain")
    inside, go = asyncio.Event(), asyncio.Event()
    find_frames = EventStreamRoute._session_frames

    async def find_slowly(route: EventStreamRoute, seat: Membership, *args: Any) -> Any:
        if seat.principal.name == "bob":
            inside.set()
            await go.wait()
        return await find_frames(route, seat, *args)

    monkeypatch.setattr(EventStreamRoute, "_session_frames", find_slowly)
    call = at.follow("bob", f"session={session}")
    await inside.wait()
    await at.enrol("ada", session, "bob")
    await at.send("ada", session, SECRET)
    go.set()
    return call


def test_who_is_sent_away_while_a_stream_begins_gets_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            answer = await (await late(at, monkeypatch)).end()
            assert SECRET.encode() not in answer.body

    run(scenario())


def test_control_a_stream_that_looks_only_before_it_begins_tells(monkeypatch: pytest.MonkeyPatch) -> None:
    async def trusting(*_: object) -> bool:
        return True

    async def scenario() -> None:
        monkeypatch.setattr(StreamRegistry, "is_still_allowed", trusting)
        monkeypatch.setattr(StreamRegistry, "on_members_changed", lambda *_: None)
        async with desk(plain) as at:
            call = await late(at, monkeypatch)
            await call.word(SECRET)
            await call.leave()

    run(scenario())


async def eve_accepts(at: Desk, session: str, header: dict[str, str]) -> None:
    """Eve, who has a token of a provider, becomes a member of ada's session."""
    body = {"session": session, "invite": await at.invite("ada", session, "eve", "guest")}
    assert (await at.ask(None, "POST", "/api/invites/accept", body, header)).status == 202


def test_a_stream_ends_with_the_token_it_was_opened_with() -> None:
    async def scenario() -> None:
        async with desk(plain, verify=expiring(2)) as at:
            session = await at.session("ada")
            header = {"authorization": "Bearer short-eve"}
            await eve_accepts(at, session, header)
            call = at.call(None, "GET", f"/api/events?session={session}", None, header)
            await call.word("session.member")
            await call.end()
            again = await at.ask(None, "GET", f"/api/events?session={session}", None, header)
            assert again.status == 401

    run(scenario())


def test_control_a_stream_whose_token_holds_stays_open() -> None:
    async def scenario() -> None:
        async with desk(plain, verify=expiring(3600)) as at:
            session = await at.session("ada")
            header = {"authorization": "Bearer short-eve"}
            await eve_accepts(at, session, header)
            call = at.call(None, "GET", f"/api/events?session={session}", None, header)
            await call.word("session.member")
            await at.post("ada", "/api/send", {"session": session, "message": "milk"})
            await call.word("milk")
            await call.leave()

    run(scenario())
