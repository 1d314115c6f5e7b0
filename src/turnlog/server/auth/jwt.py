"""Tokens of an identity provider: signed JSON Web Tokens (RFC 7519) as bearer tokens. Needs `turnlog[jwt]`.

`Auth(key, verify=JwtTokens(...))` accepts them beside its own. The key, the algorithms, the audience and the
issuer are the server's; a token only names one of the algorithms, and all of them take the same kind of key
(RFC 8725). A token says who (`sub`), for whom (`aud`), by whom (`iss`) and until when (`exp`); without one of
these it is refused. The principal is called `<name>:<sub>`, after the name that the server gave the provider:
principals of different sources never share a name. The server's own map says which of the provider's roles
are server roles; every other role of the provider is ignored. The key is in a file, or the keys are fetched
from the provider (`jwks`); a token never says where its key is.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from turnlog.app import LOCAL, Principal
from turnlog.errors import BadInput, CallerError, quote
from turnlog.events.payload import Name, Record, Role
from turnlog.events.roles import SERVER_ROLES
from turnlog.events.strict_json import convert_strict
from turnlog.server.auth.credentials import Identity
from turnlog.server.auth.jwks import RemoteKeys
from turnlog.server.auth.keys import format_server_roles, is_convertible

if TYPE_CHECKING:
    from jwt.types import Options

MAX_TOKEN_CHARS = 16 * 1024
MIN_SECRET_BYTES = 32  # as many as SHA-256 has; fewer can be guessed
MIN_RSA_BITS = 2048
MAX_CLOCK_SKEW_S = 30.0  # how far the clock of whoever made a token may be ahead of ours

KEY_TYPE_BY_ALGORITHM: Mapping[str, str] = {
    **dict.fromkeys(("HS256", "HS384", "HS512"), "secret"),
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
    "EdDSA": "Ed25519",
}
# times are ours to check: they come in
DECODE_OPTIONS: "Options" = {
    "require": ["exp", "aud", "iss", "sub"],
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
}


NumericDate = Annotated[float, msgspec.Meta(ge=0, lt=1e12)]  # seconds since 1970


class JwtClaims(Record, frozen=True, kw_only=True):
    """What a token has to say, of which types."""

    sub: Name
    exp: NumericDate
    nbf: NumericDate = 0
    iat: NumericDate = 0

    def is_valid_at(self, now_s: float) -> bool:
        return max(self.nbf, self.iat) <= now_s + MAX_CLOCK_SKEW_S and now_s < self.exp


class JwtConfig(msgspec.Struct, forbid_unknown_fields=True):
    """What `turnlog serve --jwt` reads: one of `key_file`, which is looked for beside it, and `jwks_url`."""

    algorithms: tuple[str, ...]
    audience: str
    issuer: str
    key_file: str | None = None
    jwks_url: str | None = None
    name: str = "jwt"
    roles_claim: str = "roles"
    roles: dict[str, str] = {}


class JwtVerifier:
    """Reads tokens of one provider, given the key. `name` begins the names of its principals.

    `roles` maps roles of the provider, in the claim `roles_claim`, to server roles.
    """

    def __init__(
        self,
        algorithms: Sequence[str],
        audience: str,
        issuer: str,
        *,
        name: str = "jwt",
        roles_claim: str = "roles",
        roles: Mapping[str, str] = {},
    ) -> None:
        try:
            import jwt
        except ImportError:
            raise CallerError("JSON Web Tokens need PyJWT: pip install 'turnlog[jwt]'") from None
        if not audience or not issuer:
            raise CallerError("expected an audience and an issuer that tokens must name")
        self._jwt = jwt
        self.key_type = key_type_of(algorithms)
        self._algorithms = tuple(algorithms)
        self._audience = audience
        self._issuer = issuer
        self._prefix = make_provider_prefix(name)
        self._roles_claim = roles_claim
        self._roles = check_role_map(roles)

    def verify(self, token: str, key: Any, now_s: float) -> Identity | None:
        """Return who shows this token; None if it does not hold."""
        if len(token) > MAX_TOKEN_CHARS:
            return None
        try:
            given = self._jwt.decode(
                token,
                key,
                algorithms=self._algorithms,
                options=DECODE_OPTIONS,
                audience=self._audience,
                issuer=self._issuer,
            )
            claims = convert_strict(given, JwtClaims)
            theirs = convert_strict(given.get(self._roles_claim, []), list[str])
        except (self._jwt.PyJWTError, BadInput):
            return None
        name = self._prefix + claims.sub
        if not claims.is_valid_at(now_s) or not is_convertible(name, Name):
            return None
        roles = frozenset(self._roles[role] for role in theirs if role in self._roles)
        return Identity(Principal(name, roles), claims.exp)

    def read_key_id(self, token: str) -> tuple[bool, str | None]:
        """Return whether this looks like a token of the algorithms, and the id of the key that it names."""
        if len(token) > MAX_TOKEN_CHARS:
            return False, None
        try:
            header = self._jwt.get_unverified_header(token)
        except self._jwt.PyJWTError:
            return False, None
        return header.get("alg") in self._algorithms, header.get("kid")


class JwtTokens:
    """Tells who shows a token. `key` is a public key in PEM, or the secret of HS algorithms; for the rest see
    `TokenReader`."""

    def __init__(
        self, key: bytes, algorithms: Sequence[str], audience: str, issuer: str, **more: Any
    ) -> None:
        self._verifier = JwtVerifier(algorithms, audience, issuer, **more)
        self._key = load_verification_key(key, self._verifier.key_type)

    def __call__(self, token: str, now_s: float) -> Identity | None:
        """Return who shows this token; None if it does not hold."""
        return self._verifier.verify(token, self._key, now_s)


class JwksTokens:
    """Tells who shows a token, by the keys that its provider has at an address; for the rest see
    `TokenReader`. What is no token of the algorithms has no key looked for."""

    def __init__(self, url: str, algorithms: Sequence[str], audience: str, issuer: str, **more: Any) -> None:
        self._verifier = JwtVerifier(algorithms, audience, issuer, **more)
        kind = self._verifier.key_type
        if kind == "secret":
            raise CallerError("expected algorithms with public keys, such as RS256, for jwks_url")
        self._keys = RemoteKeys(url, lambda key: check_public_key(key, kind))

    async def __call__(self, token: str, now_s: float) -> Identity | None:
        """Return who shows this token; None if it does not hold."""
        is_token, kid = self._verifier.read_key_id(token)
        key = await self._keys.find_key(kid) if is_token else None
        return None if key is None else self._verifier.verify(token, key, now_s)


def load_jwt_tokens(file: Path) -> JwtTokens | JwksTokens:
    """The tokens that a file, TOML or JSON, says to accept."""
    decode = msgspec.json.decode if file.suffix == ".json" else msgspec.toml.decode
    try:
        said = decode(file.read_bytes(), type=JwtConfig)
        key = (file.parent / said.key_file).read_bytes() if said.key_file else b""
    except OSError as error:
        raise CallerError(f"cannot read {error.filename}: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CallerError(f"{file} does not say which tokens to accept: {error}") from None
    who = (said.algorithms, said.audience, said.issuer)
    more: dict[str, Any] = {"name": said.name, "roles_claim": said.roles_claim, "roles": said.roles}
    try:
        if bool(said.key_file) == bool(said.jwks_url):
            raise CallerError("expected one of key_file and jwks_url")
        if said.jwks_url:
            return JwksTokens(said.jwks_url, *who, **more)
        return JwtTokens(key.rstrip(b"\r\n"), *who, **more)
    except CallerError as error:
        raise CallerError(f"{file}: {error}") from None


def make_provider_prefix(name: str) -> str:
    """Return what the names of a provider's principals begin with."""
    if not is_convertible(name, Role) or name == LOCAL.name:
        said = "a name of small letters, digits, _ and - that begins with a letter"
        raise CallerError(f"expected {said} for the provider, got {quote(name)}")
    return f"{name}:"


def check_role_map(roles: Mapping[str, str]) -> dict[str, str]:
    """Return the map from a provider's roles to server roles, if it is one."""
    for role in roles.values():
        if role not in SERVER_ROLES:
            raise CallerError(f"expected roles to map to {format_server_roles()}, got {quote(role)}")
    return dict(roles)


def key_type_of(algorithms: Sequence[str]) -> str:
    """The one kind of key that the algorithms take."""
    unknown = [name for name in algorithms if name not in KEY_TYPE_BY_ALGORITHM]
    kinds = {KEY_TYPE_BY_ALGORITHM[name] for name in algorithms if name in KEY_TYPE_BY_ALGORITHM}
    if unknown or isinstance(algorithms, str):
        raise CallerError(
            f"expected algorithms out of {', '.join(KEY_TYPE_BY_ALGORITHM)}, got {str(algorithms)[:80]}"
        )
    if len(kinds) != 1:
        raise CallerError("expected algorithms that take the same kind of key, such as RS256 and PS256")
    return kinds.pop()


def load_verification_key(key: bytes, key_type: str) -> Any:
    """A key that is of this kind, and strong enough."""
    if key_type == "secret":
        if len(key) < MIN_SECRET_BYTES or b"-----BEGIN" in key:
            raise CallerError(f"expected a secret of at least {MIN_SECRET_BYTES} bytes, and no key in PEM")
        return key
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        public = load_pem_public_key(key)
    except (ValueError, UnsupportedAlgorithm):
        raise CallerError(f"expected a public {key_type} key in PEM") from None
    return check_public_key(public, key_type)


def check_public_key(public: Any, key_type: str) -> Any:
    """A public key that is of this kind, and strong enough."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    wanted = {"RSA": rsa.RSAPublicKey, "EC": ec.EllipticCurvePublicKey, "Ed25519": ed25519.Ed25519PublicKey}
    if not isinstance(public, wanted[key_type]):
        raise CallerError(f"expected a public {key_type} key, got another kind of key")
    if isinstance(public, rsa.RSAPublicKey) and public.key_size < MIN_RSA_BITS:
        raise CallerError(f"expected an RSA key of at least {MIN_RSA_BITS} bits, got {public.key_size}")
    return public
