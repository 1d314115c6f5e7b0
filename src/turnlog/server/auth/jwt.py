"""Tokens of an identity provider: signed JSON Web Tokens (RFC 7519) as bearer tokens. Needs `turnlog[jwt]`.

`BuiltinAuth(key, verify=JwtTokens(...))` accepts them beside its own tokens.

- The server configures the key, the algorithms, the audience and the issuer. A token only names one of the
  algorithms, and all of them take the same type of key (RFC 8725).
- A token without `sub`, `aud`, `iss` or `exp` is refused.
- The principal is `<name>:<sub>`, with the configured name of the provider: principals of different
  providers never share a name.
- A configured map gives roles of the provider server roles; other roles are ignored.
- The key is in a file, or the keys are fetched (`jwks`); a token cannot name the address of its key.
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
MAX_CLOCK_SKEW_S = 30.0  # how far the provider's clock may be ahead of ours

KEY_TYPE_BY_ALGORITHM: Mapping[str, str] = {
    **dict.fromkeys(("HS256", "HS384", "HS512"), "secret"),
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
    "EdDSA": "Ed25519",
}
# PyJWT must not check times: `verify` gets the time as an argument.
DECODE_OPTIONS: "Options" = {
    "require": ["exp", "aud", "iss", "sub"],
    "verify_exp": False,
    "verify_nbf": False,
    "verify_iat": False,
}


NumericDate = Annotated[float, msgspec.Meta(ge=0, lt=1e12)]  # seconds since 1970


class JwtClaims(Record, frozen=True, kw_only=True):
    """The claims that are checked here."""

    sub: Name
    exp: NumericDate
    nbf: NumericDate = 0
    iat: NumericDate = 0

    def is_valid_at(self, now_s: float) -> bool:
        return max(self.nbf, self.iat) <= now_s + MAX_CLOCK_SKEW_S and now_s < self.exp


class JwtConfig(msgspec.Struct, forbid_unknown_fields=True):
    """The file of `turnlog serve --jwt`: either `key_file`, a path relative to it, or `jwks_url`."""

    algorithms: tuple[str, ...]
    audience: str
    issuer: str
    key_file: str | None = None
    jwks_url: str | None = None
    name: str = "jwt"
    roles_claim: str = "roles"
    roles: dict[str, str] = {}


class JwtVerifier:
    """Verifies tokens of one provider with a key. The names of its principals begin with `name`.

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
        if len(token) > MAX_TOKEN_CHARS:
            return None
        try:
            decoded = self._jwt.decode(
                token,
                key,
                algorithms=self._algorithms,
                options=DECODE_OPTIONS,
                audience=self._audience,
                issuer=self._issuer,
            )
            claims = convert_strict(decoded, JwtClaims)
            provider_roles = convert_strict(decoded.get(self._roles_claim, []), list[str])
        except (self._jwt.PyJWTError, BadInput):
            return None

        name = self._prefix + claims.sub
        if not claims.is_valid_at(now_s) or not is_convertible(name, Name):
            return None
        roles = frozenset(self._roles[role] for role in provider_roles if role in self._roles)
        return Identity(Principal(name, roles), claims.exp)

    def read_key_id(self, token: str) -> tuple[bool, str | None]:
        """Return whether this is a token of the algorithms, and the id of the key that it names."""
        if len(token) > MAX_TOKEN_CHARS:
            return False, None
        try:
            header = self._jwt.get_unverified_header(token)
        except self._jwt.PyJWTError:
            return False, None
        return header.get("alg") in self._algorithms, header.get("kid")


class JwtTokens:
    """Verifies tokens with one key: a public key in PEM, or the secret of HS algorithms.

    The other arguments are those of `JwtVerifier`.
    """

    def __init__(
        self, key: bytes, algorithms: Sequence[str], audience: str, issuer: str, **more: Any
    ) -> None:
        self._verifier = JwtVerifier(algorithms, audience, issuer, **more)
        self._key = load_verification_key(key, self._verifier.key_type)

    def __call__(self, token: str, now_s: float) -> Identity | None:
        return self._verifier.verify(token, self._key, now_s)


class JwksTokens:
    """Verifies tokens with the keys that the provider publishes at an address.

    The other arguments are those of `JwtVerifier`.
    """

    def __init__(self, url: str, algorithms: Sequence[str], audience: str, issuer: str, **more: Any) -> None:
        self._verifier = JwtVerifier(algorithms, audience, issuer, **more)
        key_type = self._verifier.key_type
        if key_type == "secret":
            raise CallerError("expected algorithms with public keys, such as RS256, for jwks_url")
        self._keys = RemoteKeys(url, lambda key: check_public_key(key, key_type))

    async def __call__(self, token: str, now_s: float) -> Identity | None:
        is_token, kid = self._verifier.read_key_id(token)
        if not is_token:
            return None
        key = await self._keys.find_key(kid)
        if key is None:
            return None
        return self._verifier.verify(token, key, now_s)


def load_jwt_tokens(file: Path) -> JwtTokens | JwksTokens:
    decode = msgspec.json.decode if file.suffix == ".json" else msgspec.toml.decode
    try:
        config = decode(file.read_bytes(), type=JwtConfig)
        key = (file.parent / config.key_file).read_bytes() if config.key_file else b""
    except OSError as error:
        raise CallerError(f"cannot read {error.filename}: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CallerError(f"{file} is not a JWT configuration: {error}") from None

    required = (config.algorithms, config.audience, config.issuer)
    options: dict[str, Any] = {
        "name": config.name,
        "roles_claim": config.roles_claim,
        "roles": config.roles,
    }
    try:
        if bool(config.key_file) == bool(config.jwks_url):
            raise CallerError("expected one of key_file and jwks_url")
        if config.jwks_url:
            return JwksTokens(config.jwks_url, *required, **options)
        return JwtTokens(key.rstrip(b"\r\n"), *required, **options)
    except CallerError as error:
        raise CallerError(f"{file}: {error}") from None


def make_provider_prefix(name: str) -> str:
    """Return the prefix of the names of a provider's principals. Raise `CallerError` for an invalid name."""
    if not is_convertible(name, Role) or name == LOCAL.name:
        raise CallerError(
            "expected a name of small letters, digits, _ and - that begins with a letter for the provider, "
            f"got {quote(name)}"
        )
    return f"{name}:"


def check_role_map(roles: Mapping[str, str]) -> dict[str, str]:
    """Return a copy of the map. Raise `CallerError` if a value is not a server role."""
    for role in roles.values():
        if role not in SERVER_ROLES:
            raise CallerError(f"expected roles to map to {format_server_roles()}, got {quote(role)}")
    return dict(roles)


def key_type_of(algorithms: Sequence[str]) -> str:
    """Return the type of key that all algorithms take. Raise `CallerError` if there is not one."""
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
    """Parse a key. Raise `CallerError` if it is of another type or too weak."""
    if key_type == "secret":
        if len(key) < MIN_SECRET_BYTES or b"-----BEGIN" in key:
            raise CallerError(f"expected a secret of at least {MIN_SECRET_BYTES} bytes, not a key in PEM")
        return key
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        public = load_pem_public_key(key)
    except (ValueError, UnsupportedAlgorithm):
        raise CallerError(f"expected a public {key_type} key in PEM") from None
    return check_public_key(public, key_type)


def check_public_key(public: Any, key_type: str) -> Any:
    """Return the key. Raise `CallerError` if it is of another type or too weak."""
    from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

    key_classes = {
        "RSA": rsa.RSAPublicKey,
        "EC": ec.EllipticCurvePublicKey,
        "Ed25519": ed25519.Ed25519PublicKey,
    }
    if not isinstance(public, key_classes[key_type]):
        raise CallerError(f"expected a public {key_type} key, got another kind of key")
    if isinstance(public, rsa.RSAPublicKey) and public.key_size < MIN_RSA_BITS:
        raise CallerError(f"expected an RSA key of at least {MIN_RSA_BITS} bits, got {public.key_size}")
    return public
