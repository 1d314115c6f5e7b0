"""The bell of a PostgreSQL log: one thread with one connection that listens and rings (`bell`).

A ring is a NOTIFY in a transaction of its own, after the commit: inside it, all commits of the database would
wait for each other. Rings of several commits share one NOTIFY. A lost ring is no loss of events: the log
reads its followed sessions now and then. A payload is one line with the sender and whether a session is
wanted, and one line with session and last seq for each session.
"""

import logging
import os
import select
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress

from psycopg import Error

from turnlog.errors import StoreError
from turnlog.log.bell import RingListener
from turnlog.log.postgres.connections import Connection, cut_connection, open_connection

log = logging.getLogger("turnlog.log")

CHANNEL = "turnlog"
# A process rings this often at most, whatever it commits. A busy engine takes longer for a ring: then they
# are fewer, so that the bell never takes more than a tenth of the time.
MIN_RING_INTERVAL_S = 0.002
MAX_RING_INTERVAL_S = 0.01
MAX_PAYLOAD_BYTES = 7_500  # PostgreSQL refuses 8,000
FIRST_PAUSE_S = 0.1
MAX_PAUSE_S = 2.0


class NotifyBell:
    """Tells other processes about commits of this one, and `on_ring` about theirs."""

    def __init__(self, url: str, sender: str, on_ring: RingListener) -> None:
        self._url = url
        self._sender = sender
        self._on_ring = on_ring
        self._lock = threading.Lock()
        self._moved: dict[str, int] = {}
        self._is_wanted = False
        self._closed = False
        self._connection: Connection | None = None
        self._wake_reader, self._wake_writer = os.pipe()
        os.set_blocking(self._wake_writer, False)
        self.is_listening = threading.Event()
        self._thread = threading.Thread(target=self._run, name="turnlog-bell", daemon=True)
        self._thread.start()

    def ring(self, moved: Mapping[str, int], is_wanted: bool) -> None:
        """Queue a ring. It is sent within a few milliseconds, in the thread of the bell."""
        with self._lock:
            is_first = not self._moved and not self._is_wanted
            self._moved.update(moved)
            self._is_wanted = self._is_wanted or is_wanted
        if is_first:
            self._wake()

    def _wake(self) -> None:
        with suppress(BlockingIOError):  # the pipe is full: the thread wakes in any case
            os.write(self._wake_writer, b"\0")

    def cut(self) -> None:
        """Let the thread get an error if it waits for an answer."""
        if self._connection is not None:
            cut_connection(self._connection)

    def close(self) -> None:
        """Send what is queued and end the thread."""
        self._closed = True
        self._wake()
        self._thread.join()
        os.close(self._wake_reader)
        os.close(self._wake_writer)

    def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                with open_connection(self._url) as connection:
                    self._connection = connection
                    connection.execute("set synchronous_commit = off")
                    connection.execute(f"listen {CHANNEL}")
                    pause_s = FIRST_PAUSE_S
                    self.is_listening.set()
                    # Rings were lost while there was no connection: every session may have changed.
                    self._on_ring({}, True)
                    self._serve(connection)
                    return
            except (StoreError, Error, OSError) as error:
                if self._closed:
                    return
                log.warning("the bell of the log is away: %s", str(error).partition("\n")[0])
                self._wait(pause_s)
                pause_s = min(2 * pause_s, MAX_PAUSE_S)

    def _wait(self, seconds: float) -> None:
        """Wait for a time, or until the bell is closed."""
        end_s = time.monotonic() + seconds
        while not self._closed and (left_s := end_s - time.monotonic()) > 0:
            if select.select([self._wake_reader], [], [], left_s)[0]:
                os.read(self._wake_reader, 4096)

    def _serve(self, connection: Connection) -> None:
        """Listen and ring until the bell is closed."""
        next_ring_s = 0.0
        while not self._closed or self._moved:
            now_s = time.monotonic()
            has_rings = bool(self._moved) or self._is_wanted
            if has_rings and (now_s >= next_ring_s or self._closed):
                self._send(connection)
                next_ring_s = time.monotonic() + ring_interval_s(time.monotonic() - now_s)
                # Rings of others that came with the answer do not make the socket readable again.
                self._receive(connection)
                continue

            timeout_s = next_ring_s - now_s if has_rings else None
            ready = select.select([connection.fileno(), self._wake_reader], [], [], timeout_s)[0]
            if self._wake_reader in ready:
                os.read(self._wake_reader, 4096)
            if connection.fileno() in ready:
                self._receive(connection)

    def _send(self, connection: Connection) -> None:
        with self._lock:
            moved = self._moved
            is_wanted = self._is_wanted
            self._moved = {}
            self._is_wanted = False
        payloads = list(encode_rings(self._sender, moved, is_wanted))
        connection.execute(
            "select pg_notify(%b, payload) from unnest(%b::text[]) as payload", [CHANNEL, payloads]
        )

    def _receive(self, connection: Connection) -> None:
        for notification in connection.notifies(timeout=0):
            sender, moved, is_wanted = decode_ring(notification.payload)
            if sender != self._sender:
                self._on_ring(moved, is_wanted)


def ring_interval_s(duration_s: float) -> float:
    """Return the time until the next ring after one that took a time."""
    return min(max(10 * duration_s, MIN_RING_INTERVAL_S), MAX_RING_INTERVAL_S)


def encode_rings(sender: str, moved: Mapping[str, int], is_wanted: bool) -> Iterator[str]:
    """Yield payloads with all sessions, each below the limit of NOTIFY."""
    head = f"{sender} {is_wanted:d}"
    lines = [head]
    size_bytes = len(head)
    for session_id, last in moved.items():
        line = f"{session_id} {last}"
        if size_bytes + len(line) >= MAX_PAYLOAD_BYTES:
            yield "\n".join(lines)
            lines = [f"{sender} 0"]
            size_bytes = len(head)
        lines.append(line)
        size_bytes += len(line) + 1
    yield "\n".join(lines)


def decode_ring(payload: str) -> tuple[str, dict[str, int], bool]:
    """Return sender, sessions with their last seq, and whether a session is wanted.

    What another program has sent to the channel names no sender and no sessions.
    """
    head, *lines = payload.split("\n")
    sender, _, is_wanted = head.partition(" ")
    moved = {}
    for line in lines:
        session_id, _, last = line.partition(" ")
        if last.lstrip("-").isdecimal():
            moved[session_id] = int(last)
    return sender, moved, is_wanted == "1"
