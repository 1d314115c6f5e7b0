"""Follow the events of a session over network losses and restarts of the server.

Output: each event once, in order, decoded. When a connection ends, the follower reconnects with the cursor of
its last event and a growing delay, as often as needed. If the server cannot continue from a cursor, the
follower yields a `HistoryReset`, and then what the server has: the reader drops what it built before. The end
of the session, or of the turn that is followed, ends the iteration. A refusal raises `ServerRefused`.
"""

import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from urllib.parse import urlencode

import msgspec

from turnlog.agents.remote.server_client import (
    MAX_ERROR_BYTES,
    TOO_MANY_REQUESTS,
    ServerUnavailable,
    read_response_body,
)
from turnlog.agents.retry import RetryPolicy
from turnlog.connection.json_requests import JsonRequests, ServerRefused, read_refusal
from turnlog.errors import InvalidEvent, PeerError
from turnlog.events import Catalog, Entry, decode_envelope
from turnlog.wire.sse import Decoder, ServerSentEvent

log = logging.getLogger("turnlog.connection")

RECONNECT = RetryPolicy(initial_delay_s=0.1, max_delay_s=30.0)  # without a last attempt
NO_CONTENT = 204
END_OF_TURN = "[DONE]"  # the turn is over, or all its agents wait; a server that stops does not send it


class HistoryReset(msgspec.Struct, frozen=True):
    """The server cannot continue from the cursor: the history follows from its beginning, `first`."""

    reason: str
    epoch: str
    first: int
    last: int


class EventFollower:
    """The events of one session after a cursor. `cursor` is the position of the last one that was yielded.

    A program that stores `cursor` continues there later with `after=`.
    """

    def __init__(
        self,
        requests: JsonRequests,
        catalog: Catalog,
        session: str,
        after: str | int | None = None,
        types: Sequence[str] = (),
        turn: str | None = None,
    ) -> None:
        self.cursor = "" if after is None else str(after)
        self._requests = requests
        self._catalog = catalog
        self._decoder = Decoder()
        query = {"session": session, "dialect": "turnlog"}
        if types:
            query["types"] = ",".join(types)
        if turn is not None:
            query["turn"] = turn
        self._query = query
        self._is_over = False

    def __aiter__(self) -> AsyncGenerator[Entry | HistoryReset, None]:
        return self._follow()

    async def _follow(self) -> AsyncGenerator[Entry | HistoryReset, None]:
        failures = 0
        while True:
            cursor = self.cursor
            try:
                async with aclosing(self._read_stream()) as items:
                    async for item in items:
                        failures = 0
                        yield item
            except ServerUnavailable as error:
                log.info("the stream of %s broke off: %s", self._query["session"], error)
            if self._is_over:
                return
            failures = 1 if self.cursor != cursor else failures + 1
            self._decoder.flush()
            await self._requests.sleep(RECONNECT.delay_s(failures))

    async def _read_stream(self) -> AsyncGenerator[Entry | HistoryReset, None]:
        """Yield the items of one response. `_is_over` is set if none can follow."""
        headers = {"accept": "text/event-stream"}
        query = dict(self._query)
        if self._decoder.last_id:
            headers["last-event-id"] = self._decoder.last_id
        elif self.cursor:
            query["after"] = self.cursor
        async with self._requests.client.stream(f"/api/events?{urlencode(query)}", headers) as response:
            status = response.status_code
            if status == NO_CONTENT:
                self._is_over = True
                return
            if status >= 500 or status == TOO_MANY_REQUESTS:
                raise ServerUnavailable(f"the server answered {status}")
            if status != 200:
                raise ServerRefused(status, read_refusal(await read_response_body(response, MAX_ERROR_BYTES)))

            async for chunk in response.aiter_raw():
                for message in self._decoder.feed(chunk):
                    item = self._decode(message)
                    if item is None:
                        continue
                    self.cursor = message.id or self.cursor
                    yield item
                # lines without data move the cursor past events that were filtered out
                self.cursor = self._decoder.last_id or self.cursor

    def _decode(self, message: ServerSentEvent) -> Entry | HistoryReset | None:
        try:
            if message.event == "reset":
                return msgspec.json.decode(message.data, type=HistoryReset)
            if message.event != "message":
                return None  # a heartbeat
            if message.data == END_OF_TURN:
                self._is_over = True
                return None
            envelope = decode_envelope(message.data.encode())
        except (msgspec.DecodeError, InvalidEvent) as error:
            raise PeerError(f"expected an event of a Turnlog server: {error}") from None
        return self._catalog.decode_entry(envelope)
