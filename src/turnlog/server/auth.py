"""Who is asking (protocol section 8.1): bearer tokens, cookies and one-time codes. Time comes in.

A token is known by its hash only. Cookies and codes are values signed with the server's key, which say
themselves until when they hold; the key lives beside the log, so that a page stays signed in when the server
starts again. A sign-in code holds for one start of the server, once. A code to join a session names a guest
of its own, so the log knows whether it was used. A cookie that came from a token ends with it.
"""

import hmac
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterable, Mapping
from hashlib import sha256
from typing import NamedTuple, Protocol

import msgspec
from starlette.requests import HTTPConnection

from turnlog.app import Principal
from turnlog.errors import TurnlogError

COOKIE_S = 30 * 24 * 3600
CODE_S = 15 * 60
JOIN_S = 7 * 24 * 3600
SEAL_BYTES = 24
GUEST = "guest_"
CODES = 1024  # so many used sign-in codes are remembered until they expire


class NotSignedIn(TurnlogError):
    """Who asks has not said who they are, or not in a way that holds."""


class Known(NamedTuple):
    """A principal, and until when that holds (seconds since 1970); `token` is the hash it signed in with."""

    principal: Principal
    until: float | None = None
    token: str = ""


class Cookie(msgspec.Struct, frozen=True, tag="cookie"):
    """What a browser is known by."""

    until: int
    name: str
    roles: tuple[str, ...] = ()
    token: str = ""


class SignInCode(msgspec.Struct, frozen=True, tag="sign-in"):
    """Whoever started the server may come in, once; a session is where to begin."""

    until: int
    start: str
    number: str
    session: str = ""


class JoinCode(msgspec.Struct, frozen=True, tag="join"):
    """A guest becomes a member of a session; `by` is who invites it."""

    until: int
    session: str
    guest: str
    roles: tuple[str, ...]
    by: str = ""


Signed = Cookie | SignInCode | JoinCode
_decoder: msgspec.json.Decoder[Signed] = msgspec.json.Decoder(Signed)


class Authenticator(Protocol):
    """What the server asks about every request; an application that has users of its own brings its own.

    `who` may wait, for a database or a provider: the server goes on with other requests meanwhile.
    """

    async def who(self, connection: HTTPConnection, now_s: float) -> Known | None:
        """Who is asking; None if nobody says."""
        ...


Verify = Callable[[str, float], Known | None]


def nobody(token: str, now_s: float) -> Known | None:
    """No other kind of token is accepted."""
    return None


class Auth:
    """The server's own sign-in: tokens by their hash, links, cookies."""

    def __init__(
        self,
        key: bytes,
        tokens: Mapping[str, Principal] | None = None,
        verify: Verify = nobody,
        start: str = "",
    ) -> None:
        """`start` names a start of the server that has begun, for who makes codes for it elsewhere."""
        self._key = key
        self._tokens = dict(tokens or {})
        self._verify = verify
        self.start = start or secrets.token_urlsafe(16)
        self._used: dict[str, int] = {}
        self.cookie_name = "turnlog_" + sha256(b"name:" + key).hexdigest()[:8]  # ports share their cookies

    async def who(self, connection: HTTPConnection, now_s: float) -> Known | None:
        """By the bearer token, or else by the cookie."""
        scheme, _, token = connection.headers.get("authorization", "").partition(" ")
        if scheme:
            return self._bearer(token.strip(), now_s) if scheme.lower() == "bearer" else None
        return self._cookie(connection.cookies.get(self.cookie_name, ""), now_s)

    def _bearer(self, token: str, now_s: float) -> Known | None:
        digest = token_hash(token)
        principal = self._tokens.get(digest)
        return Known(principal, token=digest) if principal else self._verify(token, now_s)

    def _cookie(self, text: str, now_s: float) -> Known | None:
        match self.read(text, now_s):
            case Cookie(until, name, roles, token) if not token or token in self._tokens:
                given = Principal(name, frozenset(roles))
                return Known(self._tokens.get(token, given), until, token)  # as the token's is now
        return None

    def cookie(self, known: Known, now_s: float) -> tuple[str, int]:
        """The cookie of somebody who is known, and how many seconds it holds."""
        until = int(min(known.until or now_s + COOKIE_S, now_s + COOKIE_S))
        roles = tuple(sorted(known.principal.server_roles))
        return self.sign(Cookie(until, known.principal.name, roles, known.token)), until - int(now_s)

    def sign_in_code(self, now_s: float, session_id: str = "") -> str:
        """A code for whoever started this server, that holds once and for a quarter of an hour."""
        number = secrets.token_urlsafe(16)
        return self.sign(SignInCode(int(now_s + CODE_S), self.start, number, session_id))

    def join_code(
        self, session_id: str, roles: Iterable[str], now_s: float, by: str = "", key: str | None = None
    ) -> str:
        """A code that makes one guest a member of a session; all codes under a key are for the same guest."""
        roles = tuple(roles)
        named = "\0".join(["guest", session_id, *roles, by, key or ""]).encode(errors="surrogateescape")
        guest = GUEST + (self._seal(named).hex()[:16] if key else secrets.token_hex(8))
        return self.sign(JoinCode(int(now_s + JOIN_S), session_id, guest, roles, by))

    def exchange(self, code: str, now_s: float) -> SignInCode | JoinCode | None:
        """What a code says that is good. One to sign in is good once; the log sees to that for who joins."""
        match self.read(code, now_s):
            case SignInCode(until, start, number) as given if start == self.start:
                return given if self._first_use(number, until, now_s) else None
            case JoinCode() as join:
                return join
        return None

    def _first_use(self, number: str, until: int, now_s: float) -> bool:
        self._used = {key: end for key, end in self._used.items() if end > now_s}
        if number in self._used or len(self._used) >= CODES:
            return False
        self._used[number] = until
        return True

    def sign(self, value: Signed) -> str:
        """A value that only this server can have made."""
        data = msgspec.json.encode(value)
        return f"{coded(data)}.{coded(self._seal(data))}"

    def read(self, text: str, now_s: float) -> Signed | None:
        """A value that was signed and still holds."""
        data, _, seal = text.partition(".")
        try:
            plain = decoded(data)
            if not hmac.compare_digest(self._seal(plain), decoded(seal)):
                return None
            value = _decoder.decode(plain)
        except (ValueError, msgspec.DecodeError):
            return None
        return value if value.until > now_s else None

    def _seal(self, data: bytes) -> bytes:
        return hmac.digest(self._key, data, "sha256")[:SEAL_BYTES]


def token_hash(token: str) -> str:
    """What a token is known by."""
    return sha256(token.encode(errors="surrogateescape")).hexdigest()


def coded(data: bytes) -> str:
    """Bytes as they may stand in a URL and a cookie."""
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def decoded(text: str) -> bytes:
    """The bytes of such a text; ValueError if it is none, or not as `coded` writes it."""
    data = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    if coded(data) != text:
        raise ValueError("not as it was written")
    return data
