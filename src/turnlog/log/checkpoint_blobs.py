"""Remove the private blobs of checkpoints that a later one supersedes.

Without it a conversation of n turns stores n states that each hold all turns before. Only blobs that a
superseded checkpoint names are removed: if the history is damaged or cut, the last checkpoint stays.
"""

from turnlog.events import CATALOG, AgentCheckpoint
from turnlog.log.log import Log
from turnlog.state.checkpoints import Checkpoints


async def drop_superseded_blobs(log: Log, session_id: str) -> int:
    """Return how many blobs of a session were removed."""
    checkpoints = Checkpoints()
    removed = 0
    after = -1
    while page := await log.read_types(session_id, (AgentCheckpoint.TYPE,), after):
        for envelope in page.envelopes():
            checkpoints.apply(envelope, CATALOG.decode_payload(envelope))
        names = checkpoints.take_superseded()
        if names:
            removed += await log.drop_private_blobs(session_id, names)
        after = page.last
    return removed
