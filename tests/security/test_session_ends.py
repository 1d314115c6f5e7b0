"""Row 44: who renames, closes and deletes a session, what stays of it, and what a search finds."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from urllib.parse import quote

import pytest

from tests.security.apps import PNG, Clinging, make, plain
from tests.security.desk import Desk, bearer, desk, run
from turnlog.app import Roles, session_ends
from turnlog.app.membership import Membership
from turnlog.events import SessionClose
from turnlog.log import Log, local_jobs
from turnlog.log.append import plan_rows
from turnlog.server.routes import blobs

ACTIONS = ("rename", "close", "delete")


@asynccontextmanager
async def session_of_ada() -> AsyncIterator[tuple[Desk, str]]:
    """A session of ada's with a guest bob, a file, a title and a turn that waits for the page."""
    async with desk(plain) as at:
        session = await at.session("ada", "plain")
        await at.enrol("ada", session, "bob", "guest")
        uploaded = await at.ask("ada", "POST", f"/api/blobs?session={session}&media_type=image/png", PNG)
        files = [{"blob": uploaded.value["blob"], "name": "plan.png"}]
        await at.post("ada", "/api/send", {"session": session, "message": "hello", "attachments": files})
        await at.told("ada", session, "agent.end")
        await at.post("ada", "/api/sessions/rename", {"session": session, "title": "A secret trip"})
        await at.send("ada", session, "confirm sure?")
        await at.told("ada", session, "tool.await")
        yield at, session


def test_a_title_is_an_event_with_its_author() -> None:
    async def scenario() -> None:
        async with session_of_ada() as (at, session):
            [title] = await at.told("ada", session, "session.title")
            assert (title["payload"], title["actor"]) == ({"title": "A secret trip"}, "ada")
            listed = (await at.get("ada", f"/api/sessions?session={session}")).value["sessions"]
            assert listed[0]["title"] == "A secret trip"

    run(scenario())


def test_a_title_has_some_characters_and_a_repeated_request_gives_it_once() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            session = await at.session("ada", "plain")
            blank = await at.post("ada", "/api/sessions/rename", {"session": session, "title": "  "})
            assert blank.status == 400
            assert (await at.post("ada", "/api/sessions", {"title": " "})).status == 400
            headers = bearer("ada") | {"idempotency-key": "k"}
            path, body = "/api/sessions/rename", {"session": session, "title": " A trip "}
            first, again = [await at.ask(None, "POST", path, body, headers) for _ in range(2)]
            assert (first.status, first.value) == (202, again.value)
            other = body | {"title": "B"}
            assert (await at.ask(None, "POST", path, other, headers)).status == 409
            [title] = [event for event in await at.log("ada", session) if event["type"] == "session.title"]
            assert title["payload"] == {"title": "A trip"}

    run(scenario())


def test_closing_ends_every_turn_and_the_log_stays() -> None:
    async def scenario() -> None:
        async with session_of_ada() as (at, session):
            follower = at.follow("ada", f"session={session}")
            assert (await at.post("ada", "/api/sessions/close", {"session": session})).status == 204
            events = (await follower.end()).events
            ends = [event for event in events if event["type"] == "agent.end"]
            assert ends[-1]["payload"]["stop_reason"] == "cancelled"
            assert [event["type"] for event in events].count("session.close") == 1
            assert (events[-1]["type"], events[-1]["payload"]) == ("session.close", {"by": "ada"})
            assert (await at.post("ada", "/api/send", {"session": session, "message": "hi"})).status == 409
            assert (await at.post("ada", "/api/sessions/close", {"session": session})).status == 204
            [listed] = (await at.get("ada", f"/api/sessions?session={session}")).value["sessions"]
            assert listed["state"] == "closed"
            assert await at.log("ada", session)

    run(scenario())


def test_a_guest_learns_who_closed_the_session_and_why_and_the_log_has_it_once() -> None:
    async def scenario() -> None:
        async with session_of_ada() as (at, session):
            follower = at.follow("bob", f"session={session}")
            body = {"session": session, "reason": "The trip is booked."}
            assert (await at.post("ada", "/api/sessions/close", body)).status == 204
            last = (await follower.end()).events[-1]
            assert (last["type"], last["actor"], last["origin"]) == ("session.close", "ada", "system")
            assert last["payload"] == {"by": "ada", "reason": "The trip is booked."}
            again = await at.post("root", "/api/sessions/close", {"session": session, "reason": "Mine."})
            assert again.status == 204
            log = await at.log("ada", session)
            assert [event["type"] for event in log].count("session.close") == 1
            assert log[-1]["payload"] == last["payload"]
            for reason in ("two\nlines", "", "x" * 501, 7):
                refused = await at.post("ada", "/api/sessions/close", {"session": session, "reason": reason})
                assert refused.status == 400, reason

    run(scenario())


async def post_close(at: Desk, who: str, session: str) -> int:
    """Post the last event of a session as if it were one of a page."""
    events = [{"type": "session.close", "payload": {"by": "ada"}}]
    return (await at.post(who, "/api/events", {"session": session, "events": events})).status


async def is_closed(at: Desk, session: str) -> bool:
    [listed] = (await at.get("ada", f"/api/sessions?session={session}")).value["sessions"]
    return bool(listed["state"] == "closed")


def test_nobody_posts_the_close_of_a_session() -> None:
    async def scenario() -> None:
        async with session_of_ada() as (at, session):
            before = await at.log("ada", session)
            assert [await post_close(at, who, session) for who in ("ada", "bob", "root")] == [400] * 3
            forged = [{"type": "session.close", "id": "evt_1", "payload": {"by": "ada"}}]
            record = {"session": session, "recorder": "r", "events": forged}
            assert (await at.post("worker", "/api/record", record)).status in (400, 403, 409)
            assert not await is_closed(at, session)
            assert await at.log("ada", session) == before

    run(scenario())


def test_a_close_that_passes_as_an_event_of_a_page_is_not_appended(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with session_of_ada() as (at, session):
            monkeypatch.setattr(SessionClose, "ORIGINS", frozenset({"ui"}))
            assert await post_close(at, "bob", session) == 400
            assert not await is_closed(at, session)

    run(scenario())


def test_control_without_both_checks_a_guest_closes_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with session_of_ada() as (at, session):
            monkeypatch.setattr(SessionClose, "ORIGINS", frozenset({"ui"}))
            monkeypatch.setattr(local_jobs, "plan_append", plan_rows)
            assert await post_close(at, "bob", session) == 202
            assert await is_closed(at, session)

    run(scenario())


def test_a_tool_that_does_not_stop_keeps_the_session_open(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(session_ends, "STOP_LIMIT_S", 0.0)
        clinging = Clinging()
        async with desk(make("plain", tools=(clinging.tool(),))) as at:
            session = await at.session("ada", "plain")
            await at.send("ada", session, "cling")
            await clinging.begun.wait()
            refused = await at.post("ada", "/api/sessions/close", {"session": session})
            assert refused.status == 503
            assert (await at.get("ada", f"/api/state?session={session}")).status == 200
            clinging.let_go.set()
            await at.told("ada", session, "agent.end")

    run(scenario())


async def what_is_left(at: Desk, session: str) -> dict[str, int]:
    """Return the status of every way to a session, for its owner and for an operator."""
    paths = {
        "events": f"/api/events?session={session}",
        "log": f"/api/log?session={session}",
        "state": f"/api/state?session={session}",
        "documents": f"/api/documents?session={session}",
        "info": f"/api/sessions?session={session}",
        "durable stream": f"/v1/stream/{session}",
        "ag-ui": f"/ag-ui/plain/{session}",
        "ai-sdk": f"/ai-sdk/plain/chat/{session}",
    }
    found = {}
    for who in ("ada", "bob", "root", "worker"):
        for name, path in paths.items():
            found[f"{name} of {who}"] = (await at.get(who, path)).status
    return found


def test_a_deleted_session_is_404_on_every_way_and_its_data_is_gone(kept: list[Log]) -> None:
    async def scenario() -> None:
        async with session_of_ada() as (at, session):
            log = kept[-1]
            blobs = await log.blob_names(session)
            assert len(blobs) == 1
            follower = at.follow("bob", f"session={session}")
            assert (await at.post("ada", "/api/sessions/delete", {"session": session})).status == 204
            await follower.end()
            assert set((await what_is_left(at, session)).values()) == {404}
            for who in ("ada", "bob", "root"):
                listed = (await at.get(who, "/api/sessions")).value["sessions"]
                assert session not in [item["session_id"] for item in listed]
            record = await log.info(session)
            assert (record.members, record.title, record.is_erased) == ({}, "", True)
            assert await log.blob_names(session) == []
            assert not await log.read(session)
            again = await at.post("ada", "/api/sessions/delete", {"session": session})
            assert again.status == 404

    run(scenario())


async def upload_while_it_is_deleted(at: Desk, session: str) -> int:
    """Begin an upload, delete the session, and send the body then; return the status of the upload."""
    call = at.call("ada", "POST", f"/api/blobs?session={session}&media_type=image/png", PNG)
    call.may_send_body.clear()
    await call.wants_body.wait()
    assert (await at.post("ada", "/api/sessions/delete", {"session": session})).status == 204
    call.may_send_body.set()
    return (await call.end()).status


def test_an_upload_that_ends_after_the_deletion_leaves_nothing(kept: list[Log]) -> None:
    async def scenario() -> None:
        async with session_of_ada() as (at, session):
            assert await upload_while_it_is_deleted(at, session) == 404
            assert await kept[0].blob_names(session) == []

    run(scenario())


def test_control_without_a_second_look_the_upload_stays(
    kept: list[Log], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def look_away(log: Log, session_id: str) -> None: ...

    async def scenario() -> None:
        monkeypatch.setattr(blobs, "refuse_deleted", look_away)
        async with session_of_ada() as (at, session):
            assert await upload_while_it_is_deleted(at, session) == 201
            assert len(await kept[0].blob_names(session)) == 1

    run(scenario())


def test_control_a_session_that_is_closed_only_still_answers(kept: list[Log]) -> None:
    async def scenario() -> None:
        async with session_of_ada() as (at, session):
            await at.post("ada", "/api/sessions/close", {"session": session})
            assert set((await what_is_left(at, session)).values()) <= {200, 204, 403}
            assert await kept[-1].blob_names(session)

    run(scenario())


async def refusals(at: Desk, who: str, session: str) -> list[int]:
    bodies = {"rename": {"session": session, "title": "Mine"}}
    statuses = []
    for action in ACTIONS:
        body = bodies.get(action, {"session": session})
        statuses.append((await at.post(who, f"/api/sessions/{action}", body)).status)
    return statuses


@pytest.mark.parametrize("who", ["ada", "bob", "root"])
def test_the_list_names_exactly_what_the_routes_allow(who: str) -> None:
    async def scenario() -> None:
        async with session_of_ada() as (at, session):
            [info] = (await at.get(who, f"/api/sessions?session={session}")).value["sessions"]
            statuses = await refusals(at, who, session)
            allowed = [name for name, status in zip(ACTIONS, statuses, strict=True) if status < 300]
            assert info["may"] == allowed

    run(scenario())


def test_a_guest_and_a_stranger_end_no_session() -> None:
    async def scenario() -> None:
        async with session_of_ada() as (at, session):
            assert await refusals(at, "bob", session) == [403, 403, 403]
            assert await refusals(at, "cyd", session) == [404, 404, 404]
            assert await refusals(at, "worker", session) == [403, 403, 403]
            assert (await at.get("ada", f"/api/log?session={session}")).status == 200

    run(scenario())


def test_control_a_guest_with_the_right_of_an_owner_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(Membership, "is_owner", True)
        async with session_of_ada() as (at, session):
            assert await refusals(at, "bob", session) == [202, 204, 204]

    run(scenario())


def test_the_creator_deletes_its_session_without_being_an_owner() -> None:
    async def scenario() -> None:
        async with desk(make("shop", Roles(creator=("clerk",)), channels=("clerk",))) as at:
            session = await at.session("ada", "shop")
            await at.enrol("ada", session, "bob", "clerk")
            assert (await at.post("bob", "/api/sessions/delete", {"session": session})).status == 403
            assert (await at.post("ada", "/api/sessions/delete", {"session": session})).status == 204

    run(scenario())


async def search(at: Desk, who: str, text: str) -> list[str]:
    answer = await at.get(who, f"/api/sessions?search={quote(text)}")
    assert answer.status == 200, answer.body
    return [item["title"] for item in answer.value["sessions"]]


def test_a_search_finds_titles_of_own_sessions_only() -> None:
    async def scenario() -> None:
        async with session_of_ada() as (at, _):
            other = await at.session("cyd", "plain")
            await at.post("cyd", "/api/sessions/rename", {"session": other, "title": "A secret plan"})
            assert await search(at, "ada", "SECRET") == ["A secret trip"]
            assert await search(at, "bob", "secret") == ["A secret trip"]
            assert await search(at, "cyd", "secret") == ["A secret plan"]
            assert await search(at, "a", "secret") == []
            assert sorted(await search(at, "root", "secret")) == ["A secret plan", "A secret trip"]
            assert await search(at, "ada", "%") == await search(at, "ada", "plan") == []
            assert (await at.get("ada", f"/api/sessions?search={'x' * 200}")).status == 400

    run(scenario())


def test_control_the_list_of_all_sessions_has_the_title_of_others() -> None:
    async def scenario() -> None:
        async with session_of_ada() as (at, _):
            titles = [item["title"] for item in (await at.get("root", "/api/sessions")).value["sessions"]]
            assert titles == ["A secret trip"]

    run(scenario())


def test_a_link_has_a_name_in_the_list_and_can_be_revoked() -> None:
    async def scenario() -> None:
        async with session_of_ada() as (at, session):
            body = {"session": session, "roles": ["guest"], "name": "for Sarah"}
            link = (await at.post("ada", "/api/links", body)).value
            [listed] = (await at.get("ada", f"/api/invites?session={session}")).value["invites"]
            assert (listed["invite"], listed["name"], listed["roles"]) == (
                link["invite"],
                "for Sarah",
                ["guest"],
            )
            revoked = {"session": session, "invite": link["invite"]}
            assert (await at.post("bob", "/api/invites/revoke", revoked)).status == 403
            assert (await at.post("ada", "/api/invites/revoke", revoked)).status == 202
            assert (await at.get("ada", f"/api/invites?session={session}")).value["invites"] == []
            assert (await at.get(None, link["path"])).status == 403

    run(scenario())
