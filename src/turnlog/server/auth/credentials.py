"""Bearer tokens, cookies and one-time codes (protocol section 8.1). Time comes in as an argument.

- A token is stored by its hash only.
- Cookies and codes are values signed with the server's key, with their own expiry. The key is stored beside
  the log, so a page stays signed in when the server restarts.
- A sign-in code is valid once, and only for the start of the server that made it.
- A join code names an invite; the log decides whether the invite is open.
- A cookie that was made from a token ends with the token. A cookie that was signed out is refused until it
  would have expired (`revocation`).
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
from turnlog.server.auth.revocation import RevokedCookies

COOKIE_LIFETIME_S = 30 * 24 * 3600
SIGN_IN_CODE_LIFETIME_S = 15 * 60
SIGNATURE_BYTES = 24
MAX_USED_CODES = 1024  # used sign-in codes that are stored until they expire


class Cookie(msgspec.Struct, frozen=True, tag="cookie"):
    """The sign-in of a browser. Cookies that replace each other in one browser have the same id.

    `by_tokens` is whether the server that made it accepted tokens.
    """

    until: int
    name: str
    id: str
    made_ms: int
    roles: tuple[str, ...] = ()
    token: str = ""
    by_tokens: bool = False


class Identity(NamedTuple):
    """An authenticated principal; `expires_at_s` is in seconds since 1970, None for no expiry.

    `token_hash` is that of the token it signed in with, `cookie` the cookie of the request.
    """

    principal: Principal
    expires_at_s: float | None = None
    token_hash: str = ""
    cookie: Cookie | None = None


class SignInCode(msgspec.Struct, frozen=True, tag="sign-in"):
    """Signs in the person who started the server, once; `session` is the session to open."""

    until: int
    start: str
    number: str
    session: str = ""


class JoinCode(msgspec.Struct, frozen=True, tag="join"):
    """Makes one person a member. The invite in the log has the roles and the expiry."""

    session: str
    invite: str


SignedValue = Cookie | SignInCode | JoinCode
_decoder: msgspec.json.Decoder[SignedValue] = msgspec.json.Decoder(SignedValue)


class Authenticator(Protocol):
    """Authenticates every request. An application with users of its own implements it.

    `authenticate` may wait for a database or a provider; other requests are served meanwhile.
    """

    async def authenticate(self, connection: HTTPConnection, now_s: float) -> Identity | None:
        """Return the caller, or None if the request has no valid credentials."""
        ...


TokenVerifier = Callable[[str, float], "Identity | Awaitable[Identity | None] | None"]
"""Returns the identity of a token, at once or when its key has been fetched; None for an invalid token."""


UseCode = Callable[[str, int], Awaitable[bool]]
"""Returns whether no server has accepted the code of a number and an expiry before."""


async def accept_code(number: str, until: int) -> bool:
    """Accept a code: no other server has the key that signed it."""
    return True


def reject_token(token: str, now_s: float) -> Identity | None:
    return None


class BuiltinAuth:
    """The server's own sign-in: tokens, links and cookies."""

    def __init__(
        self,
        key: bytes,
        tokens: Mapping[str, Principal] | None = None,
        verify: TokenVerifier = reject_token,
        start_id: str = "",
        revoked_cookies: RevokedCookies | None = None,
    ) -> None:
        """Make codes for the running server that `start_id` names. Without one, this is a new server."""
        self._key = key
        self._tokens = dict(tokens or {})
        self._by_tokens = tokens is not None or verify is not reject_token
        self.revoked_cookies = revoked_cookies or RevokedCookies()
        # servers that share a log ask it, so that a code is used once over all of them
        self.use_code: UseCode = accept_code
        self._verify = verify
        self.start_id = start_id or secrets.token_urlsafe(16)
        self._used_codes: dict[str, int] = {}
        # Servers on other ports of the host get the same cookies, so each has its own name.
        self.cookie_name = "turnlog_" + sha256(b"name:" + key).hexdigest()[:8]

    async def authenticate(self, connection: HTTPConnection, now_s: float) -> Identity | None:
        """Authenticate by the header Authorization if there is one, or else by the cookie."""
        scheme, _, token = connection.headers.get("authorization", "").partition(" ")
        if not scheme:
            return self._authenticate_cookie(connection.cookies.get(self.cookie_name, ""), now_s)
        if scheme.lower() != "bearer":
            return None
        return await self._authenticate_bearer(token.strip(), now_s)

    async def _authenticate_bearer(self, token: str, now_s: float) -> Identity | None:
        digest = hash_token(token)
        principal = self._tokens.get(digest)
        if principal is not None:
            return Identity(principal, token_hash=digest)

        result = self._verify(token, now_s)
        if result is None or isinstance(result, Identity):
            return result
        return await result

    def _authenticate_cookie(self, text: str, now_s: float) -> Identity | None:
        cookie = self.verify_signed(text, now_s)
        if not isinstance(cookie, Cookie) or not self._is_cookie_valid(cookie):
            return None
        # A cookie of a token has the roles that the token has now.
        principal = self._tokens.get(cookie.token) or Principal(cookie.name, frozenset(cookie.roles))
        return Identity(principal, cookie.until, cookie.token, cookie)

    def _is_cookie_valid(self, cookie: Cookie) -> bool:
        if cookie.token and cookie.token not in self._tokens:
            return False
        # The local owner of a server without tokens owns everything on it. When the server accepts tokens,
        # other people may reach it: that cookie is not valid any more.
        is_local_owner = cookie.name == LOCAL.name and not cookie.token
        if is_local_owner and self._by_tokens and not cookie.by_tokens:
            return False
        return not self.revoked_cookies.is_revoked(cookie.name, cookie.id, cookie.made_ms)

    def is_still_valid(self, identity: Identity) -> bool:
        if identity.cookie is not None and not self._is_cookie_valid(identity.cookie):
            return False
        return not identity.token_hash or self._tokens.get(identity.token_hash) == identity.principal

    def set_tokens(self, tokens: Mapping[str, Principal]) -> None:
        self._tokens = dict(tokens)

    def make_cookie(self, identity: Identity, now_s: float) -> tuple[str, int]:
        """Return a signed cookie and its lifetime in seconds.

        A cookie that replaces another has the same id: a copy of the old one must not outlive the sign-out.
        """
        until_s = now_s + COOKIE_LIFETIME_S
        if identity.expires_at_s is not None:
            until_s = min(until_s, identity.expires_at_s)
        until = int(until_s)

        replaced = identity.cookie
        cookie = Cookie(
            until,
            identity.principal.name,
            replaced.id if replaced else secrets.token_urlsafe(12),
            replaced.made_ms if replaced else int(now_s * 1000),
            tuple(sorted(identity.principal.server_roles)),
            identity.token_hash,
            replaced.by_tokens if replaced else self._by_tokens,
        )
        return self.sign(cookie), until - int(now_s)

    async def revoke_cookie(self, text: str, now_s: float) -> None:
        """Revoke a cookie for good. Ignore a text that is not a valid cookie of this server."""
        cookie = self.verify_signed(text, now_s)
        if isinstance(cookie, Cookie):
            until = int(now_s + COOKIE_LIFETIME_S) + 1
            await self.revoked_cookies.revoke(cookie.name, cookie.id, until, now_s)

    def make_sign_in_code(self, now_s: float, session_id: str = "") -> str:
        """Return a code that signs the person in who started this server, once."""
        until = int(now_s + SIGN_IN_CODE_LIFETIME_S)
        return self.sign(SignInCode(until, self.start_id, secrets.token_urlsafe(16), session_id))

    def make_invite_id(self, session_id: str, roles: Iterable[str], by: str, key: str | None) -> str:
        """Return the id of a new invite. Under an idempotency key it is always the same id."""
        if not key:
            return "inv_" + secrets.token_hex(16)
        text = "\0".join(["invite", session_id, *roles, by, key])
        return "inv_" + self._compute_signature(text.encode(errors="surrogateescape")).hex()[:32]

    def make_join_code(self, session_id: str, invite_id: str) -> str:
        return self.sign(JoinCode(session_id, invite_id))

    def redeem_code(self, code: str, now_s: float) -> SignInCode | JoinCode | None:
        """Return the value of a valid code, or None.

        A sign-in code is used up by it on this server; `use_code` says whether another one has accepted it. A
        join code is not used up: the log uses up its invite.
        """
        value = self.verify_signed(code, now_s)
        if isinstance(value, JoinCode):
            return value
        if not isinstance(value, SignInCode) or value.start != self.start_id:
            return None
        return value if self._use_code_once(value.number, value.until, now_s) else None

    def _use_code_once(self, number: str, until: int, now_s: float) -> bool:
        self._used_codes = {key: end for key, end in self._used_codes.items() if end > now_s}
        if number in self._used_codes or len(self._used_codes) >= MAX_USED_CODES:
            return False
        self._used_codes[number] = until
        return True

    def sign(self, value: SignedValue) -> str:
        data = msgspec.json.encode(value)
        return f"{b64url_encode(data)}.{b64url_encode(self._compute_signature(data))}"

    def verify_signed(self, text: str, now_s: float) -> SignedValue | None:
        """Return the value of a signed text; None if the signature is wrong or the value has expired."""
        encoded, _, signature = text.partition(".")
        try:
            data = b64url_decode(encoded)
            if not hmac.compare_digest(self._compute_signature(data), b64url_decode(signature)):
                return None
            value = _decoder.decode(data)
        except (ValueError, msgspec.DecodeError):
            return None
        if isinstance(value, JoinCode):
            return value
        return value if value.until > now_s else None

    def _compute_signature(self, data: bytes) -> bytes:
        return hmac.digest(self._key, data, "sha256")[:SIGNATURE_BYTES]


def hash_token(token: str) -> str:
    return sha256(token.encode(errors="surrogateescape")).hexdigest()


def b64url_encode(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


def b64url_decode(text: str) -> bytes:
    """Decode a text of `b64url_encode`. Raise ValueError for every other spelling of the same bytes."""
    data = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
    if b64url_encode(data) != text:
        raise ValueError("not canonical base64url")
    return data
