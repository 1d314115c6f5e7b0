"""Row 13: bodies that are too large, too deep or ambiguous are refused by every route, and cost nothing."""

import gzip
import http.client
import json
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.e2e.harness import Server, running
from tests.security.apps import plain
from tests.security.desk import Desk, desk, run
from tests.security.routes import Ask, every_route
from tests.support.limits import HANG_S
from turnlog.events import strict_json
from turnlog.server.prompt_content import MAX_PROMPT_BODY_BYTES
from turnlog.server.request_body import MAX_SMALL_BODY_BYTES

LIMIT = strict_json.MAX_JSON_BYTES
GROWTH_KB = 10_000


# these ignore fields that they do not know
IGNORING = ("/api/send", "/agent/run", "/agent/tool_results", "/ag-ui/plain", "/ai-sdk/plain/chat")
TAKING_IMAGES = ("/agent/run", "/ag-ui/plain", "/ai-sdk/plain/chat")


def bombs(body: Any, limit: int = LIMIT) -> dict[str, tuple[bytes, int]]:
    """Bodies that explode, made of one that is right, and how they are refused."""
    whole = json.dumps(body).encode()
    name = next(iter(body), "message")

    def with_value(value: bytes) -> bytes:
        return b'{"%b":%b,%b' % (b"other", value, whole[1:])

    return {
        "deep list": (b"[" * 200_000, 400),
        "deep object": (b'{"a":' * 100_000, 400),
        "deep inside": (with_value(b"[" * 50_000 + b"]" * 50_000), 400),
        "33 levels": (with_value(b"[" * 32 + b"]" * 32), 400),
        "NaN": (with_value(b"NaN"), 400),
        "Infinity": (with_value(b"-Infinity"), 400),
        "digits": (with_value(b"9" * 5000), 400),
        "twice": (b'{"%b":"x",%b' % (name.encode(), whole[1:]), 400),
        "escaped twice": (b'{"\\u%04x%b":"x",%b' % (ord(name[0]), name[1:].encode(), whole[1:]), 400),
        "not UTF-8": (with_value(b'"\xff"'), 400),
        "surrogate": (with_value(b'"\\ud800"'), 400),
        "more": (whole + b"{}", 400),
        "nothing": (b"", 400),
        "unknown field": (with_value(b"1"), 400),
        "large": (with_value(b'"' + b"x" * limit + b'"'), 413),
        "spaces": (whole + b" " * limit, 413),
    }


PACKED: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": bytes,
    "x": bytes,
}


async def posts(at: Desk) -> list[Ask]:
    """Every route that takes a body."""
    found = [ask for ask in await every_route(at, "root") if ask.takes_json]
    assert len(found) >= 8
    return found


def test_every_route_refuses_every_bomb() -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            for ask in await posts(at):
                limit = MAX_PROMPT_BODY_BYTES if ask.path in TAKING_IMAGES else LIMIT
                for name, (data, status) in bombs(ask.body, limit).items():
                    if ask.path in IGNORING and name == "unknown field":
                        continue
                    answer = await at.post("root", ask.path, data)
                    # A route whose bodies are small does not look into a large one.
                    expected = {status, 413} if len(data) > MAX_SMALL_BODY_BYTES else {status}
                    assert answer.status in expected, (ask.route, name, answer.body[:200])
                    assert len(answer.body) < 500, (ask.route, name)
                for name, pack in PACKED.items():
                    packed = pack(json.dumps(ask.body).encode())
                    answer = await at.post("root", ask.path, packed, **{"content-encoding": name})
                    assert answer.status == 415, (ask.route, name)

    run(scenario())


def test_control_without_the_gate_ambiguous_bodies_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def naive(data: bytes, kind: type, limit_bytes: int = 0) -> Any:
        tree = json.loads(data)
        tree.pop("other", None)
        return msgspec.convert(tree, kind)

    async def scenario() -> None:
        async with desk(plain) as at:
            monkeypatch.setattr(strict_json, "decode_strict_json", naive)
            body = {"message": "hear"}
            taken = bombs(body)
            for name in ("33 levels", "NaN", "Infinity", "twice", "escaped twice", "surrogate"):
                assert (await at.post("ada", "/api/send", taken[name][0])).status == 202, name
            with pytest.raises(RecursionError):
                await at.post("ada", "/api/send", taken["deep list"][0])
            with pytest.raises(ValueError, match="4300 digits"):
                await at.post("ada", "/api/send", taken["digits"][0])

    run(scenario())


# memory


def peak_kb(server: Server) -> int:
    """The most memory that a server has had."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def pieces(count: int) -> Iterator[bytes]:
    """A body that does not say how long it is."""
    yield b'{"message":"'
    for _ in range(count):
        yield b"x" * 65536


def post_endless(server: Server, count: int) -> int:
    """Send until the server has had enough; its status, 0 if it hung up."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=HANG_S)
    headers = server.headers | {"content-type": "application/json"}
    try:
        connection.request("POST", "/api/send", body=pieces(count), headers=headers, encode_chunked=True)
        return connection.getresponse().status
    except OSError:
        return 0
    finally:
        connection.close()


def growth_kb(server: Server) -> int:
    """What a server needs for bombs, and for bodies of 64 MB."""
    server.post("/api/send", {"message": "hear " + "x" * 90_000})
    before = peak_kb(server)
    for name, (data, status) in bombs({"message": "hear"}).items():
        expected = 202 if name == "unknown field" else status
        assert server.post("/api/send", data)[0] in (expected, 0)
    for _ in range(3):
        assert post_endless(server, 1000) in (400, 413, 0)
    assert server.get("/healthz")[0] == 200
    return peak_kb(server) - before


def test_bombs_and_endless_bodies_cost_little_memory(tmp_path: Path) -> None:
    with running("tests.security.apps:plain", tmp_path) as server:
        assert growth_kb(server) < GROWTH_KB


WIDE = """
from unittest.mock import patch
patch("turnlog.events.strict_json.MAX_JSON_BYTES", 1 << 30).start()
from turnlog.cli import main
main()
"""


def test_control_without_a_limit_they_cost_what_they_weigh(tmp_path: Path) -> None:
    program = (sys.executable, "-c", WIDE)
    with running("tests.security.apps:plain", tmp_path, program=program) as server:
        before = peak_kb(server)
        assert post_endless(server, 1000) in (400, 413, 0)
        assert peak_kb(server) - before > 4 * GROWTH_KB
