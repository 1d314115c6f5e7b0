"""Row 5: what is somebody else's is not there: the same 404 as for what does not exist, on every route."""

import re
from typing import Any

import pytest

from tests.security.apps import plain
from tests.security.desk import Answer, Desk, desk, run
from tests.security.routes import FOR_SOURCES, MISSING, Ask, Known, asks, every_route, own
from tests.support.invitations import redemption
from turnlog.app import App, Membership, Principal, member_changes, sessions
from turnlog.events.roles import OWNER
from turnlog.log import Blob, Log, SessionRecord
from turnlog.server.routes import messages

DIALECTS = ("turnlog", "blocks", "blocks-xml", "blocks-raw")
CANARY = "canary-7f3a"


def shown(answer: Answer, session: str) -> tuple[int, bytes, list[tuple[str, str]]]:
    """What somebody learns of a session: everything but its own name."""
    headers = [(name, value) for name, value in answer.headers if name != "content-length"]
    return answer.status, answer.body.replace(session.encode(), b"SESSION"), headers


def named(known: Known) -> list[Ask]:
    """Every request that names a session, and every way to ask for a stream of it."""
    found = [ask for ask in asks(known).values() if ask.names]
    streams = [f"dialect={name}&after={at}" for name in DIALECTS for at in ("", "-1", "5", "99:wrong")]
    streams += [f"turn={known.turn}", "types=tool", "depth=0", f"turn={known.turn}&dialect=blocks"]
    more = [Ask("stream", "GET", f"/api/events?session={known.session}&{query}") for query in streams]
    return found + more


async def probe(at: Desk, who: str, ask: Ask) -> Answer:
    return await at.ask(who, ask.method, ask.path, ask.body, {"idempotency-key": "k1"})


def test_a_foreign_session_is_not_there_on_any_route() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            hers = await own(at, "ada")
            his = await own(at, "bob")
            before = await at.log("ada", hers.session)
            missing = hers._replace(session=MISSING)
            pairs = list(zip(named(hers), named(missing), strict=True))
            assert len({ask.route for ask, _ in pairs}) == 30
            for foreign, nowhere in pairs:
                told = shown(await probe(at, "bob", foreign), hers.session)
                assert told == shown(await probe(at, "bob", nowhere), MISSING), foreign
                assert told[0] == 404, foreign
            both = await at.get("bob", f"/api/events?session={his.session},{hers.session}")
            none = await at.get("bob", f"/api/events?session={his.session},{MISSING}")
            assert shown(both, hers.session) == shown(none, MISSING)
            assert both.status == 404
            assert await at.log("ada", hers.session) == before

    run(scenario())


def test_control_if_everybody_had_a_seat_every_route_would_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    def seat_for_all(principal: Principal, head: SessionRecord, app: App) -> Membership:
        return Membership(head, app, principal, frozenset({OWNER}))

    async def scenario() -> None:
        async with desk(plain) as at:
            monkeypatch.setattr(sessions, "membership_of", seat_for_all)
            monkeypatch.setattr(member_changes, "membership_of", seat_for_all)
            asks = [ask for ask in await every_route(at, "ada") if ask.names]
            granted = [ask for ask in asks if ask.route not in FOR_SOURCES]
            for ask in granted:
                assert (await at.ask("bob", ask.method, ask.path, ask.body)).status < 400, ask

    run(scenario())


def test_lists_and_counters_name_nobody_elses_sessions() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            hers = await own(at, "ada")
            his = await at.session("bob")
            for path in ("/api/sessions", "/api/me", "/metrics", "/openapi.json", "/", "/healthz"):
                assert hers.session.encode() not in (await at.get("bob", path)).body, path
            listed = (await at.get("bob", "/api/sessions")).value["sessions"]
            assert [one["session_id"] for one in listed] == [his]
            everything = await at.get("root", "/api/sessions")  # control: who may see it finds it there
            assert hers.session.encode() in everything.body

    run(scenario())


def test_what_belongs_to_a_foreign_session_is_not_found_from_ones_own() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            hers, his = await own(at, "ada"), await own(at, "bob")
            made = await at.session("bob")
            for path, wanted, nothing in (
                (f"/api/blobs/{made}/", hers.blob, "0" * 64),
                (f"/api/events?session={made}&turn=", hers.turn, "tr_0"),
            ):
                foreign = await at.get("bob", path + wanted)
                nowhere = await at.get("bob", path + nothing)
                assert (foreign.status, nowhere.status) == (404, 404)
                told = re.sub(f"{made}/[0-9a-f]*|tr_[0-9a-f-]*", "it", foreign.body.decode())
                assert told == re.sub(f"{made}/[0-9a-f]*|tr_[0-9a-f-]*", "it", nowhere.body.decode())
            result = {"call_id": hers.call, "tool": "confirm", "ok": True, "result": True}
            body = {"session": his.session, "events": [{"type": "tool.result", "payload": result}]}
            assert (await at.post("bob", "/api/events", body)).status == 404
            answers = [{"tool_use_id": hers.call, "content": True}]
            asked = {"agent_uuid": his.session, "tool_results": answers}
            refused = await at.post("bob", "/agent/tool_results", asked)
            assert refused.status == 409
            assert hers.call.encode() not in refused.body

    run(scenario())


def test_control_blobs_that_are_known_by_their_hash_alone_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    get_blob = Log.get_blob

    async def scenario() -> None:
        async with desk(plain) as at:
            hers, made = await own(at, "ada"), await at.session("bob")

            async def anywhere(log: Log, name: str) -> Blob:
                return await get_blob(log, f"{hers.session}/{name.rpartition('/')[2]}")

            monkeypatch.setattr(Log, "get_blob", anywhere)
            assert (await at.get("bob", f"/api/blobs/{made}/{hers.blob}")).status == 200

    run(scenario())


def test_an_id_is_made_by_the_server_and_never_taken_from_a_client() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            for body in ({"session_id": "sess_mine"}, {"session": "sess_mine"}, {"id": "sess_mine"}):
                assert (await at.post("bob", "/api/sessions", body)).status == 400
            for session in ("sess_mine", "", "../x", "sess_" + "x" * 500):
                assert (await at.post("bob", "/api/send", {"session": session, "message": "x"})).status == 404
            for name, status in (("sess_mine", 404), ("sess_" + "x" * 500, 404), ("../x", 400)):
                run_body = {"agent_uuid": name, "user_prompt": "x"}
                assert (await at.post("bob", "/agent/run", run_body)).status == status
            for name in ("mine", ""):  # a name of the client's own is an alias, and no session id
                answer = await at.post("bob", "/agent/run", {"agent_uuid": name, "user_prompt": "x"})
                session = dict(answer.headers)["turnlog-session"]
                assert (answer.status, session.startswith("sess_"), "mine" in session) == (200, True, False)
            made = {await at.session("bob") for _ in range(50)}
            assert len({name[-16:] for name in made}) == 50

    run(scenario())


async def collide(at: Desk) -> tuple[Any, Any]:
    """Two members of one session whose names and keys could be taken for one another."""
    session = await at.session("a")
    await at.enrol("a", session, "a:b", "owner")
    keys = {"a": "b:x", "a:b": "x"}
    first, second = [
        await at.post(
            who, "/api/send", {"session": session, "message": f"from {who}"}, **{"idempotency-key": key}
        )
        for who, key in keys.items()
    ]
    return first, second


def test_the_same_key_of_two_people_is_two_keys() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            first, second = await collide(at)
            assert (first.status, second.status) == (202, 202)
            assert first.value["id"] != second.value["id"]

    run(scenario())


def test_control_keys_that_are_only_joined_collide(monkeypatch: pytest.MonkeyPatch) -> None:
    def joined(sender: str, key: str | None) -> str:
        return "evt_" + f"{sender.partition(':')[2]}:{key}".encode().hex()

    async def scenario() -> None:
        async with desk(plain) as at:
            monkeypatch.setattr(messages, "make_idempotent_event_id", joined)
            first, second = await collide(at)
            assert (first.status, second.status) == (202, 409)

    run(scenario())


def test_a_guest_sees_the_session_of_its_link_and_no_other() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            hers, other = await own(at, "ada"), await own(at, "ada")
            joined = await at.post(None, *redemption(hers.link))
            cookie = joined.header("set-cookie").partition(";")[0]
            assert joined.header("location") == f"/talk/{hers.session}"

            async def log_of(session: str) -> int:
                path = f"/api/log?session={session}"
                return (await at.ask(None, "GET", path, None, {"cookie": cookie})).status

            assert [await log_of(name) for name in (hers.session, other.session)] == [200, 404]
            member = {"session": hers.session, "principal": "bob", "roles": ["owner"]}
            refused = await at.ask(None, "POST", "/api/members", member, {"cookie": cookie})
            assert refused.status == 403

    run(scenario())
