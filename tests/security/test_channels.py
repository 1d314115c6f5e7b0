"""Row 5, inside a session: a member of one channel never receives a byte of another, by any route."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from starlette.requests import Request

from tests.security.apps import counter, make
from tests.security.desk import Desk, desk, run
from turnlog.app import Roles, Seat
from turnlog.server import signin
from turnlog.server.entry import known_of

DIALECTS = ("turnlog", "blocks", "blocks-xml", "blocks-raw")
WORDS = ("cyd-0f3c", "answer-0f3c", "args-0f3c", "form-0f3c")
HISTORY = "stream_meta_history_and_tool_results=true"


@asynccontextmanager
async def market() -> AsyncIterator[tuple[Desk, str]]:
    """Ada's market: bob buys, cyd sells. They do not hear each other."""
    async with desk(counter) as at:
        session = await at.session("ada")
        await at.enrol("ada", session, "bob", "buyer")
        await at.enrol("ada", session, "cyd", "seller")
        yield at, session


async def talk(at: Desk, session: str) -> dict[str, str]:
    """What cyd does in the seller's channel: words, a note, a picture, a form, a call that waits."""
    await at.send("cyd", session, f"say {WORDS[0]} and {WORDS[1]}")
    await at.told("ada", session, "agent.end", 1)
    note = {"type": "case.note", "payload": {"text": WORDS[3]}}
    assert (await at.post("cyd", "/api/events", {"session": session, "events": [note]})).status == 202
    await at.send("cyd", session, "form")
    await at.told("ada", session, "agent.end", 2)
    turn = (await at.send("cyd", session, f"confirm {WORDS[2]}"))["turn"]
    [waiting] = await at.told("ada", session, "tool.await")
    return {"turn": turn, "call": waiting["payload"]["calls"][0]["call_id"]}


def queries(session: str) -> Iterator[str]:
    for dialect in DIALECTS:
        yield f"session={session}&dialect={dialect}&{HISTORY}"
        yield f"session={session}&dialect={dialect}&after=2"
        yield f"session={session}&dialect={dialect}&types=ui,assistant,block,tool,agent,case,session"
        yield f"session={session}&dialect={dialect}&depth=3&after=wrong:5"


async def heard(at: Desk, session: str, who: str) -> bytes:
    """Every byte that somebody gets: live, replayed, as lines, as answers, on every route."""
    live = [at.follow(who, query) for query in queries(session)]
    own = await at.session(who)
    live.append(at.follow(who, f"session={own},{session}"))
    for call in live:
        await call.until(lambda answer: answer.status == 200)
    known = await talk(at, session)
    end = await at.send("ada", session, "say the-end")  # in no channel: everybody hears it
    replayed = [at.follow(who, query) for query in queries(session)]
    for call in (*live, *replayed):
        await call.word("the-end")
    bodies = [(await call.leave()).body for call in (*live, *replayed)]
    paths = [
        f"/api/log?session={session}",
        f"/api/log?session={session}&after=3",
        "/api/sessions",
        "/metrics",
    ]
    for turn in (known["turn"], end["turn"]):
        paths += [f"/api/events?session={session}&turn={turn}&dialect={name}&{HISTORY}" for name in DIALECTS]
    for path in paths:
        call = at.call(who, "GET", path)
        bodies.append((await call.end()).body)
    answered = {"agent_uuid": session, "tool_results": [{"tool_use_id": "none", "content": 1}]}
    bodies.append((await at.post(who, "/agent/tool_results", answered)).body)
    for name in DIALECTS:
        asked = {"agent_uuid": session, "user_prompt": "what did they say?"}
        bodies.append((await at.post(who, f"/agent/run?dialect={name}&{HISTORY}", asked)).body)
    return b"\n".join(bodies)


def test_a_buyer_never_hears_a_seller_by_any_route() -> None:
    async def scenario() -> None:
        async with market() as (at, session):
            told = await heard(at, session, "bob")
            assert b"the-end" in told
            assert not [word for word in WORDS if word.encode() in told]
            assert b"call_" not in told
            assert b'"seller"' not in told.replace(b'"roles":["seller"]', b"")

    run(scenario())


def test_control_who_sees_every_channel_hears_every_word(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with market() as (at, session):
            monkeypatch.setattr(Seat, "sees", property(lambda seat: None))
            told = await heard(at, session, "bob")
            assert [word for word in WORDS if word.encode() in told] == list(WORDS)
            assert b"call_" in told

    run(scenario())


def test_nobody_answers_or_reads_what_waits_in_another_channel() -> None:
    async def scenario() -> None:
        async with market() as (at, session):
            known = await talk(at, session)
            before = await at.log("ada", session)

            async def post(who: str, call: str) -> tuple[int, bytes]:
                result = {"call_id": call, "tool": "confirm", "ok": True, "result": True}
                body = {"session": session, "events": [{"type": "tool.result", "payload": result}]}
                answer = await at.post(who, "/api/events", body)
                return answer.status, answer.body.replace(call.encode(), b"CALL")

            assert await post("bob", known["call"]) == await post("bob", "call_0")
            turn = await at.get("bob", f"/api/events?session={session}&turn={known['turn']}")
            none = await at.get("bob", f"/api/events?session={session}&turn=tr_0")
            assert (turn.status, none.status) == (404, 404)
            results = [{"tool_use_id": known["call"], "content": True}]
            refused = await at.post(
                "bob", "/agent/tool_results", {"agent_uuid": session, "tool_results": results}
            )
            assert refused.status == 409
            assert known["call"].encode() not in refused.body
            for channel in ("seller", "owner", "nowhere"):
                body = {"session": session, "message": "hi", "channel": channel}
                assert (await at.post("bob", "/api/send", body)).status == 400
            assert await at.log("ada", session) == before
            assert (await post("cyd", known["call"]))[0] == 202  # control: who is in the channel may

    run(scenario())


def test_a_message_in_one_channel_takes_nothing_from_another() -> None:
    async def scenario() -> None:
        async with market() as (at, session):
            await talk(at, session)
            response = await at.post("bob", "/agent/run", {"agent_uuid": session, "user_prompt": "hello"})
            assert b"hello" in response.body
            assert response.body.endswith(b"[DONE]\n\n")
            results = [event for event in await at.log("ada", session) if event["type"] == "tool.result"]
            assert "CANCELLED" not in str(results)  # what waits for cyd still waits

    run(scenario())


MAKER = make("shop", Roles(creator=("buyer",)), channels=("buyer", "seller"))


async def climb(at: Desk) -> list[int]:
    """Bob makes a session and is a buyer in it; what he gets when he asks to be more."""
    session = await at.session("bob")
    await at.enrol("root", session, "cyd", "seller")
    asked: list[tuple[str, list[str]]] = [("bob", ["buyer", "owner"]), ("bob", ["seller"]), ("cyd", [])]
    statuses = []
    for name, roles in asked:
        body = {"session": session, "principal": name, "roles": roles}
        statuses.append((await at.post("bob", "/api/members", body)).status)
    link = await at.post("bob", "/api/links", {"session": session, "roles": ["seller"]})
    return [*statuses, link.status]


def test_who_makes_a_session_cannot_give_roles_beyond_its_own() -> None:
    async def scenario() -> None:
        async with desk(MAKER) as at:
            assert await climb(at) == [403, 403, 403, 403]
            session = await at.session("bob")
            await at.enrol("bob", session, "ada", "buyer")
            await at.enrol("bob", session, "ada")

    run(scenario())


def test_control_a_server_that_asks_only_for_a_seat_gives_them(monkeypatch: pytest.MonkeyPatch) -> None:
    async def anyone(
        self: signin.SignIn, request: Request, session_id: str, roles: object, principal: str = ""
    ) -> Seat:
        known = known_of(request.scope)
        return await self._sessions().seat(known.principal, session_id)

    async def scenario() -> None:
        monkeypatch.setattr(signin.SignIn, "_owner", anyone)
        async with desk(MAKER) as at:
            assert await climb(at) == [202, 202, 202, 201]

    run(scenario())
