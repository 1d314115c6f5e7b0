"""Row 35: a principal that reads much waits, and no other principal does."""

import pytest

from tests.security.apps import make
from tests.security.desk import Desk, desk, run
from turnlog.app import Roles
from turnlog.app.app import EVERYTHING
from turnlog.server.limits import Limits

OPEN = make(roles=Roles(event_views={"guest": EVERYTHING}))  # bytes are counted here
NOTES = 60
NOTE_BYTES = 2_000
LITTLE = Limits(
    burst=100_000,
    burst_bytes=1 << 30,
    burst_busy_s=1e9,
    read_bytes_per_s=0.001,
    burst_read_bytes=2 * NOTES * NOTE_BYTES,
)
ENOUGH = LITTLE._replace(burst_read_bytes=1 << 40)
ASKS = (
    "state?include=transcript",
    "state?at=50",
    "documents?",
    "log?",
    "events?depth=0",
    "events?dialect=agentic",
    "events?types=case.note",
)


async def shared(at: Desk) -> str:
    """A long session of ada's, in which bob is a member."""
    session = await at.session("ada")
    await at.enrol("ada", session, "bob", "guest")
    note = {"type": "case.note", "payload": {"text": "x" * NOTE_BYTES}}
    answer = await at.post("ada", "/api/events", {"session": session, "events": [note] * NOTES})
    assert answer.status == 202
    return session


async def read_whole(at: Desk, who: str, path: str) -> int:
    """Read an answer to its end, or a stream up to the last note; return the status."""
    call = at.call(who, "GET", path)
    is_stream = path.startswith("/api/events")
    await call.until(lambda answer: is_stream and answer.body.count(b"x" * NOTE_BYTES) >= NOTES)
    return (await call.leave()).status


async def read_again(at: Desk, who: str, path: str, most: int) -> list[int]:
    """Read the same until it is refused, at most so often; return the statuses."""
    found: list[int] = []
    while len(found) < most and 429 not in found:
        found.append(await read_whole(at, who, path))
    return found


@pytest.mark.parametrize("ask", ASKS)
def test_what_is_read_again_and_again_is_429_and_others_are_served(ask: str) -> None:
    async def scenario() -> None:
        async with desk(OPEN, limits=LITTLE) as at:
            path = f"/api/{ask}&session={await shared(at)}"
            found = await read_again(at, "bob", path, 10)
            assert found == [*[200] * (len(found) - 1), 429]
            assert int((await at.get("bob", path)).header("retry-after")) > 0
            assert await read_whole(at, "ada", path) == 200
            assert (await at.get("bob", "/api/sessions")).status == 200

    run(scenario())


@pytest.mark.parametrize("ask", ASKS)
def test_control_without_that_budget_it_is_read_for_ever(ask: str) -> None:
    async def scenario() -> None:
        async with desk(OPEN, limits=ENOUGH) as at:
            path = f"/api/{ask}&session={await shared(at)}"
            assert await read_again(at, "bob", path, 10) == [200] * 10

    run(scenario())


def test_stream_over_its_budget_waits_and_others_read_to_the_end() -> None:
    async def scenario() -> None:
        narrow = LITTLE._replace(burst_read_bytes=NOTES * NOTE_BYTES // 3)
        async with desk(OPEN, limits=narrow) as at:
            session = await shared(at)
            query = f"session={session}&dialect=agentic"
            waits = at.follow("bob", query)
            await waits.word("x" * NOTE_BYTES)
            whole = at.follow("root", query)  # operators have no such budget
            await whole.until(lambda answer: answer.body.count(b"x" * NOTE_BYTES) >= NOTES)
            assert (await whole.leave()).status == 200
            assert (await waits.leave()).body.count(b"x" * NOTE_BYTES) < NOTES

    run(scenario())


def test_all_together_over_their_budget_refuses_who_read_much() -> None:
    async def scenario() -> None:
        few = LITTLE._replace(
            burst_read_bytes=8 * NOTES * NOTE_BYTES,
            total_read_bytes_per_s=0.001,
            total_burst_read_bytes=5 * NOTES * NOTE_BYTES,
        )
        async with desk(OPEN, limits=few) as at:
            path = f"/api/log?session={await shared(at)}"
            assert (await read_again(at, "bob", path, 8))[-1] == 429
            assert await read_whole(at, "ada", path) == 200

    run(scenario())
