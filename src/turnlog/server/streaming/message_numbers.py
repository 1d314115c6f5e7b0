"""Dense ids (`ids=dense`): the messages of a dialect numbered from 0, without gaps, as document 004 has them.

A reader continues with the number of its last message. Its seq is found by counting messages from the start
of the log, or from the last stored position before it: one per `STEP_MESSAGES` is stored, for
`MAX_COUNTED_SESSIONS` sessions. Numbers have no epoch. A dialect whose ids can be dense has at most one
message per event, which begins with its `id`.
"""

import re
from collections.abc import Hashable
from contextlib import aclosing

from turnlog.ids import now_ms
from turnlog.log.subscription import ChargeBytes
from turnlog.server.streaming.frames import Frames
from turnlog.server.streaming.projection import DialectProjection
from turnlog.wire import sse
from turnlog.wire.dialects.framing import HeartbeatEncoder

STEP_MESSAGES = 256
MAX_COUNTED_SESSIONS = 256

# A line that begins with `id:` is always a cursor: data is one line.
_MESSAGE_HEAD = re.compile(rb'^id: [^\n]*\n(data: \{"id":-?[0-9]+|\n)', re.MULTILINE)


class MessageNumbers:
    """The stored positions: the seqs of the last messages of each step."""

    def __init__(self) -> None:
        self._step_ends: dict[Hashable, list[int]] = {}

    async def find_seq(
        self, key: Hashable, projection: DialectProjection, number: int, charge: ChargeBytes
    ) -> int | None:
        """Return the seq of the message with a number, -1 for -1; None if there is no such message yet."""
        if number < 0:
            return -1
        step_ends = self._take(key)
        steps = min((number + 1) // STEP_MESSAGES, len(step_ends))
        count = steps * STEP_MESSAGES
        after_seq = step_ends[steps - 1] if steps else -1
        if count == number + 1:
            return after_seq

        async with aclosing(projection.iter_frames(after_seq, charge)) as pages:
            async for page in pages:
                for frame in page:
                    count += 1
                    if count == (len(step_ends) + 1) * STEP_MESSAGES:
                        step_ends.append(frame.seq)
                    if count == number + 1:
                        return frame.seq
        return None

    def _take(self, key: Hashable) -> list[int]:
        """Return the positions of a session, which becomes the last one to be dropped."""
        step_ends = self._step_ends.pop(key, [])
        self._step_ends[key] = step_ends
        if len(self._step_ends) > MAX_COUNTED_SESSIONS:
            del self._step_ends[next(iter(self._step_ends))]
        return step_ends


async def number_frames(
    frames: Frames, last_number: int, session_id: str, encode_heartbeat: HeartbeatEncoder
) -> Frames:
    """Yield the pages with dense ids after `last_number`. Frames that only move a cursor are left out."""

    def renumber(head: re.Match[bytes]) -> bytes:
        nonlocal last_number
        if head[1] == b"\n":
            return b""
        last_number += 1
        return b'id: %d\ndata: {"id":%d' % (last_number, last_number)

    async with aclosing(frames):
        async for page in frames:
            if not page:
                yield sse.encode(encode_heartbeat(last_number, now_ms(), session_id))
                continue
            data = _MESSAGE_HEAD.sub(renumber, page)
            if data:  # an empty page would be sent as a heartbeat
                yield data
