"""The key set of an identity provider (JWKS, RFC 7517), fetched and kept. Needs `turnlog[jwt]`.

`RemoteKeys.find` returns the public key that a token names by its `kid`. Keys that are older than `REFRESH_S`
are fetched again beside the request; one that is not there is waited for. The server fetches at most once in
`COOLDOWN_S`, whatever tokens name. When the provider cannot be reached, or its answer is no key set, the keys
that the server has stay good. An answer has `MAX_BYTES` and `FETCH_S` at most; the address is https, or http
on loopback, and redirects are not followed. PyJWT reads the keys; its own client does not bound an answer,
and has no keys while the provider is down.
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
"""Returns a key of the right kind and strength; raises `CallerError` for another."""


class KeySet(msgspec.Struct):
    """What a provider answers; what is in a key is PyJWT's to read."""

    keys: list[dict[str, Any]]


class NoRedirects(urllib.request.HTTPRedirectHandler):
    """A redirect is an error: it could lead to an address that is not allowed."""

    def redirect_request(self, *_: Any) -> None:
        return None


class RemoteKeys:
    """The keys of a provider. One task fetches, and all who wait for it wait for the same."""

    def __init__(self, url: str, check: KeyCheck) -> None:
        self._url = check_jwks_url(url)
        self._check = check
        self._keys: dict[str | None, Any] = {}
        self._last_fetch_s: float | None = None
        self._last_attempt_s: float | None = None
        self._fetch_task: asyncio.Task[None] | None = None

    async def find_key(self, kid: str | None) -> Any | None:
        """Return the key of this id; without an id the only one there is; None if there is none."""
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
        # The fetch serves everyone: it keeps nothing of the request that came first.
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
    """Return an address that keys may be fetched from."""
    try:
        scheme, host = urlsplit(url).scheme, urlsplit(url).hostname
    except ValueError:
        scheme, host = "", None
    if not host or not (scheme == "https" or (scheme == "http" and host in LOOPBACK_HOSTS)):
        raise CallerError(f"expected jwks_url to begin with https://, got {quote(url)}")
    return url


def download_key_set(url: str) -> bytes:
    """Fetch an address, within a size and a time. Raise OSError, HTTPException or ValueError."""
    end_s = time.monotonic() + FETCH_TIMEOUT_S
    handlers: list[Any] = [NoRedirects]
    if urlsplit(url).hostname in LOOPBACK_HOSTS:
        handlers.append(urllib.request.ProxyHandler({}))  # a proxy has another loopback
    opener = urllib.request.build_opener(*handlers)
    data = bytearray()
    request = urllib.request.Request(url, headers={"accept": "application/json"})
    with opener.open(request, timeout=FETCH_TIMEOUT_S) as answer:
        while piece := answer.read1(MAX_KEY_SET_BYTES):
            data += piece
            if len(data) > MAX_KEY_SET_BYTES:
                raise ValueError("the answer is too large")
            if time.monotonic() > end_s:
                raise TimeoutError("the answer takes too long")
    return bytes(data)


def parse_key_set(data: bytes, check: KeyCheck) -> dict[str | None, Any]:
    """Return the keys of a key set that sign tokens and pass the check, by their ids.

    Raise BadInput if it is no key set. Keys of other kinds are passed over, as a provider may have several.
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
