"""Row 36: who joins the session that an application shares, and who does not."""

import asyncio
from pathlib import Path

import pytest

from tests.security.apps import plain
from tests.security.desk import NAMES, Desk, desk, run
from tests.support.invitations import FORM, redemption
from turnlog import Agent, App
from turnlog.agents import Scripted
from turnlog.app import Principal, Roles, sessions
from turnlog.app.member_changes import MemberChanges
from turnlog.app.sessions import Sessions
from turnlog.events.roles import OWNER
from turnlog.log import SessionRecord
from turnlog.server.auth.authentication import get_identity
from turnlog.server.routes import messages

AGENT = Agent("Julian", "Be brief.", Scripted(lambda _: ["Hello."]))
office = App("office", AGENT, shared_session=True)
club = App("club", AGENT, shared_session=True, roles=Roles(joiner=("visitor",)))

Headers = dict[str, str]


async def greet(at: Desk, who: str | None, headers: Headers | None = None) -> tuple[int, str]:
    """Send a message without a session; return the status, and the session that got it."""
    answer = await at.ask(who, "POST", "/api/send", {"message": f"I am {who}"}, headers)
    return answer.status, answer.value.get("session", "")


async def invited_guest(at: Desk, session: str) -> Headers:
    """Return the headers of a person whom ada's link makes a guest of a session."""
    link = await at.post("ada", "/api/links", {"session": session, "roles": ["guest"]})
    path, body = redemption(link.value["path"])
    redeemed = await at.ask(None, "POST", path, body, {"content-type": FORM})
    return {"cookie": redeemed.header("set-cookie").partition(";")[0]}


async def members(at: Desk, session: str) -> dict[str, list[str]]:
    """Return the roles of the members by name, as the operator sees them."""
    log = await at.log("root", session)
    changes = [event["payload"] for event in log if event["type"] == "session.member"]
    roles = {change["principal"]: change.get("roles", []) for change in changes}
    return {name: held for name, held in roles.items() if held}


def test_two_principals_share_one_session_and_read_each_other() -> None:
    async def scenario() -> None:
        async with desk(office) as at:
            _, session = await greet(at, "ada")
            assert await greet(at, "bob") == (202, session)
            assert await members(at, session) == {"ada": [OWNER], "bob": [OWNER]}
            for who in ("ada", "bob"):
                stream = at.follow(who, "after=-1")
                await stream.word("I am ada")
                await stream.word("I am bob")
                await stream.leave()
            again = await greet(at, "bob")
            assert again == (202, session)
            joins = [event for event in await at.log("root", session) if event["type"] == "session.member"]
            assert len(joins) == 2, "each joins once"

    run(scenario())


def test_first_requests_at_once_make_one_session(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with desk(office, f"sqlite:///{tmp_path}/log.db") as at:
            answers = await asyncio.gather(*[greet(at, who) for who in NAMES for _ in range(3)])
            assert {status for status, _ in answers} == {202}
            [session] = {session for _, session in answers}
            assert set(await members(at, session)) == set(NAMES)
            listed = (await at.get("root", "/api/sessions")).value["sessions"]
            assert [item["session_id"] for item in listed] == [session]

    run(scenario())


def test_control_without_the_lock_and_the_second_look_first_requests_conflict(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class NoLocks(dict[str, asyncio.Lock]):
        def setdefault(self, key: str, default: asyncio.Lock | None = None) -> asyncio.Lock:
            return asyncio.Lock()

    class NeverRaised(Exception):
        pass

    make = Sessions.__init__

    def without_locks(self: Sessions, *args: object, **options: object) -> None:
        make(self, *args, **options)  # type: ignore[arg-type]
        monkeypatch.setattr(self, "_create_locks", NoLocks())

    async def scenario() -> None:
        monkeypatch.setattr(Sessions, "__init__", without_locks)
        monkeypatch.setattr(sessions, "Conflict", NeverRaised)
        async with desk(office, f"sqlite:///{tmp_path}/log.db") as at:
            answers = await asyncio.gather(*[greet(at, who) for who in NAMES])
            assert {status for status, _ in answers} != {202}

    run(scenario())


def test_principal_who_only_knows_the_id_is_no_member() -> None:
    async def scenario() -> None:
        async with desk(office) as at:
            _, session = await greet(at, "ada")
            assert (await at.get("bob", f"/api/events?session={session}")).status == 404
            assert (await at.post("bob", "/api/send", {"session": session, "message": "Hi"})).status == 404
            assert await members(at, session) == {"ada": [OWNER]}

    run(scenario())


def test_those_who_join_get_the_roles_that_the_application_names() -> None:
    async def scenario() -> None:
        async with desk(club) as at:
            _, session = await greet(at, "ada")
            assert await greet(at, "bob") == (202, session)
            assert await members(at, session) == {"ada": [OWNER], "bob": ["visitor"]}
            link = {"session": session, "roles": ["visitor"]}
            assert (await at.post("bob", "/api/links", link)).status == 403
            removal = {"session": session, "principal": "ada", "roles": []}
            assert (await at.post("bob", "/api/members", removal)).status == 403

    run(scenario())


def test_control_without_those_roles_they_may_do_what_the_creator_may() -> None:
    async def scenario() -> None:
        async with desk(office) as at:
            _, session = await greet(at, "ada")
            await greet(at, "bob")
            assert (
                await at.post("bob", "/api/links", {"session": session, "roles": ["guest"]})
            ).status == 201

    run(scenario())


async def guest_of_another_session(at: Desk) -> tuple[str, int, int, int]:
    """Return the shared session, and what a guest of another session gets from it."""
    _, shared = await greet(at, "ada")
    guest = await invited_guest(at, await at.session("ada"))
    sent, _ = await greet(at, None, guest)
    followed = await at.ask(None, "GET", "/api/events?after=-1", None, guest)
    named = await at.ask(None, "GET", f"/api/events?session={shared}", None, guest)
    return shared, sent, followed.status, named.status


def test_guest_of_another_session_does_not_join() -> None:
    async def scenario() -> None:
        async with desk(office) as at:
            shared, *statuses = await guest_of_another_session(at)
            assert statuses == [403, 403, 404]
            assert await members(at, shared) == {"ada": [OWNER]}

    run(scenario())


def test_control_a_guest_who_counts_as_a_creator_joins(monkeypatch: pytest.MonkeyPatch) -> None:
    def anyone(scope: dict[str, object]) -> Principal:
        return get_identity(scope).principal

    async def scenario() -> None:
        monkeypatch.setattr(messages, "get_session_creator", anyone)
        async with desk(office) as at:
            shared, *statuses = await guest_of_another_session(at)
            assert statuses[0] == 202
            assert len(await members(at, shared)) == 2

    run(scenario())


def test_guest_of_the_shared_session_stays_a_guest() -> None:
    async def scenario() -> None:
        async with desk(office) as at:
            _, shared = await greet(at, "ada")
            guest = await invited_guest(at, shared)
            assert (await greet(at, None, guest))[0] == 403
            assert sorted((await members(at, shared)).values()) == [["guest"], [OWNER]]

    run(scenario())


async def removed(at: Desk) -> tuple[str, int, int]:
    """Return the shared session, and what two former members get: one joined, one was invited."""
    _, shared = await greet(at, "ada")
    await greet(at, "bob")
    await at.enrol("ada", shared, "cyd", "guest")
    for name in ("bob", "cyd"):
        await at.enrol("ada", shared, name)
    return shared, (await greet(at, "bob"))[0], (await greet(at, "cyd"))[0]


def test_member_who_was_removed_does_not_join_again() -> None:
    async def scenario() -> None:
        async with desk(office) as at:
            shared, *statuses = await removed(at)
            assert statuses == [403, 403]
            assert await members(at, shared) == {"ada": [OWNER]}
            await at.enrol("ada", shared, "bob", "guest")
            assert await greet(at, "bob") == (202, shared), "an invitation lets him back in"

    run(scenario())


def test_control_without_a_look_into_the_log_who_was_removed_joins_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def never(self: MemberChanges, record: SessionRecord, principal: str) -> bool:
        return False

    async def scenario() -> None:
        monkeypatch.setattr(MemberChanges, "_was_member", never)
        async with desk(office) as at:
            _, *statuses = await removed(at)
            assert statuses == [202, 202]

    run(scenario())


def test_server_roles_bring_nobody_into_the_list_of_members() -> None:
    async def scenario() -> None:
        async with desk(office) as at:
            _, shared = await greet(at, "ada")
            assert await greet(at, "root") == (202, shared)
            assert (await greet(at, "worker"))[0] == 403, "an executor reads"
            assert await members(at, shared) == {"ada": [OWNER], "root": ["operator"]}

    run(scenario())


def test_sessions_of_another_application_stay_with_their_owners() -> None:
    async def scenario() -> None:
        async with desk([plain, office]) as at:
            (_, hers), (_, his) = await greet(at, "ada"), await greet(at, "bob")
            assert hers != his
            assert (await at.get("bob", f"/api/events?session={hers}")).status == 404

    run(scenario())
