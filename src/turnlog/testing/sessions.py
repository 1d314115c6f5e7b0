"""Contracts of a store: sessions, their records and lists."""

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
from turnlog.testing.harness import LogHarness, StoreFactory, expect_conflict, expect_raises, open_harness


async def session_id_format(make_store: StoreFactory) -> None:
    """A session id is `sess_` and characters that a URL may contain; the log refuses other ids."""
    async with open_harness(make_store) as harness:
        assert await harness.log.create("contract", "sess_A-z_09") == "sess_A-z_09"
        for name in ("", "sess_", "session", "sess_ä", "sess_a/b", "sess_a\n", "sess_" + "x" * 65):
            assert "sess_" in str(await expect_raises(CallerError, harness.log.create("contract", name)))


async def closed_session_rejects_events(make_store: StoreFactory) -> None:
    """A closed session refuses new events, stays readable and still answers a retry."""
    async with open_harness(make_store) as harness:
        await harness.append(*durable_events("a", "b"))
        await harness.close_session()
        await expect_raises(SessionClosed, harness.append(durable_event("c")))
        await expect_raises(SessionClosed, harness.append(*durable_events("a", "c")))
        assert await harness.append(durable_event("b")) == [1]
        assert (await harness.info()).closed
        assert await harness.read_seqs() == [0, 1]


async def close_ends_followers(make_store: StoreFactory) -> None:
    """Followers of a closed session end when they have read all events, later ones at once."""
    async with open_harness(make_store) as harness:
        early = [asyncio.create_task(harness.follow_until(99, after)) for after in (-1, 0, 1)]
        await harness.append(*durable_events("a", "b"))
        await asyncio.gather(harness.append(durable_event("c")), harness.close_session())
        late = asyncio.create_task(harness.follow_until(99))
        seqs = [[row.seq for row in await follower] for follower in [*early, late]]
        assert seqs == [[0, 1, 2], [1, 2], [2], [0, 1, 2]]


async def unknown_session(make_store: StoreFactory) -> None:
    """Reading or changing a session that does not exist raises `NotFound` and creates nothing."""
    async with open_harness(make_store) as harness:
        await expect_raises(NotFound, harness.log.info("sess_x"))
        await expect_raises(NotFound, harness.log.read("sess_x"))
        await expect_raises(NotFound, harness.append(durable_event("a"), session="sess_x"))
        await expect_raises(NotFound, harness.log.close_session("sess_x"))
        await expect_raises(NotFound, harness.log.prune("sess_x", 0))
        await expect_raises(NotFound, anext(harness.log.follow("sess_x")))
        assert [record.session_id for record in await harness.log.sessions()] == [harness.session]


async def session_list(make_store: StoreFactory) -> None:
    """The store lists sessions, the oldest first; each id exists once, with its own epoch."""
    async with open_harness(make_store) as harness:
        ids = [harness.session, *[await harness.log.create(f"app {number}") for number in range(5)]]
        assert await expect_conflict(harness.log.create("again", ids[2])) == -1
        records = await harness.log.sessions()
        assert [record.session_id for record in records] == ids
        assert [record.app for record in records] == ["contract", *[f"app {number}" for number in range(5)]]
        assert (
            len({record.epoch for record in records}) == len({record.session_id for record in records}) == 6
        )


async def sessions_are_independent(make_store: StoreFactory) -> None:
    """Ids, seqs, fences and spans of one session do not affect another session."""
    async with open_harness(make_store) as harness:
        other = await harness.log.create("contract")
        await harness.append(block_start_event("x"), block_delta_event("x"), durable_event("a"), fence=5)
        assert await harness.append(
            durable_event("a", "another text"), block_end_event("x"), session=other, fence=1
        ) == [0, 1]
        await harness.log.close_session(other)
        assert await harness.append(durable_event("b"), fence=5, expected_last=2) == [3]
        assert await harness.read_seqs(replay_from=-1) == [0, 1, 2, 3]
        assert await harness.closing_event("x") is None
        for session in (harness.session, other):
            ids = {
                decode_envelope(envelope_json(row)).session_id
                for row in await harness.read_rows(session=session)
            }
            assert ids == {session}


async def session_record(make_store: StoreFactory) -> None:
    """A record has first, last, epoch, app and closed; the epoch stays while no event is lost."""
    async with open_harness(make_store) as harness:
        empty = await harness.info()
        assert empty.first == 0
        assert empty.last == -1
        assert not empty.closed
        assert empty.app == "contract"
        assert empty.created_ms == harness.now_ms
        assert empty.epoch
        await harness.append(block_start_event("x"), block_delta_event("x"), block_end_event("x"), fence=3)
        await harness.prune(harness.now_ms + 1)
        await harness.close_session()
        record = await harness.info()
        assert record.first == 0
        assert record.last == 2
        assert record.closed
        assert record.fence == 3
        assert record.epoch == empty.epoch
        assert record.session_id == harness.session
        assert record.durable_count == 2


def member_event(principal: str, *roles: str) -> Event:
    """Build the event that gives a principal its roles; no roles remove it."""
    return make_event(SessionMember(principal=principal, roles=roles), new_id("evt_")[4:])


async def record_follows_events(make_store: StoreFactory) -> None:
    """A record has title, members and last activity from the events; a first message is a title."""
    async with open_harness(make_store) as harness:
        await harness.append(
            member_event("ada", "owner"), make_event(UiMessage(text="psst", channel="staff"), "secret")
        )
        record = await harness.info()
        assert record.title == ""
        assert record.members == {"ada": ("owner",)}
        assert record.updated_ms == harness.now_ms
        harness.now_ms += 5
        await harness.append(
            make_event(UiMessage(text=" To\nOslo  and back " + "x" * 100), "first"),
            member_event("bob", "guest"),
        )
        await harness.append(
            make_event(UiMessage(text="Rome"), "second"), member_event("ada", "guest", "owner")
        )
        record = await harness.info()
        assert record.title == "To Oslo and back " + "x" * 63
        assert record.members == {"bob": ("guest",), "ada": ("guest", "owner")}
        assert record.updated_ms == harness.now_ms
        harness.now_ms -= 100
        await harness.append(make_event(SessionTitle(title="A trip"), "title"), member_event("bob"))
        record = await harness.info()
        assert record.title == "A trip"
        assert record.members == {"ada": ("guest", "owner")}
        assert record.updated_ms == harness.now_ms + 100
        assert [listed.title for listed in await harness.log.sessions()] == ["A trip"]


async def record_tracks_invites(make_store: StoreFactory) -> None:
    """A record has the creator and the open invites; a used or ended invite is not open."""
    async with open_harness(make_store) as harness:
        names = ("inv_used", "inv_ended", "inv_open")
        await harness.append(member_event("ada", "owner"), *[invite_event(name, None) for name in names])
        await harness.append(invite_event("inv_asked", "bob"))
        record = await harness.info()
        assert record.creator == "ada"
        assert record.members_seq == 4
        assert list(record.invites) == ["inv_used", "inv_ended", "inv_open", "inv_asked"]
        assert record.invites["inv_asked"].principal == "bob"
        assert record.invited_principals == {"bob"}
        redeemed = SessionMember(principal="eve", roles=("guest",), invite_id="inv_used")
        ended = SessionInviteEnd(invite_id="inv_ended", reason="revoked")
        await harness.append(make_event(redeemed, "m"), make_event(ended, "e"))
        record = await harness.info()
        assert record.creator == "ada"
        assert record.members_seq == 6
        assert list(record.invites) == ["inv_open", "inv_asked"]


async def list_by_invitation(make_store: StoreFactory) -> None:
    """The store lists the sessions that a principal is invited to until the invite is used or ends."""
    async with open_harness(make_store) as harness:
        other = await harness.log.create("contract")
        for number, session in enumerate((harness.session, other)):
            harness.now_ms += 10_000
            await harness.append(
                member_event("ada", "owner"), invite_event(f"inv_{number}", "bob"), session=session
            )
        invitations_of_bob = await harness.log.invitations("bob")
        assert [record.session_id for record in invitations_of_bob] == [other, harness.session]
        assert [record.session_id for record in await harness.log.invitations("bob", 1)] == [other]
        assert await list_all_pages(harness, "bob") == []
        assert await harness.log.invitations("ada") == []
        await harness.append(
            make_event(SessionMember(principal="bob", roles=("guest",), invite_id="inv_0"), "m")
        )
        await harness.append(
            make_event(SessionInviteEnd(invite_id="inv_1", reason="declined"), "e"), session=other
        )
        assert await harness.log.invitations("bob") == []
        assert await list_all_pages(harness, "bob") == [harness.session]


async def expected_members_seq(make_store: StoreFactory) -> None:
    """An append is refused if members changed after `expected_members_seq`; messages do not count."""
    async with open_harness(make_store) as harness:
        await harness.append(member_event("ada", "owner"))
        await harness.append(durable_event("a"))
        assert await harness.append(member_event("bob", "guest"), expected_members_seq=0) == [2]
        assert await expect_conflict(harness.append(member_event("bob"), expected_members_seq=0)) == 2
        assert await harness.append(member_event("bob"), expected_members_seq=2) == [3]


def invite_event(name: str, principal: str | None) -> Event:
    """Build an invite for a principal; None: a link."""
    invite = SessionInvite(invite_id=name, roles=("guest",), expires_ms=1, principal=principal)
    return make_event(invite, f"invite-{name}")


async def list_by_member(make_store: StoreFactory) -> None:
    """The store lists a member's sessions in pages, the last active first, until it is removed."""
    async with open_harness(make_store) as harness:
        ids = []
        for number in range(5):
            harness.now_ms += 10_000
            ids.append(await harness.log.create("contract"))
            guest = member_event("bob" if number % 2 else "eve", "guest")
            await harness.append(member_event("ada", "owner"), guest, session=ids[-1])
        harness.now_ms += 10_000
        await harness.append(durable_event("late"), session=ids[1])
        order = [ids[1], ids[4], ids[3], ids[2], ids[0]]
        assert await list_all_pages(harness, "ada") == await list_all_pages(harness, "ada", limit=2) == order
        assert await list_all_pages(harness, "bob", limit=1) == [ids[1], ids[3]]
        assert await list_all_pages(harness, None, limit=4) == [*order, harness.session]
        assert await list_all_pages(harness, "zoe") == await list_all_pages(harness, "") == []
        harness.now_ms += 10_000
        await harness.append(member_event("bob"), session=ids[3])
        assert await list_all_pages(harness, "bob") == [ids[1]]
        assert (await list_all_pages(harness, "ada"))[0] == ids[3]


async def list_by_visible_activity(make_store: StoreFactory) -> None:
    """An event in a channel moves its session in the lists of owners and of its members only."""
    async with open_harness(make_store) as harness:
        other = await harness.log.create("contract")
        for session in (harness.session, other):
            harness.now_ms += 10_000
            members = [
                member_event("ada", "owner"),
                member_event("bob", "buyer"),
                member_event("cyd", "seller"),
            ]
            await harness.append(*members, session=session)
        harness.now_ms += 10_000
        await harness.append(make_event(UiMessage(text="psst"), "secret", Scope(channel="seller")))
        assert (
            await list_all_pages(harness, "ada")
            == await list_all_pages(harness, "cyd")
            == await list_all_pages(harness, None)
            == [harness.session, other]
        )
        assert await list_all_pages(harness, "bob") == [other, harness.session]
        harness.now_ms += 10_000
        await harness.append(durable_event("all"))
        assert await list_all_pages(harness, "bob") == [harness.session, other]


async def list_all_pages(harness: LogHarness, principal: str | None, limit: int = 100) -> list[str]:
    ids: list[str] = []
    after: ListPosition | None = None
    while page := await harness.log.listing(principal, after, limit):
        ids += [record.session_id for _, record in page]
        after = page[-1][0]
    return ids


async def search_titles(make_store: StoreFactory) -> None:
    """A search finds the titles of a principal's own sessions, in pages, the last active first."""
    async with open_harness(make_store) as harness:
        log = harness.log
        ids = []
        for number, title in enumerate(["Oslo trip", "Straße", "a second OSLO trip", "Lima"]):
            harness.now_ms += 10_000
            members = [member_event("ada", "owner"), member_event("bob", "guest")][: 1 + number % 2]
            event = make_event(SessionTitle(title=title), f"title_{number}")
            ids.append(await log.create("contract", None, [*members, event]))
        assert await search_all_pages(harness, "ada", "oslo") == [ids[2], ids[0]]
        assert await search_all_pages(harness, "ada", "oslo", limit=1) == [ids[2], ids[0]]
        assert await search_all_pages(harness, "bob", "oslo") == []
        assert await search_all_pages(harness, "bob", "STRASSE") == [ids[1]]
        assert await search_all_pages(harness, None, "trip") == [ids[2], ids[0]]
        assert await search_all_pages(harness, "zoe", "") == []
        assert await search_all_pages(harness, "ada", "%") == []
        await log.erase(ids[0])
        assert await search_all_pages(harness, "ada", "oslo") == [ids[2]]


async def search_all_pages(
    harness: LogHarness, principal: str | None, text: str, limit: int = 100
) -> list[str]:
    ids: list[str] = []
    after: ListPosition | None = None
    while True:
        records, after = await harness.log.search_sessions(principal, text, after, limit)
        ids += [record.session_id for record in records]
        if after is None:
            return ids


async def create_with_events(make_store: StoreFactory) -> None:
    """A session and its first events are one unit: all of them are stored, or none."""
    async with open_harness(make_store) as harness:
        log = harness.log
        title = make_event(SessionTitle(title="First"), "title")
        session = await log.create("contract", None, [member_event("ada", "owner"), title])
        record = await log.info(session)
        assert (record.members, record.title, record.last) == ({"ada": ("owner",)}, "First", 1)
        assert await harness.read_seqs(session=session) == [0, 1]
        assert await list_all_pages(harness, "ada") == [session]
        assert (await log.append(session, [title])).new == [False]
        await expect_raises(Conflict, log.create("contract", session, [member_event("eve", "owner")]))
        assert (await log.info(session)).members == {"ada": ("owner",)}
        await expect_raises(Conflict, log.create("contract", "sess_twice", [title, title]))
        await expect_raises(NotFound, log.info("sess_twice"))


async def reading_keeps_list_order(make_store: StoreFactory) -> None:
    """Reading, following and claiming sessions changes no list; only appends do."""
    async with open_harness(make_store) as harness:
        ids = []
        for _ in range(5):
            harness.now_ms += 10_000
            ids.append(await harness.log.create("contract", None, [member_event("ada", "owner")]))
        order = await list_all_pages(harness, "ada", limit=2)
        assert order == ids[::-1]
        harness.now_ms += 10_000
        for session in ids[:3]:
            await harness.log.info(session)
            await harness.read_rows(session=session)
            assert await harness.log.leases.claim(session, "one")
        assert await list_all_pages(harness, "ada", limit=2) == order
