"""The key set of an identity provider (JWKS, RFC 7517), fetched and cached. Needs `turnlog[jwt]`.

`RemoteKeys.find_key` returns the public key that a token names by its `kid`. Keys that are older than
`REFRESH_AFTER_S` are fetched again in the background; a request waits only for a key that is missing. The
server fetches at most once in `FETCH_COOLDOWN_S`, whatever tokens name. If the provider cannot be reached, or
its response is not a key set, the cached keys stay valid. A response has at most `MAX_KEY_SET_BYTES` and
`FETCH_TIMEOUT_S`. The address is https, or http on loopback; redirects are not followed. PyJWT parses the
keys; its own client does not bound a response, and has no keys while the provider is down.
"""

import asyncio
import http.client
import logging
import time
import urllib.request
from collections.abc import Callable
from contextvars import Context
from typing import Any
from urllib.parse import urlsplit

import msgspec

from turnlog.errors import BadInput, CallerError, quote
from turnlog.events import strict_json

log = logging.getLogger("turnlog.server")

MAX_KEY_SET_BYTES = 256 * 1024  # a key takes about 2 KiB with its certificates
FETCH_TIMEOUT_S = 10.0
REFRESH_AFTER_S = 300.0
FETCH_COOLDOWN_S = 10.0
LOOPBACK_HOSTS = frozenset({"127.0.0.1", "::1", "localhost"})

KeyCheck = Callable[[Any], Any]
"""Returns a key of the right type and strength; raises `CallerError` for another."""


class KeySet(msgspec.Struct):
    """A key set. PyJWT parses each key."""

    keys: list[dict[str, Any]]


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """Makes a redirect an error: it could lead to an address that is not allowed."""

    def redirect_request(self, *_: Any) -> None:
        return None


class RemoteKeys:
    """The cached keys of a provider. One task fetches; all requests that need it wait for the same task."""

    def __init__(self, url: str, check: KeyCheck) -> None:
        self._url = check_jwks_url(url)
        self._check = check
        self._keys: dict[str | None, Any] = {}
        self._last_fetch_s: float | None = None
        self._last_attempt_s: float | None = None
        self._fetch_task: asyncio.Task[None] | None = None

    async def find_key(self, kid: str | None) -> Any | None:
        """Return the key of this id, or without an id the only key; None if there is no such key."""
        now_s = asyncio.get_running_loop().time()
        is_fresh = self._last_fetch_s is not None and now_s - self._last_fetch_s < REFRESH_AFTER_S
        if self._look_up(kid) is None or not is_fresh:
            self._start_fetch(now_s)
        if self._look_up(kid) is None and self._fetch_task is not None:
            await asyncio.shield(self._fetch_task)
        return self._look_up(kid)

    def _look_up(self, kid: str | None) -> Any | None:
        if kid is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return self._keys.get(kid)

    def _start_fetch(self, now_s: float) -> None:
        if self._last_attempt_s is not None and now_s - self._last_attempt_s < FETCH_COOLDOWN_S:
            return
        self._last_attempt_s = now_s
        # The fetch serves all requests: its context must not refer to the first one.
        self._fetch_task = asyncio.create_task(self._fetch(), context=Context())

    async def _fetch(self) -> None:
        try:
            data = await asyncio.to_thread(download_key_set, self._url)
            self._keys = parse_key_set(data, self._check)
            self._last_fetch_s = asyncio.get_running_loop().time()
        except (OSError, http.client.HTTPException, BadInput, ValueError) as error:
            log.warning("the keys of the identity provider could not be fetched: %s", type(error).__name__)
        finally:
            self._fetch_task = None


def check_jwks_url(url: str) -> str:
    """Return the address. Raise `CallerError` if keys may not be fetched from it."""
    if not is_allowed_url(url):
        raise CallerError(f"expected jwks_url to begin with https://, got {quote(url)}")
    return url


def is_allowed_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        host = parts.hostname
    except ValueError:
        return False
    if parts.scheme == "http":
        return host in LOOPBACK_HOSTS
    return parts.scheme == "https" and bool(host)


def download_key_set(url: str) -> bytes:
    """Fetch an address, within the limits of size and time. Raise OSError, HTTPException or ValueError."""
    end_s = time.monotonic() + FETCH_TIMEOUT_S
    handlers: list[Any] = [NoRedirects]
    if urlsplit(url).hostname in LOOPBACK_HOSTS:
        handlers.append(urllib.request.ProxyHandler({}))  # loopback of a proxy is another machine
    opener = urllib.request.build_opener(*handlers)
    data = bytearray()
    request = urllib.request.Request(url, headers={"accept": "application/json"})
    with opener.open(request, timeout=FETCH_TIMEOUT_S) as response:
        while piece := response.read1(MAX_KEY_SET_BYTES):
            data += piece
            if len(data) > MAX_KEY_SET_BYTES:
                raise ValueError("the response is too large")
            if time.monotonic() > end_s:
                raise TimeoutError("the response takes too long")
    return bytes(data)


def parse_key_set(data: bytes, check: KeyCheck) -> dict[str | None, Any]:
    """Return the signing keys of a key set that pass the check, by their ids.

    Raise `BadInput` if it is not a key set or has no such key. Keys of other types are skipped.
    """
    import jwt

    keys: dict[str | None, Any] = {}
    for entry in strict_json.decode_strict_json(data, KeySet).keys:
        kid = entry.get("kid")
        if entry.get("use", "sig") != "sig" or not isinstance(kid, str | None):
            continue
        try:
            keys[kid] = check(jwt.PyJWK.from_dict(entry).key)
        except (jwt.PyJWTError, CallerError, ValueError, TypeError):
            continue
    if not keys:
        raise BadInput("expected a key set with a key of the algorithms", "$.keys")
    return keys
