"""Row 5, inside a session: a member of one channel never receives a byte of another, by any route."""

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from tests.security.apps import counter, make
from tests.security.desk import Call, Desk, desk, run
from turnlog.app import Membership, Roles
from turnlog.events import CATALOG, Scope, UiMessage
from turnlog.log import Log
from turnlog.state.history import History

DIALECTS = ("turnlog", "blocks", "blocks-xml", "blocks-raw")
WORDS = ("cyd-0f3c", "answer-0f3c", "args-0f3c", "form-0f3c", "name-0f3c")
WAKE = {
    "type": "ui.command",
    "payload": {
        "command": {
            "kind": "wake",
            "agents": [
                {
                    "name": WORDS[4],
                    "color": "",
                    "color_name": "",
                    "seat": 0,
                    "has_soul": True,
                    "has_transcript": True,
                }
            ],
        }
    },
}
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
    """What cyd does in the seller's channel: words, a note, a form, a call that waits, somebody to wake."""
    await at.send("cyd", session, f"say {WORDS[0]} and {WORDS[1]}")
    await at.told("ada", session, "agent.end", 1)
    note = {"type": "case.note", "payload": {"text": WORDS[3]}}
    assert (await at.post("cyd", "/api/events", {"session": session, "events": [note]})).status == 202
    await at.send("cyd", session, "form")
    await at.told("ada", session, "agent.end", 2)
    turn = (await at.send("cyd", session, f"confirm {WORDS[2]}"))["turn"]
    [waiting] = await at.told("ada", session, "tool.await")
    assert (await at.post("cyd", "/api/events", {"session": session, "events": [WAKE]})).status == 202
    return {"turn": turn, "call": waiting["payload"]["calls"][0]["call_id"]}


def queries(session: str) -> Iterator[str]:
    for dialect in DIALECTS:
        yield f"session={session}&dialect={dialect}&{HISTORY}"
        yield f"session={session}&dialect={dialect}&after=2"
        yield f"session={session}&dialect={dialect}&types=ui,assistant,block,tool,agent,case,session"
        yield f"session={session}&dialect={dialect}&depth=3&after=5:wrong"


async def streams(at: Desk, session: str, who: str) -> dict[str, Call]:
    """Every stream somebody can open of a session, of several on one too."""
    calls = {query: at.follow(who, query) for query in queries(session)}
    both = f"session={await at.session(who)},{session}"
    for call in (calls | {both: at.follow(who, both)}).values():
        await call.until(lambda answer: answer.status == 200)
    return calls


async def heard(at: Desk, session: str, who: str) -> dict[str, bytes]:
    """Every byte that somebody gets: live, replayed, as lines, as answers, on every route."""
    live = await streams(at, session, who)
    known = await talk(at, session)
    end = await at.send("ada", session, "say the-end")  # in no channel: everybody hears it
    told = {}
    for when, calls in {"live": live, "replayed": await streams(at, session, who)}.items():
        for query, call in calls.items():
            await call.word("the-end")
            told[f"{when} {query}"] = (await call.leave()).body
    state = f"/api/state?session={session}&include=transcript,meters,open,roster"
    paths = [f"/api/log?session={session}", f"/api/log?session={session}&after=3", state, f"{state}&at=20"]
    paths += ["/api/documents", f"/api/documents?session={session}", "/api/sessions", "/metrics"]
    for path in paths:
        told[path] = (await at.get(who, path)).body
    for whose, turn in {"their": known["turn"], "my": end["turn"]}.items():
        for name in DIALECTS:
            query = f"session={session}&turn={turn}&dialect={name}&{HISTORY}"
            told[f"{whose} turn in {name}"] = (await at.follow(who, query).end()).body
    answered = {"agent_uuid": session, "tool_results": [{"tool_use_id": "none", "content": 1}]}
    told["tool_results"] = (await at.post(who, "/agent/tool_results", answered)).body
    body = {"sessionId": session, "userMessage": "what did they say?"}
    told["chat"] = (await at.post(who, "/api/chat/buyer", body)).body
    for name in DIALECTS:
        asked = {"agent_uuid": session, "user_prompt": "what did they say?"}
        told[f"run {name}"] = (await at.post(who, f"/agent/run?dialect={name}&{HISTORY}", asked)).body
    return told


def leaking(told: dict[str, bytes]) -> list[str]:
    """The ways by which a word of the other channel, or one of its calls, came out."""
    return [path for path, body in told.items() if any(word in body.decode() for word in (*WORDS, "call_"))]


def test_a_buyer_never_hears_a_seller_by_any_route() -> None:
    async def scenario() -> None:
        async with market() as (at, session):
            told = await heard(at, session, "bob")
            assert leaking(told) == []
            assert not [path for path, body in told.items() if b'"channel":"seller"' in body]

    run(scenario())


def test_a_team_is_told_to_its_channel_and_the_owner_alone() -> None:
    async def scenario() -> None:
        async with market() as (at, session):
            wake = {"session": session, "events": [WAKE]}
            assert (await at.post("cyd", "/api/events", wake)).status == 202
            path = f"/api/state?session={session}&include=roster"
            told = {who: (await at.get(who, path)).body.decode() for who in ("ada", "bob", "cyd")}
            assert [WORDS[4] in told[who] for who in ("ada", "bob", "cyd")] == [True, False, True]

    run(scenario())


def test_control_who_sees_every_channel_hears_every_word(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with market() as (at, session):
            monkeypatch.setattr(Membership, "visible_channels", property(lambda seat: None))
            told = await heard(at, session, "bob")
            silent = {path for path in told if path not in leaking(told)}
            own = {path for path in told if path.startswith(("run ", "my turn"))}
            assert silent == {"/api/sessions", "/metrics"} | own  # their conversations are kept apart as well

    run(scenario())


def test_control_with_one_conversation_for_all_responses_tell_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(History, "_channel_key", staticmethod(lambda channel: ""))
        async with market() as (at, session):
            monkeypatch.setattr(Membership, "visible_channels", property(lambda seat: None))
            told = await heard(at, session, "bob")
            assert {"run blocks", "run blocks-xml", "run blocks-raw"} <= set(leaking(told))

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
            for role in ("seller", "owner", "nowhere"):
                body = {"sessionId": session, "userMessage": "hi"}
                assert (await at.post("bob", f"/api/chat/{role}", body)).status == 404
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


STOP = {"type": "ui.command", "payload": {"command": {"kind": "stop"}}}


async def stopped_by(at: Desk, session: str, who: str, *roles: str) -> list[str]:
    """The channels of bob's and cyd's turns, which wait, that end when somebody with roles stops them."""
    for name in ("bob", "cyd"):
        await at.send(name, session, "confirm it")
    waiting = await at.told("ada", session, "tool.await", 2)
    await at.enrol("ada", session, who, *roles)
    named = {"command": {"kind": "stop", "turn": waiting[1]["trace_id"]}}  # cyd's
    events = [STOP, {"type": "ui.command", "payload": named}]
    assert (await at.post(who, "/api/stop", {"session": session})).status == 202
    assert (await at.post(who, "/api/events", {"session": session, "events": events})).status == 202
    last = await at.send("ada", session, "say the-end")  # its turn comes when the stops were carried out
    await at.follow("ada", f"session={session}&turn={last['turn']}").word("the-end")
    ends = [event for event in await at.log("ada", session) if event["type"] == "agent.end"]
    return sorted(event["channel"] for event in ends if event["payload"]["stop_reason"] == "cancelled")


@pytest.mark.parametrize(
    ("roles", "reached"),
    [
        (["buyer"], ["buyer"]),
        (["buyer", "clerk"], ["buyer"]),
        (["clerk"], []),
        (["buyer", "seller"], ["buyer", "seller"]),
        (["owner"], ["buyer", "seller"]),
        (["buyer", "owner"], ["buyer", "seller"]),
    ],
)
def test_nobody_stops_a_turn_of_another_channel(roles: list[str], reached: list[str]) -> None:
    async def scenario() -> None:
        async with market() as (at, session):
            assert await stopped_by(at, session, "bob", *roles) == reached

    run(scenario())


def test_control_a_stop_that_is_in_no_channel_ends_every_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with market() as (at, session):
            monkeypatch.setattr(Membership, "stoppable_channels", property(lambda seat: (None,)))
            assert await stopped_by(at, session, "bob", "buyer") == ["buyer", "seller"]

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
    async def scenario() -> None:
        monkeypatch.setattr(Membership, "_may_grant", lambda *_: True)
        monkeypatch.setattr(Membership, "is_protected", lambda *_: False)
        async with desk(MAKER) as at:
            assert await climb(at) == [202, 202, 202, 201]

    run(scenario())


async def mixed(at: Desk, session: str, kept: list[Log]) -> list[str]:
    """The dialects in which a turn of bob's tells what somebody put into it for the other channel."""
    turn = (await at.send("bob", session, "hello"))["turn"]
    await at.told("ada", session, "agent.end")
    aside = UiMessage(text=WORDS[0], channel="seller")
    scope = Scope(trace_id=turn, channel="seller")
    await kept[-1].append(session, [CATALOG.build_event(aside, id="evt_aside", origin="app", scope=scope)])
    found = []
    for name in DIALECTS:
        call = at.follow("bob", f"session={session}&turn={turn}&dialect={name}")
        found += [name] if WORDS[0].encode() in (await call.end()).body else []
    return found


def test_a_turn_tells_nothing_of_another_channel_even_if_it_holds_some(kept: list[Log]) -> None:
    async def scenario() -> None:
        async with market() as (at, session):
            assert await mixed(at, session, kept) == []

    run(scenario())


def test_control_a_turn_told_whole_tells_it(kept: list[Log], monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with market() as (at, session):
            monkeypatch.setattr(Membership, "visible_channels", property(lambda _: None))
            assert "turnlog" in await mixed(at, session, kept)

    run(scenario())
