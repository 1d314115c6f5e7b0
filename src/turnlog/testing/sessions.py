"""What a store promises about sessions."""

import asyncio

from turnlog.errors import CallerError, Closed, Conflict, NotFound
from turnlog.events import (
    Event,
    Scope,
    SessionInvite,
    SessionInviteEnd,
    SessionMember,
    SessionTitle,
    UiMessage,
    decode,
)
from turnlog.ids import new_id
from turnlog.log import Place, line_of
from turnlog.testing.factories import began, delta, event, note, notes, over
from turnlog.testing.harness import Bench, Make, bench, refused


async def names_of_sessions(make: Make) -> None:
    """A session is called `sess_` and what may stand in a URL; anything else is refused."""
    async with bench(make) as b:
        assert await b.log.create("contract", "sess_A-z_09") == "sess_A-z_09"
        for name in ("", "sess_", "session", "sess_ä", "sess_a/b", "sess_a\n", "sess_" + "x" * 65):
            assert "sess_" in str(await refused(CallerError, b.log.create("contract", name)))


async def closed_refuses(make: Make) -> None:
    """A closed session takes nothing new, stays readable, and still answers a retry."""
    async with bench(make) as b:
        await b.add(*notes("a", "b"))
        await b.log.close_session(b.session)
        await refused(Closed, b.add(note("c")))
        await refused(Closed, b.add(*notes("a", "c")))
        assert await b.add(note("b")) == [1]
        assert (await b.log.info(b.session)).closed
        assert await b.seqs() == [0, 1]


async def closed_ends_followers(make: Make) -> None:
    """Followers of a session end when it is closed and they have read everything; later ones do at once."""
    async with bench(make) as b:
        early = [asyncio.create_task(b.followed(99, after)) for after in (-1, 0, 1)]
        await b.add(*notes("a", "b"))
        await asyncio.gather(b.add(note("c")), b.log.close_session(b.session))
        late = asyncio.create_task(b.followed(99))
        found = [[row.seq for row in await follower] for follower in [*early, late]]
        assert found == [[0, 1, 2], [1, 2], [2], [0, 1, 2]]


async def unknown_session(make: Make) -> None:
    """A session that was never made is not found, and asking does not make it."""
    async with bench(make) as b:
        await refused(NotFound, b.log.info("sess_x"))
        await refused(NotFound, b.log.read("sess_x"))
        await refused(NotFound, b.add(note("a"), session="sess_x"))
        await refused(NotFound, b.log.close_session("sess_x"))
        await refused(NotFound, b.log.prune("sess_x", 0))
        await refused(NotFound, anext(b.log.follow("sess_x")))
        assert [head.session_id for head in await b.log.sessions()] == [b.session]


async def session_list(make: Make) -> None:
    """Sessions are listed, the oldest first; each is made once and has its own epoch."""
    async with bench(make) as b:
        made = [b.session, *[await b.log.create(f"app {number}") for number in range(5)]]
        assert (await refused(Conflict, b.log.create("again", made[2]))).last == -1
        heads = await b.log.sessions()
        assert [head.session_id for head in heads] == made
        assert [head.app for head in heads] == ["contract", *[f"app {number}" for number in range(5)]]
        assert len({head.epoch for head in heads}) == len({head.session_id for head in heads}) == 6


async def sessions_are_independent(make: Make) -> None:
    """Ids, seqs, fences and spans of one session say nothing about another."""
    async with bench(make) as b:
        other = await b.log.create("contract")
        await b.add(began("x"), delta("x"), note("a"), fence=5)
        assert await b.add(note("a", "another text"), over("x"), session=other, fence=1) == [0, 1]
        await b.log.close_session(other)
        assert await b.add(note("b"), fence=5, expected_last=2) == [3]
        assert await b.seqs(origin=-1) == [0, 1, 2, 3]
        assert await b.log.ended(b.session, "x") is None
        for session in (b.session, other):
            found = {decode(line_of(row)).session_id for row in await b.rows(session=session)}
            assert found == {session}


async def heads(make: Make) -> None:
    """A head says first, last, epoch, app and whether it is closed; the epoch stays while nothing is lost."""
    async with bench(make) as b:
        empty = await b.log.info(b.session)
        assert (empty.first, empty.last, empty.closed, empty.app) == (0, -1, False, "contract")
        assert empty.created_ms == b.now_ms
        assert empty.epoch
        await b.add(began("x"), delta("x"), over("x"), fence=3)
        await b.log.prune(b.session, b.now_ms + 1)
        await b.log.close_session(b.session)
        head = await b.log.info(b.session)
        assert (head.first, head.last, head.closed, head.fence) == (0, 2, True, 3)
        assert (head.epoch, head.session_id, head.rank) == (empty.epoch, b.session, 2)


def member(principal: str, *roles: str) -> Event:
    """Somebody's roles."""
    return event(SessionMember(principal=principal, roles=roles), new_id("evt_")[4:])


async def what_events_say(make: Make) -> None:
    """The head knows title, members and last activity from the events; a first message is a title too."""
    async with bench(make) as b:
        await b.add(member("ada", "owner"), event(UiMessage(text="psst", channel="staff"), "secret"))
        head = await b.log.info(b.session)
        assert (head.title, head.members, head.updated_ms) == ("", {"ada": ("owner",)}, b.now_ms)
        b.now_ms += 5
        await b.add(
            event(UiMessage(text=" To\nOslo  and back " + "x" * 100), "first"), member("bob", "guest")
        )
        await b.add(event(UiMessage(text="Rome"), "second"), member("ada", "guest", "owner"))
        head = await b.log.info(b.session)
        assert head.title == "To Oslo and back " + "x" * 63
        assert head.members == {"bob": ("guest",), "ada": ("guest", "owner")}
        assert head.updated_ms == b.now_ms
        b.now_ms -= 100
        await b.add(event(SessionTitle(title="A trip"), "title"), member("bob"))
        head = await b.log.info(b.session)
        assert (head.title, head.members) == ("A trip", {"ada": ("guest", "owner")})
        assert head.updated_ms == b.now_ms + 100
        assert [found.title for found in await b.log.sessions()] == ["A trip"]


async def invites_in_the_head(make: Make) -> None:
    """The head knows the creator and the open invites; one that was used or has ended is open no more."""
    async with bench(make) as b:
        names = ("inv_used", "inv_ended", "inv_open")
        await b.add(member("ada", "owner"), *[invite(name, None) for name in names])
        await b.add(invite("inv_asked", "bob"))
        head = await b.log.info(b.session)
        assert (head.creator, head.members_seq, list(head.invites)) == (
            "ada",
            4,
            ["inv_used", "inv_ended", "inv_open", "inv_asked"],
        )
        assert head.invites["inv_asked"].principal == "bob"
        assert head.invited == {"bob"}
        redeemed = SessionMember(principal="eve", roles=("guest",), invite_id="inv_used")
        ended = SessionInviteEnd(invite_id="inv_ended", reason="revoked")
        await b.add(event(redeemed, "m"), event(ended, "e"))
        head = await b.log.info(b.session)
        assert (head.creator, head.members_seq, list(head.invites)) == ("ada", 6, ["inv_open", "inv_asked"])


async def listed_by_invitation(make: Make) -> None:
    """A person lists the sessions that it is invited to, until the invite is used or ends."""
    async with bench(make) as b:
        other = await b.log.create("contract")
        for number, session in enumerate((b.session, other)):
            b.now_ms += 10_000
            await b.add(member("ada", "owner"), invite(f"inv_{number}", "bob"), session=session)
        found = await b.log.invitations("bob")
        assert [head.session_id for head in found] == [other, b.session]
        assert [head.session_id for head in await b.log.invitations("bob", 1)] == [other]
        assert await listed(b, "bob") == []
        assert await b.log.invitations("ada") == []
        await b.add(event(SessionMember(principal="bob", roles=("guest",), invite_id="inv_0"), "m"))
        await b.add(event(SessionInviteEnd(invite_id="inv_1", reason="declined"), "e"), session=other)
        assert await b.log.invitations("bob") == []
        assert await listed(b, "bob") == [b.session]


async def expected_members(make: Make) -> None:
    """An append that knows of the last change of members is refused after another; messages do not count."""
    async with bench(make) as b:
        await b.add(member("ada", "owner"))
        await b.add(note("a"))
        assert await b.add(member("bob", "guest"), expected_members_seq=0) == [2]
        assert (await refused(Conflict, b.add(member("bob"), expected_members_seq=0))).last == 2
        assert await b.add(member("bob"), expected_members_seq=2) == [3]


def invite(name: str, principal: str | None) -> Event:
    """A link, or an invitation of a principal."""
    made = SessionInvite(invite_id=name, roles=("guest",), expires_ms=1, principal=principal)
    return event(made, f"invite-{name}")


async def listed_by_member(make: Make) -> None:
    """Each member lists its sessions in pages, the last active first; a removed one lists them no more."""
    async with bench(make) as b:
        made = []
        for number in range(5):
            b.now_ms += 10_000
            made.append(await b.log.create("contract"))
            guest = member("bob" if number % 2 else "eve", "guest")
            await b.add(member("ada", "owner"), guest, session=made[-1])
        b.now_ms += 10_000
        await b.add(note("late"), session=made[1])
        order = [made[1], made[4], made[3], made[2], made[0]]
        assert await listed(b, "ada") == await listed(b, "ada", limit=2) == order
        assert await listed(b, "bob", limit=1) == [made[1], made[3]]
        assert await listed(b, None, limit=4) == [*order, b.session]
        assert await listed(b, "zoe") == await listed(b, "") == []
        b.now_ms += 10_000
        await b.add(member("bob"), session=made[3])
        assert (await listed(b, "bob"), (await listed(b, "ada"))[0]) == ([made[1]], made[3])


async def listed_by_what_a_member_sees(make: Make) -> None:
    """What happens in a channel moves a session in the lists of its members and of owners only."""
    async with bench(make) as b:
        other = await b.log.create("contract")
        for session in (b.session, other):
            b.now_ms += 10_000
            members = [member("ada", "owner"), member("bob", "buyer"), member("cyd", "seller")]
            await b.add(*members, session=session)
        b.now_ms += 10_000
        await b.add(event(UiMessage(text="psst"), "secret", Scope(channel="seller")))
        assert await listed(b, "ada") == await listed(b, "cyd") == await listed(b, None) == [b.session, other]
        assert await listed(b, "bob") == [other, b.session]
        b.now_ms += 10_000
        await b.add(note("all"))
        assert await listed(b, "bob") == [b.session, other]


async def listed(b: Bench, principal: str | None, limit: int = 100) -> list[str]:
    """All sessions of a principal, in pages."""
    found: list[str] = []
    after: Place | None = None
    while page := await b.log.listing(principal, after, limit):
        found += [head.session_id for _, head in page]
        after = page[-1][0]
    return found
