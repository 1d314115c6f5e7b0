"""Who is asking (protocol section 8.1): bearer tokens, cookies and one-time codes. Time comes in.

A token is known by its hash only. Cookies and codes are values signed with the server's key, which say
themselves until when they hold; the key lives beside the log, so that a page stays signed in when the server
starts again. A sign-in code holds for one start of the server, once. A code to join a session names an
invite: the log says whether it is open. A cookie that came from a token ends with it. A cookie that was
signed out is refused for as long as it would have held (`revocation`).
"""

import hmac
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Awaitable, Callable, Iterable, Mapping
from hashlib import sha256
from typing import NamedTuple, Protocol

import msgspec
from starlette.requests import HTTPConnection

from turnlog.app import LOCAL, Principal
from turnlog.errors import TurnlogError
from turnlog.server.auth.revocation import RevokedCookies

COOKIE_LIFETIME_S = 30 * 24 * 3600
SIGN_IN_CODE_LIFETIME_S = 15 * 60
SIGNATURE_BYTES = 24
GUEST_PREFIX = "guest_"
MAX_USED_CODES = 1024  # so many used sign-in codes are remembered until they expire


def is_guest(principal: Principal) -> bool:
    """Whether a principal came by a link to one session."""
    return principal.name.startswith(GUEST_PREFIX)


class NotSignedIn(TurnlogError):
    """Who asks has not said who they are, or not in a way that holds."""


class Cookie(msgspec.Struct, frozen=True, tag="cookie"):
    """What a browser is known by. Cookies that follow each other in one browser have the same id.

    `by_tokens` says whether the server that made it knew people by tokens.
    """

    until: int
    name: str
    id: str
    made_ms: int
    roles: tuple[str, ...] = ()
    token: str = ""
    by_tokens: bool = False


class Identity(NamedTuple):
    """A principal, and until when that holds (seconds since 1970).

    `token` is the hash it signed in with, `cookie` the one that the request had.
    """

    principal: Principal
    expires_at_s: float | None = None
    token_hash: str = ""
    cookie: Cookie | None = None


class SignInCode(msgspec.Struct, frozen=True, tag="sign-in"):
    """Whoever started the server may come in, once; a session is where to begin."""

    until: int
    start: str
    number: str
    session: str = ""


class JoinCode(msgspec.Struct, frozen=True, tag="join"):
    """One person becomes a member by an invite; the log says for which roles, until when, and whether it is
    open."""

    session: str
    invite: str


SignedValue = Cookie | SignInCode | JoinCode
_decoder: msgspec.json.Decoder[SignedValue] = msgspec.json.Decoder(SignedValue)


class Authenticator(Protocol):
    """What the server asks about every request; an application that has users of its own brings its own.

    `who` may wait, for a database or a provider: the server goes on with other requests meanwhile.
    """

    async def authenticate(self, connection: HTTPConnection, now_s: float) -> Identity | None:
        """Who is asking; None if nobody says."""
        ...


TokenVerifier = Callable[[str, float], "Identity | Awaitable[Identity | None] | None"]
"""Tells who shows a token, now or when its key has been fetched; None for a token that does not hold."""


def reject_token(token: str, now_s: float) -> Identity | None:
    """No other kind of token is accepted."""
    return None


class BuiltinAuth:
    """The server's own sign-in: tokens by their hash, links, cookies."""

    def __init__(
        self,
        key: bytes,
        tokens: Mapping[str, Principal] | None = None,
        verify: TokenVerifier = reject_token,
        start_id: str = "",
        revoked_cookies: RevokedCookies | None = None,
    ) -> None:
        """`start` names a start of the server that has begun, for who makes codes for it elsewhere."""
        self._key = key
        self._tokens = dict(tokens or {})
        self._by_tokens = tokens is not None or verify is not reject_token
        self._revoked_cookies = revoked_cookies or RevokedCookies()
        self._verify = verify
        self.start_id = start_id or secrets.token_urlsafe(16)
        self._used_codes: dict[str, int] = {}
        self.cookie_name = "turnlog_" + sha256(b"name:" + key).hexdigest()[:8]  # ports share their cookies

    async def authenticate(self, connection: HTTPConnection, now_s: float) -> Identity | None:
        """By the bearer token, or else by the cookie."""
        scheme, _, token = connection.headers.get("authorization", "").partition(" ")
        if scheme:
            return (
                await self._authenticate_bearer(token.strip(), now_s) if scheme.lower() == "bearer" else None
            )
        return self._authenticate_cookie(connection.cookies.get(self.cookie_name, ""), now_s)

    async def _authenticate_bearer(self, token: str, now_s: float) -> Identity | None:
        digest = hash_token(token)
        if principal := self._tokens.get(digest):
            return Identity(principal, token_hash=digest)
        known = self._verify(token, now_s)
        return known if known is None or isinstance(known, Identity) else await known

    def _authenticate_cookie(self, text: str, now_s: float) -> Identity | None:
        match self.verify_signed(text, now_s):
            case Cookie() as cookie if self._is_cookie_valid(cookie):
                given = Principal(cookie.name, frozenset(cookie.roles))
                principal = self._tokens.get(cookie.token, given)  # as the token's is now
                return Identity(principal, cookie.until, cookie.token, cookie)
        return None

    def _is_cookie_valid(self, cookie: Cookie) -> bool:
        """Whether a cookie of this server's still counts."""
        if cookie.token and cookie.token not in self._tokens:
            return False
        # Whoever came in by a link while the server knew no people was the owner of everything on a machine
        # of their own. Once the server knows people by tokens, others may reach it.
        if cookie.name == LOCAL.name and not cookie.token and self._by_tokens and not cookie.by_tokens:
            return False
        return not self._revoked_cookies.is_revoked(cookie.name, cookie.id, cookie.made_ms)

    def is_still_valid(self, identity: Identity) -> bool:
        """Whether what a principal was known by, when its stream began, would be accepted now."""
        if identity.cookie is not None and not self._is_cookie_valid(identity.cookie):
            return False
        return not identity.token_hash or self._tokens.get(identity.token_hash) == identity.principal

    def set_tokens(self, tokens: Mapping[str, Principal]) -> None:
        """Accept these tokens, and no others."""
        self._tokens = dict(tokens)

    def make_cookie(self, identity: Identity, now_s: float) -> tuple[str, int]:
        """The cookie of somebody who is known, and how many seconds it holds.

        Who shows a cookie gets one with the same id: a copy of a cookie must not outlive its sign-out.
        """
        until = int(min(identity.expires_at_s or now_s + COOKIE_LIFETIME_S, now_s + COOKIE_LIFETIME_S))
        before = identity.cookie
        cookie = Cookie(
            until,
            identity.principal.name,
            before.id if before else secrets.token_urlsafe(12),
            before.made_ms if before else int(now_s * 1000),
            tuple(sorted(identity.principal.server_roles)),
            identity.token_hash,
            before.by_tokens if before else self._by_tokens,
        )
        return self.sign(cookie), until - int(now_s)

    async def revoke_cookie(self, text: str, now_s: float) -> None:
        """Sign a cookie out for good; what is not a cookie of this server's is passed over."""
        match self.verify_signed(text, now_s):
            case Cookie(name=name, id=cookie_id):
                await self._revoked_cookies.revoke(name, cookie_id, int(now_s + COOKIE_LIFETIME_S) + 1, now_s)

    def make_sign_in_code(self, now_s: float, session_id: str = "") -> str:
        """A code for whoever started this server, that holds once and for a quarter of an hour."""
        number = secrets.token_urlsafe(16)
        return self.sign(SignInCode(int(now_s + SIGN_IN_CODE_LIFETIME_S), self.start_id, number, session_id))

    def make_invite_id(self, session_id: str, roles: Iterable[str], by: str, key: str | None) -> str:
        """Return the id of a new invite; under a key it is the same one again."""
        named = "\0".join(["invite", session_id, *roles, by, key or ""]).encode(errors="surrogateescape")
        return "inv_" + (self._compute_signature(named).hex()[:32] if key else secrets.token_hex(16))

    def make_join_code(self, session_id: str, invite_id: str) -> str:
        """Return the code of a link that uses an invite."""
        return self.sign(JoinCode(session_id, invite_id))

    def redeem_code(self, code: str, now_s: float) -> SignInCode | JoinCode | None:
        """What a code says that is good. One to sign in is good once; the log sees to that for who joins."""
        match self.verify_signed(code, now_s):
            case SignInCode(until, start, number) as given if start == self.start_id:
                return given if self._use_code_once(number, until, now_s) else None
            case JoinCode() as join:
                return join
        return None

    def _use_code_once(self, number: str, until: int, now_s: float) -> bool:
        self._used_codes = {key: end for key, end in self._used_codes.items() if end > now_s}
        if number in self._used_codes or len(self._used_codes) >= MAX_USED_CODES:
            return False
        self._used_codes[number] = until
        return True

    def sign(self, value: SignedValue) -> str:
        """A value that only this server can have made."""
        data = msgspec.json.encode(value)
        return f"{b64url_encode(data)}.{b64url_encode(self._compute_signature(data))}"

    def verify_signed(self, text: str, now_s: float) -> SignedValue | None:
        """A value that was signed and still holds."""
        data, _, seal = text.partition(".")
        try:
            plain = b64url_decode(data)
            if not hmac.compare_digest(self._compute_signature(plain), b64url_decode(seal)):
                return None
            value = _decoder.decode(plain)
        except (ValueError, msgspec.DecodeError):
            return None
        if isinstance(value, JoinCode):
            return value
        return value if value.until > now_s else None

    def _compute_signature(self, data: bytes) -> bytes:
        return hmac.digest(self._key, data, "sha256")[:SIGNATURE_BYTES]


def hash_token(token: str) -> str:
    """What a token is known by."""
    return sha256(token.encode(errors="surrogateescape")).hexdigest()


def b64url_encode(data: bytes) -> str:
    """Bytes as they may stand in a URL and a cookie."""
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def b64url_decode(text: str) -> bytes:
    """The bytes of such a text; ValueError if it is none, or not as `coded` writes it."""
    data = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    if b64url_encode(data) != text:
        raise ValueError("not as it was written")
    return data
