"""How much one principal may take: requests, bytes sent and read, event loop time, streams, sessions.

Rates are token buckets: `..._per_s`, `..._per_hour` or `..._share` fills a bucket, the burst is its size. The
limits keep one principal from taking everything; pages and executors stay far below them.

- A guest has the rate of a person who types, and a twentieth of the event loop.
- A principal with a server role is an operator or a program: more streams and requests, no limit on event
  loop time. An operator may also make any number of sessions and read any number of bytes.
- All principals share a budget of bytes read. While it is used up, principals wait that have used more than
  half of their own.
"""

import math
from typing import NamedTuple

from turnlog.app import Principal
from turnlog.app.membership import is_guest

MIB = 1024 * 1024


class Rate(NamedTuple):
    """A token bucket: how fast it fills, and its size."""

    per_s: float
    burst: float


UNLIMITED = Rate(math.inf, math.inf)


class Allowance(NamedTuple):
    """The limits of one principal. Streams do not count as concurrent requests."""

    requests: Rate
    body_bytes: Rate
    busy_s: Rate
    concurrent_requests: int
    streams: int


class Limits(NamedTuple):
    """The limits of each principal. A stream ends after `max_stream_age_s`, and its reader reconnects.

    A stream that is silent for `heartbeat_interval_s` gets a heartbeat: proxies cut silent connections.

    `busy_share` is the share of the event loop's time that the requests of one principal may take.
    `anonymous_concurrent_requests` holds for all callers together that are not signed in.
    """

    requests_per_s: float = 200.0
    burst: int = 100
    program_burst: int = 1000
    guest_requests_per_s: float = 10.0
    guest_burst: int = 60
    body_bytes_per_s: float = 4.0 * MIB
    burst_bytes: int = 16 * MIB
    guest_body_bytes_per_s: float = MIB / 16
    guest_burst_bytes: int = MIB
    busy_share: float = 0.25
    burst_busy_s: float = 5.0
    guest_busy_share: float = 0.05
    guest_burst_busy_s: float = 0.5
    concurrent_requests: int = 16
    guest_concurrent_requests: int = 4
    program_concurrent_requests: int = 1024
    anonymous_concurrent_requests: int = 256
    read_bytes_per_s: float = 4.0 * MIB
    burst_read_bytes: int = 64 * MIB
    total_read_bytes_per_s: float = 32.0 * MIB
    total_burst_read_bytes: int = 256 * MIB
    upload_bytes_per_hour: int = 512 * MIB
    guest_upload_bytes_per_hour: int = 64 * MIB
    sessions_per_hour: int = 1000
    streams: int = 64
    guest_streams: int = 8
    program_streams: int = 1024
    max_stream_age_s: float = 600.0
    heartbeat_interval_s: float = 15.0

    @property
    def read_bytes(self) -> Rate:
        return Rate(self.read_bytes_per_s, self.burst_read_bytes)

    @property
    def total_read_bytes(self) -> Rate:
        return Rate(self.total_read_bytes_per_s, self.total_burst_read_bytes)

    @property
    def new_sessions(self) -> Rate:
        return Rate(self.sessions_per_hour / 3600, self.sessions_per_hour)

    def upload_bytes_of(self, principal: Principal) -> Rate:
        """Return the bytes of files that a principal may upload; the burst is that of an hour."""
        size = self.guest_upload_bytes_per_hour if is_guest(principal) else self.upload_bytes_per_hour
        return Rate(size / 3600, size)

    def allowance_of(self, principal: Principal) -> Allowance:
        if principal.server_roles:
            return Allowance(
                Rate(self.requests_per_s, self.program_burst),
                Rate(self.body_bytes_per_s, self.burst_bytes),
                UNLIMITED,
                self.program_concurrent_requests,
                self.program_streams,
            )
        if is_guest(principal):
            return Allowance(
                Rate(self.guest_requests_per_s, self.guest_burst),
                Rate(self.guest_body_bytes_per_s, self.guest_burst_bytes),
                Rate(self.guest_busy_share, self.guest_burst_busy_s),
                self.guest_concurrent_requests,
                self.guest_streams,
            )
        return Allowance(
            Rate(self.requests_per_s, self.burst),
            Rate(self.body_bytes_per_s, self.burst_bytes),
            Rate(self.busy_share, self.burst_busy_s),
            self.concurrent_requests,
            self.streams,
        )
