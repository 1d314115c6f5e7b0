"""Bounds on the head of a request, checked as its bytes arrive, before anything is stored.

The HTTP parser calls back for every piece of a URL and every header field, and has no limits of its own. A
`RequestHead` counts them and raises `RequestRefused` at the first one too many. Fields that arrive after the
head (the trailer section of a chunked body) are counted and dropped: RFC 9110, section 6.5.1, forbids merging
them into the header section.
"""

from collections.abc import Iterable
from http import HTTPStatus

MAX_HEAD_BYTES = 64 * 1024  # also for everything between two pieces of a body: chunk extensions, trailers
MAX_HEADER_FIELDS = 128  # browsers send about 20
MAX_URL_BYTES = 16 * 1024
SINGLE_FIELDS = frozenset({b"host", b"origin", b"authorization", b"content-length", b"content-type"})


class RequestRefused(Exception):
    """A request that the application does not see; the server responds with `status`."""

    def __init__(self, status: HTTPStatus, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class RequestHead:
    """Counts what has been received of one request's head."""

    __slots__ = ("_fields", "_framing_bytes", "_url_bytes", "is_complete")

    def __init__(self) -> None:
        self._framing_bytes = 0
        self._url_bytes = 0
        self._fields = 0
        self.is_complete = False

    def count_bytes(self, size: int) -> None:
        """Count bytes that had no piece of a body. Raise `RequestRefused` over the limit."""
        self._framing_bytes += size
        if self._framing_bytes > MAX_HEAD_BYTES:
            section = "the trailer section" if self.is_complete else "the request head"
            raise head_too_large_error(f"{section} is larger than {MAX_HEAD_BYTES} bytes")

    def count_body(self) -> None:
        """Reset the count: the framing of the next piece of the body has its own limit."""
        self._framing_bytes = 0

    def count_url(self, size: int) -> None:
        self._url_bytes += size
        if self._url_bytes > MAX_URL_BYTES:
            reason = f"the URL is longer than {MAX_URL_BYTES} bytes"
            raise RequestRefused(HTTPStatus.REQUEST_URI_TOO_LONG, reason)

    def count_field(self) -> None:
        self._fields += 1
        if self._fields > MAX_HEADER_FIELDS:
            raise head_too_large_error(f"the request has more than {MAX_HEADER_FIELDS} header fields")

    def complete(self, headers: Iterable[tuple[bytes, bytes]]) -> None:
        """Check the complete head: headers on which security depends must not be there twice."""
        self.is_complete = True
        names = [name for name, _ in headers if name in SINGLE_FIELDS]
        for name in SINGLE_FIELDS:
            if names.count(name) > 1:
                reason = f"the header {name.decode()} was sent more than once"
                raise RequestRefused(HTTPStatus.BAD_REQUEST, reason)


def head_too_large_error(reason: str) -> RequestRefused:
    return RequestRefused(HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE, reason)


def encode_refusal(refusal: RequestRefused) -> bytes:
    body = b'{"error":"%b"}' % str(refusal).encode("ascii")
    return (
        b"HTTP/1.1 %d %b\r\n" % (refusal.status, refusal.status.phrase.encode("ascii"))
        + b"content-type: application/json\r\n"
        + b"cache-control: no-store\r\n"
        + b"content-length: %d\r\n" % len(body)
        + b"connection: close\r\n\r\n"
        + body
    )
