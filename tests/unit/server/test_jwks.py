"""The key set of a provider: a real server on loopback, whose keys and faults change while tokens come."""

import asyncio
import json
import logging
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from turnlog.errors import CallerError
from turnlog.server.auth import jwks
from turnlog.server.auth.credentials import Identity
from turnlog.server.auth.jwt import JwksTokens, load_jwt_tokens

NOW = 1_800_000_000.0
CLAIMS = {"sub": "ada", "exp": NOW + 60, "aud": "turnlog", "iss": "https://id.example"}
OLD, NEW = rsa.generate_private_key(65537, 2048), rsa.generate_private_key(65537, 2048)
WEAK = rsa.generate_private_key(65537, 1024)
CURVE = ec.generate_private_key(ec.SECP256R1())


def entry(private: Any, kid: str | None, **more: str) -> dict[str, Any]:
    """A public key as a provider publishes it."""
    algorithm: Any = ECAlgorithm if private is CURVE else RSAAlgorithm
    found: dict[str, Any] = json.loads(algorithm.to_jwk(private.public_key()))
    return found | ({"kid": kid} if kid else {}) | more


class Provider:
    """An identity provider that answers with `body`; `asked` counts the requests."""

    def __init__(self) -> None:
        self.body = b""
        self.status = 200
        self.headers: dict[str, str] = {}
        self.asked = 0
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.asked += 1
                self.send_response(provider.status)
                for name, value in provider.headers.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(provider.body)

            def log_message(self, *_: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/keys"

    def publish(self, *entries: dict[str, Any]) -> None:
        self.body, self.status = json.dumps({"keys": entries}).encode(), 200

    def fail(self) -> None:
        self.status = 503


@pytest.fixture
def provider() -> Iterator[Provider]:
    made = Provider()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    yield made
    made.server.shutdown()
    made.server.server_close()
    thread.join()


@pytest.fixture
def no_cooldown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jwks, "FETCH_COOLDOWN_S", 0.0)


def accepting(provider: Provider, *algorithms: str) -> JwksTokens:
    return JwksTokens(provider.url, algorithms or ("RS256",), "turnlog", "https://id.example")


def signed(private: Any, kid: str | None = None, algorithm: str = "RS256") -> str:
    return jwt.encode(CLAIMS, private, algorithm, {"kid": kid} if kid else None)


def is_ada(known: Identity | None) -> bool:
    return known is not None and known.principal.name == "jwt:ada"


def test_key_of_the_provider_accepts_tokens_and_is_fetched_once(provider: Provider) -> None:
    async def scenario() -> None:
        provider.publish(entry(OLD, "old"), entry(NEW, "new"))
        accept = accepting(provider)
        shown = [accept(signed(key, kid), NOW) for key, kid in ((OLD, "old"), (NEW, "new"), (OLD, "old"))]
        assert all(map(is_ada, await asyncio.gather(*shown)))
        assert await accept(signed(NEW, "old"), NOW) is None
        assert provider.asked == 1

    asyncio.run(scenario())


@pytest.mark.usefixtures("no_cooldown")
def test_keys_that_the_provider_changes_are_taken_without_a_restart(provider: Provider) -> None:
    async def scenario() -> None:
        provider.publish(entry(OLD, "old"))
        accept = accepting(provider)
        assert is_ada(await accept(signed(OLD, "old"), NOW))
        provider.publish(entry(NEW, "new"))
        assert is_ada(await accept(signed(NEW, "new"), NOW))
        assert await accept(signed(OLD, "old"), NOW) is None

    asyncio.run(scenario())


def test_tokens_with_random_key_ids_cause_no_second_fetch(provider: Provider) -> None:
    async def scenario() -> None:
        provider.publish(entry(OLD, "old"))
        accept = accepting(provider)
        forged = [accept(signed(NEW, f"random-{number}"), NOW) for number in range(50)]
        assert set(await asyncio.gather(*forged)) == {None}
        assert is_ada(await accept(signed(OLD, "old"), NOW))
        assert provider.asked == 1

    asyncio.run(scenario())


@pytest.mark.usefixtures("no_cooldown")
def test_control_without_a_cooldown_every_random_key_id_is_a_fetch(provider: Provider) -> None:
    async def scenario() -> None:
        provider.publish(entry(OLD, "old"))
        accept = accepting(provider)
        for number in range(5):
            assert await accept(signed(NEW, f"random-{number}"), NOW) is None
        assert provider.asked == 5

    asyncio.run(scenario())


def test_what_is_no_token_of_the_algorithms_causes_no_fetch(provider: Provider) -> None:
    async def scenario() -> None:
        accept = accepting(provider)
        for text in ("", "a.b.c", "x" * 20_000, jwt.encode(CLAIMS, "s" * 40, "HS256", {"kid": "old"})):
            assert await accept(text, NOW) is None
        assert provider.asked == 0

    asyncio.run(scenario())


@pytest.mark.usefixtures("no_cooldown")
def test_keys_stay_good_while_the_provider_is_down(
    provider: Provider, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        provider.publish(entry(OLD, "old"))
        accept = accepting(provider)
        assert is_ada(await accept(signed(OLD, "old"), NOW))
        provider.fail()
        monkeypatch.setattr(jwks, "REFRESH_AFTER_S", 0.0)
        assert is_ada(await accept(signed(OLD, "old"), NOW))
        assert await accept(signed(NEW, "new"), NOW) is None  # waits for the fetch, which fails
        assert is_ada(await accept(signed(OLD, "old"), NOW))

    caplog.set_level(logging.WARNING)
    asyncio.run(scenario())
    assert "could not be fetched: HTTPError" in caplog.text


@pytest.mark.usefixtures("no_cooldown")
def test_server_that_began_without_the_provider_takes_its_keys_later(provider: Provider) -> None:
    async def scenario() -> None:
        provider.fail()
        accept = accepting(provider)
        assert await accept(signed(OLD, "old"), NOW) is None
        provider.publish(entry(OLD, "old"))
        assert is_ada(await accept(signed(OLD, "old"), NOW))

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "body",
    [
        b'{"keys":[' + b" " * jwks.MAX_KEY_SET_BYTES + b"]}",
        b"no JSON",
        b"[]",
        b'{"keys":[]}',
        b'{"keys":[1]}',
        json.dumps({"keys": [entry(WEAK, "old")]}).encode(),
        json.dumps({"keys": [entry(CURVE, "old")]}).encode(),
        json.dumps({"keys": [entry(OLD, "old", use="enc")]}).encode(),
        json.dumps({"keys": [{"kty": "oct", "kid": "old", "k": "c2VjcmV0"}]}).encode(),
        json.dumps({"keys": [{"kty": "RSA", "kid": "old"}, {"kty": "new kind", "kid": "x"}]}).encode(),
    ],
    ids=["large", "text", "list", "empty", "number", "weak", "other kind", "encryption", "secret", "broken"],
)
def test_answer_that_is_no_key_set_of_the_algorithms_is_not_taken(provider: Provider, body: bytes) -> None:
    async def scenario() -> None:
        provider.body = body
        assert await accepting(provider)(signed(OLD, "old"), NOW) is None

    asyncio.run(scenario())


def test_redirect_is_not_followed(provider: Provider) -> None:
    async def scenario() -> None:
        provider.publish(entry(OLD, "old"))
        provider.status, provider.headers = 302, {"location": provider.url}
        assert await accepting(provider)(signed(OLD, "old"), NOW) is None
        assert provider.asked == 1

    asyncio.run(scenario())


def test_answer_that_takes_too_long_is_given_up(provider: Provider, monkeypatch: pytest.MonkeyPatch) -> None:
    provider.publish(entry(OLD, "old"))
    monkeypatch.setattr(jwks, "FETCH_TIMEOUT_S", 30.0)
    monkeypatch.setattr("turnlog.server.auth.jwks.time.monotonic", iter([0.0, 31.0]).__next__)
    with pytest.raises(TimeoutError):
        jwks.download_key_set(provider.url)


@pytest.mark.parametrize(("keys", "accepted"), [([OLD], True), ([OLD, NEW], False)])
def test_token_without_a_key_id_is_for_the_only_key(
    provider: Provider, keys: list[Any], accepted: bool
) -> None:
    async def scenario() -> None:
        provider.publish(*[entry(key, str(number)) for number, key in enumerate(keys)])
        assert is_ada(await accepting(provider)(signed(OLD), NOW)) == accepted

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "url",
    ["http://id.example/keys", "file:///etc/passwd", "ftp://127.0.0.1/x", "https://", "keys", "http://[1"],
)
def test_address_that_is_not_https_or_loopback_is_refused(url: str) -> None:
    with pytest.raises(CallerError, match="expected jwks_url to begin with https://"):
        JwksTokens(url, ["RS256"], "turnlog", "https://id.example")


def test_secret_algorithms_have_no_key_set() -> None:
    with pytest.raises(CallerError, match="public keys"):
        JwksTokens("https://id.example", ["HS256"], "turnlog", "https://id.example")


def test_file_with_an_address_accepts_tokens(provider: Provider, tmp_path: Path) -> None:
    async def scenario() -> None:
        provider.publish(entry(CURVE, "old"))
        file = tmp_path / "jwt.toml"
        lines = [f'jwks_url = "{provider.url}"', 'algorithms = ["ES256"]', 'audience = "turnlog"']
        file.write_text("\n".join([*lines, 'issuer = "https://id.example"']))
        accept = load_jwt_tokens(file)
        assert isinstance(accept, JwksTokens)
        assert is_ada(await accept(signed(CURVE, "old", "ES256"), NOW))

    asyncio.run(scenario())


@pytest.mark.parametrize("more", [{}, {"key_file": "key.pem", "jwks_url": "https://id.example"}])
def test_file_names_a_key_or_an_address(tmp_path: Path, more: dict[str, str]) -> None:
    file = tmp_path / "jwt.json"
    (tmp_path / "key.pem").write_bytes(b"")
    said = {"algorithms": ["RS256"], "audience": "turnlog", "issuer": "https://id.example"}
    file.write_text(json.dumps(said | more))
    with pytest.raises(CallerError, match="expected one of key_file and jwks_url"):
        load_jwt_tokens(file)
