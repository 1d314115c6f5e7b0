"""Leases in tests: sessions that no server has to run."""

from turnlog.log import Log


async def rest_session(log: Log, session_id: str) -> None:
    """Release a session as its owner does after a minute of quiet. Its owner must have ended."""
    lease = await log.leases.claim(session_id, "test")
    assert lease is not None, "a live process owns it"
    assert await log.leases.release(lease, await log.last_seq(session_id))
