"""What a store promises about sessions."""

import asyncio

from turnlog.errors import CallerError, Conflict, NotFound, SessionClosed
from turnlog.events import (
    Event,
    Scope,
    SessionInvite,
    SessionInviteEnd,
    SessionMember,
    SessionTitle,
    UiMessage,
    decode_envelope,
)
from turnlog.ids import new_id
from turnlog.log import ListPosition, envelope_json
from turnlog.testing.factories import (
    block_delta_event,
    block_end_event,
    block_start_event,
    durable_event,
    durable_events,
    make_event,
)
from turnlog.testing.harness import LogHarness, StoreFactory, expect_raises, open_harness


async def session_id_format(make: StoreFactory) -> None:
    """A session is called `sess_` and what may stand in a URL; anything else is refused."""
    async with open_harness(make) as b:
        assert await b.log.create("contract", "sess_A-z_09") == "sess_A-z_09"
        for name in ("", "sess_", "session", "sess_ä", "sess_a/b", "sess_a\n", "sess_" + "x" * 65):
            assert "sess_" in str(await expect_raises(CallerError, b.log.create("contract", name)))


async def closed_session_rejects_events(make: StoreFactory) -> None:
    """A closed session takes nothing new, stays readable, and still answers a retry."""
    async with open_harness(make) as b:
        await b.append(*durable_events("a", "b"))
        await b.log.close_session(b.session)
        await expect_raises(SessionClosed, b.append(durable_event("c")))
        await expect_raises(SessionClosed, b.append(*durable_events("a", "c")))
        assert await b.append(durable_event("b")) == [1]
        assert (await b.log.info(b.session)).closed
        assert await b.read_seqs() == [0, 1]


async def close_ends_followers(make: StoreFactory) -> None:
    """Followers of a session end when it is closed and they have read everything; later ones do at once."""
    async with open_harness(make) as b:
        early = [asyncio.create_task(b.follow_until(99, after)) for after in (-1, 0, 1)]
        await b.append(*durable_events("a", "b"))
        await asyncio.gather(b.append(durable_event("c")), b.log.close_session(b.session))
        late = asyncio.create_task(b.follow_until(99))
        found = [[row.seq for row in await follower] for follower in [*early, late]]
        assert found == [[0, 1, 2], [1, 2], [2], [0, 1, 2]]


async def unknown_session(make: StoreFactory) -> None:
    """A session that was never made is not found, and asking does not make it."""
    async with open_harness(make) as b:
        await expect_raises(NotFound, b.log.info("sess_x"))
        await expect_raises(NotFound, b.log.read("sess_x"))
        await expect_raises(NotFound, b.append(durable_event("a"), session="sess_x"))
        await expect_raises(NotFound, b.log.close_session("sess_x"))
        await expect_raises(NotFound, b.log.prune("sess_x", 0))
        await expect_raises(NotFound, anext(b.log.follow("sess_x")))
        assert [head.session_id for head in await b.log.sessions()] == [b.session]


async def session_list(make: StoreFactory) -> None:
    """Sessions are listed, the oldest first; each is made once and has its own epoch."""
    async with open_harness(make) as b:
        made = [b.session, *[await b.log.create(f"app {number}") for number in range(5)]]
        assert (await expect_raises(Conflict, b.log.create("again", made[2]))).last == -1
        heads = await b.log.sessions()
        assert [head.session_id for head in heads] == made
        assert [head.app for head in heads] == ["contract", *[f"app {number}" for number in range(5)]]
        assert len({head.epoch for head in heads}) == len({head.session_id for head in heads}) == 6


async def sessions_are_independent(make: StoreFactory) -> None:
    """Ids, seqs, fences and spans of one session say nothing about another."""
    async with open_harness(make) as b:
        other = await b.log.create("contract")
        await b.append(block_start_event("x"), block_delta_event("x"), durable_event("a"), fence=5)
        assert await b.append(
            durable_event("a", "another text"), block_end_event("x"), session=other, fence=1
        ) == [0, 1]
        await b.log.close_session(other)
        assert await b.append(durable_event("b"), fence=5, expected_last=2) == [3]
        assert await b.read_seqs(replay_from=-1) == [0, 1, 2, 3]
        assert await b.log.closing_event(b.session, "x") is None
        for session in (b.session, other):
            found = {
                decode_envelope(envelope_json(row)).session_id for row in await b.read_rows(session=session)
            }
            assert found == {session}


async def session_record(make: StoreFactory) -> None:
    """A head says first, last, epoch, app and whether it is closed; the epoch stays while nothing is lost."""
    async with open_harness(make) as b:
        empty = await b.log.info(b.session)
        assert (empty.first, empty.last, empty.closed, empty.app) == (0, -1, False, "contract")
        assert empty.created_ms == b.now_ms
        assert empty.epoch
        await b.append(block_start_event("x"), block_delta_event("x"), block_end_event("x"), fence=3)
        await b.log.prune(b.session, b.now_ms + 1)
        await b.log.close_session(b.session)
        head = await b.log.info(b.session)
        assert (head.first, head.last, head.closed, head.fence) == (0, 2, True, 3)
        assert (head.epoch, head.session_id, head.durable_count) == (empty.epoch, b.session, 2)


def member_event(principal: str, *roles: str) -> Event:
    """Somebody's roles."""
    return make_event(SessionMember(principal=principal, roles=roles), new_id("evt_")[4:])


async def record_follows_events(make: StoreFactory) -> None:
    """The head knows title, members and last activity from the events; a first message is a title too."""
    async with open_harness(make) as b:
        await b.append(
            member_event("ada", "owner"), make_event(UiMessage(text="psst", channel="staff"), "secret")
        )
        head = await b.log.info(b.session)
        assert (head.title, head.members, head.updated_ms) == ("", {"ada": ("owner",)}, b.now_ms)
        b.now_ms += 5
        await b.append(
            make_event(UiMessage(text=" To\nOslo  and back " + "x" * 100), "first"),
            member_event("bob", "guest"),
        )
        await b.append(make_event(UiMessage(text="Rome"), "second"), member_event("ada", "guest", "owner"))
        head = await b.log.info(b.session)
        assert head.title == "To Oslo and back " + "x" * 63
        assert head.members == {"bob": ("guest",), "ada": ("guest", "owner")}
        assert head.updated_ms == b.now_ms
        b.now_ms -= 100
        await b.append(make_event(SessionTitle(title="A trip"), "title"), member_event("bob"))
        head = await b.log.info(b.session)
        assert (head.title, head.members) == ("A trip", {"ada": ("guest", "owner")})
        assert head.updated_ms == b.now_ms + 100
        assert [found.title for found in await b.log.sessions()] == ["A trip"]


async def record_tracks_invites(make: StoreFactory) -> None:
    """The head knows the creator and the open invites; one that was used or has ended is open no more."""
    async with open_harness(make) as b:
        names = ("inv_used", "inv_ended", "inv_open")
        await b.append(member_event("ada", "owner"), *[invite_event(name, None) for name in names])
        await b.append(invite_event("inv_asked", "bob"))
        head = await b.log.info(b.session)
        assert (head.creator, head.members_seq, list(head.invites)) == (
            "ada",
            4,
            ["inv_used", "inv_ended", "inv_open", "inv_asked"],
        )
        assert head.invites["inv_asked"].principal == "bob"
        assert head.invited_principals == {"bob"}
        redeemed = SessionMember(principal="eve", roles=("guest",), invite_id="inv_used")
        ended = SessionInviteEnd(invite_id="inv_ended", reason="revoked")
        await b.append(make_event(redeemed, "m"), make_event(ended, "e"))
        head = await b.log.info(b.session)
        assert (head.creator, head.members_seq, list(head.invites)) == ("ada", 6, ["inv_open", "inv_asked"])


async def list_by_invitation(make: StoreFactory) -> None:
    """A person lists the sessions that it is invited to, until the invite is used or ends."""
    async with open_harness(make) as b:
        other = await b.log.create("contract")
        for number, session in enumerate((b.session, other)):
            b.now_ms += 10_000
            await b.append(
                member_event("ada", "owner"), invite_event(f"inv_{number}", "bob"), session=session
            )
        found = await b.log.invitations("bob")
        assert [head.session_id for head in found] == [other, b.session]
        assert [head.session_id for head in await b.log.invitations("bob", 1)] == [other]
        assert await list_all_pages(b, "bob") == []
        assert await b.log.invitations("ada") == []
        await b.append(make_event(SessionMember(principal="bob", roles=("guest",), invite_id="inv_0"), "m"))
        await b.append(make_event(SessionInviteEnd(invite_id="inv_1", reason="declined"), "e"), session=other)
        assert await b.log.invitations("bob") == []
        assert await list_all_pages(b, "bob") == [b.session]


async def expected_members_seq(make: StoreFactory) -> None:
    """An append that knows of the last change of members is refused after another; messages do not count."""
    async with open_harness(make) as b:
        await b.append(member_event("ada", "owner"))
        await b.append(durable_event("a"))
        assert await b.append(member_event("bob", "guest"), expected_members_seq=0) == [2]
        assert (
            await expect_raises(Conflict, b.append(member_event("bob"), expected_members_seq=0))
        ).last == 2
        assert await b.append(member_event("bob"), expected_members_seq=2) == [3]


def invite_event(name: str, principal: str | None) -> Event:
    """A link, or an invitation of a principal."""
    made = SessionInvite(invite_id=name, roles=("guest",), expires_ms=1, principal=principal)
    return make_event(made, f"invite-{name}")


async def list_by_member(make: StoreFactory) -> None:
    """Each member lists its sessions in pages, the last active first; a removed one lists them no more."""
    async with open_harness(make) as b:
        made = []
        for number in range(5):
            b.now_ms += 10_000
            made.append(await b.log.create("contract"))
            guest = member_event("bob" if number % 2 else "eve", "guest")
            await b.append(member_event("ada", "owner"), guest, session=made[-1])
        b.now_ms += 10_000
        await b.append(durable_event("late"), session=made[1])
        order = [made[1], made[4], made[3], made[2], made[0]]
        assert await list_all_pages(b, "ada") == await list_all_pages(b, "ada", limit=2) == order
        assert await list_all_pages(b, "bob", limit=1) == [made[1], made[3]]
        assert await list_all_pages(b, None, limit=4) == [*order, b.session]
        assert await list_all_pages(b, "zoe") == await list_all_pages(b, "") == []
        b.now_ms += 10_000
        await b.append(member_event("bob"), session=made[3])
        assert (await list_all_pages(b, "bob"), (await list_all_pages(b, "ada"))[0]) == ([made[1]], made[3])


async def list_by_visible_activity(make: StoreFactory) -> None:
    """What happens in a channel moves a session in the lists of its members and of owners only."""
    async with open_harness(make) as b:
        other = await b.log.create("contract")
        for session in (b.session, other):
            b.now_ms += 10_000
            members = [
                member_event("ada", "owner"),
                member_event("bob", "buyer"),
                member_event("cyd", "seller"),
            ]
            await b.append(*members, session=session)
        b.now_ms += 10_000
        await b.append(make_event(UiMessage(text="psst"), "secret", Scope(channel="seller")))
        assert (
            await list_all_pages(b, "ada")
            == await list_all_pages(b, "cyd")
            == await list_all_pages(b, None)
            == [b.session, other]
        )
        assert await list_all_pages(b, "bob") == [other, b.session]
        b.now_ms += 10_000
        await b.append(durable_event("all"))
        assert await list_all_pages(b, "bob") == [b.session, other]


async def list_all_pages(b: LogHarness, principal: str | None, limit: int = 100) -> list[str]:
    """All sessions of a principal, in pages."""
    found: list[str] = []
    after: ListPosition | None = None
    while page := await b.log.listing(principal, after, limit):
        found += [head.session_id for _, head in page]
        after = page[-1][0]
    return found
