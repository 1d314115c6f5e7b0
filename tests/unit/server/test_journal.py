"""The journal: one line per request and per record, and nothing in it that nobody should read."""

import asyncio
import json
import logging
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from turnlog.server.access_log import AccessLogMiddleware
from turnlog.server.log_format import (
    EXTRA_FIELDS,
    REDACTED,
    SECRET_PATTERN,
    JsonFormatter,
    configure_logging,
    redact,
)

TOKEN = "tok_canary_0123456789"
COOKIE = "cookie-canary-0123456789"
CODE = "code/canary+0123456789"
RAW_CODE = "code%2Fcanary%2B0123456789"
BODY = "body-canary-0123456789"
MINTED = "minted-canary-0123456789"
PATH = "path-canary-0123456789"
CANARIES = (TOKEN, COOKIE, CODE, RAW_CODE, BODY, MINTED, PATH)
HEADERS = [
    (b"host", b"localhost"),
    (b"authorization", f"Bearer {TOKEN}".encode()),
    (b"cookie", f'theme=dark; tl="{COOKIE}"'.encode()),
    (b"content-type", b"application/json"),
]

log = logging.getLogger("turnlog.test")


@dataclass
class Ann:
    name: str = "ann"


# what is asked


async def plain(request: Request) -> Response:
    request.scope["turnlog.principal"] = Ann()
    request.scope["turnlog.session"], request.scope["turnlog.turn"] = "sess_1", "tr_1"
    return PlainTextResponse("hello")


async def stream(_: Request) -> Response:
    async def pieces() -> Any:
        for piece in ("one", "two", "three"):
            yield piece

    return StreamingResponse(pieces())


async def blurt(request: Request) -> Response:
    """Log everything that should not be."""
    body = await request.body()
    log.info("%s %s", request.headers, request.headers.raw)
    log.info("token %s, cookies %s", request.headers["authorization"].split()[1], request.cookies)
    log.info("code %s of %s", request.query_params["code"], request.url)
    return PlainTextResponse(str(len(body)))


async def minting(scope: Scope, receive: Receive, send: Send) -> None:
    """Log what a browser is told to keep."""
    headers = [(b"set-cookie", f"tl={MINTED}; HttpOnly".encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    log.info("sent %s, HttpOnly", MINTED)
    await send({"type": "http.response.body"})


async def boom(request: Request) -> Response:
    body = await request.body()
    try:
        raise LookupError(f"no {request.headers['cookie']}")
    except LookupError as error:
        raise ValueError(f"cannot take {body!r} of {request.headers['authorization']}") from error


async def groups(_: Request) -> Response:
    raise ExceptionGroup(BODY, [KeyError(BODY), OSError(BODY)])


async def hidden(_: Request) -> Response:
    try:
        raise LookupError(BODY)
    except LookupError:
        raise ValueError(BODY) from None


ROUTES = [
    Route("/plain/{name}", plain, methods=["GET"]),
    Route("/stream", stream),
    Route("/blurt", blurt, methods=["POST"]),
    Route("/boom", boom, methods=["POST"]),
    Route("/groups", groups),
    Route("/hidden", hidden),
]
OPEN = Starlette(routes=ROUTES)
KEPT = Starlette(routes=ROUTES, middleware=[Middleware(AccessLogMiddleware)])


async def exchange(app: ASGIApp, scope: dict[str, Any], body: bytes = b"") -> list[Message]:
    sent: list[Message] = []
    asked = asyncio.Event()

    async def receive() -> Message:
        if asked.is_set():
            await asyncio.Event().wait()
        asked.set()
        return {"type": "http.request", "body": body}

    async def send(message: Message) -> None:
        sent.append(message)

    await app(scope, receive, send)
    return sent


def ask(app: ASGIApp, path: str, method: str = "GET", query: str = "", body: bytes = b"") -> list[Message]:
    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "query_string": query.encode(),
        "headers": HEADERS,
        "server": ("localhost", 80),
        "scheme": "http",
    }
    return asyncio.run(exchange(app, scope, body))


# what is written

LOGGERS = ("turnlog", "uvicorn", "uvicorn.access", "uvicorn.error", "uvicorn.asgi")


class Written:
    """What was written to stderr so far."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys, self._text = capsys, ""

    def text(self) -> str:
        self._text += self._capsys.readouterr().err
        return self._text


@pytest.fixture
def stderr(capsys: pytest.CaptureFixture[str]) -> Iterator[Written]:
    """What is written to stderr; the loggers are as they were afterwards."""
    loggers = [logging.getLogger(name) for name in LOGGERS]
    before = [(logger.handlers, logger.propagate, logger.level) for logger in loggers]
    yield Written(capsys)
    for logger, (handlers, propagate, level) in zip(loggers, before, strict=True):
        logger.handlers, logger.propagate = handlers, propagate
        logger.setLevel(level)


def lines(written: Written) -> list[dict[str, Any]]:
    text = written.text()
    assert text.isascii()
    assert text == "" or text.endswith("\n")
    return [json.loads(line) for line in text.split("\n")[:-1]]


def found(text: str) -> set[str]:
    """The canaries in a text, however JSON writes them."""
    return {canary for canary in CANARIES if canary in text or json.dumps(canary)[1:-1] in text}


# requests


def test_a_request_is_one_line_with_its_template_its_size_and_who_asked(stderr: Written) -> None:
    configure_logging("info")
    ask(KEPT, f"/plain/{PATH}", query=f"code={RAW_CODE}&q=1")
    [line] = lines(stderr)
    assert line.pop("ts").endswith("Z")
    assert line.pop("ms") >= 0
    assert line == {
        "level": "INFO",
        "logger": "turnlog.server",
        "message": "request",
        "method": "GET",
        "route": "/plain/{name}",
        "status": 200,
        "bytes": 5,
        "principal": "ann",
        "session": "sess_1",
        "turn": "tr_1",
    }


@pytest.mark.parametrize(
    ("path", "method", "status", "route"),
    [
        (f"/{PATH}", "GET", 404, None),
        (f"/plain/{PATH}", "POST", 405, "/plain/{name}"),
        ("/stream", "GET", 200, "/stream"),
    ],
)
def test_what_is_not_known_has_no_field(
    stderr: Written, path: str, method: str, status: int, route: str | None
) -> None:
    configure_logging("info")
    ask(KEPT, path, method)
    [line] = lines(stderr)
    assert (line["status"], line.get("route")) == (status, route)
    assert {"principal", "session", "turn", "exception"} & line.keys() == set()
    assert found(stderr.text()) == set()


def test_the_time_is_until_the_response_ended_and_not_what_comes_after(
    stderr: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [100.0]
    monkeypatch.setattr("turnlog.server.access_log.time.monotonic", lambda: clock[0])

    async def slow(scope: Scope, receive: Receive, send: Send) -> None:
        clock[0] += 1.0
        await send({"type": "http.response.start", "status": 200})
        await send({"type": "http.response.body", "body": b"x", "more_body": True})
        clock[0] += 0.25
        await send({"type": "http.response.body", "body": b"yz"})
        clock[0] += 60.0

    configure_logging("info")
    ask(AccessLogMiddleware(slow), "/")
    assert [(line["ms"], line["bytes"]) for line in lines(stderr)] == [(1250.0, 3)]


def test_a_request_that_nobody_waits_for_any_more_has_its_line(stderr: Written) -> None:
    async def waits(scope: Scope, receive: Receive, send: Send) -> None:
        await asyncio.Event().wait()

    async def leave() -> None:
        scope = {"type": "http", "method": "GET", "path": "/", "headers": []}
        task = asyncio.create_task(exchange(AccessLogMiddleware(waits), scope))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)

    configure_logging("info")
    asyncio.run(leave())
    [line] = lines(stderr)
    assert (line["level"], "status" in line) == ("INFO", False)


def test_names_that_callers_choose_are_short(stderr: Written) -> None:
    async def long(scope: Scope, receive: Receive, send: Send) -> None:
        scope["turnlog.session"] = "s" * 10_000

    configure_logging("info")
    ask(AccessLogMiddleware(long), "/", method="M" * 10_000)
    [line] = lines(stderr)
    assert (line["session"], line["method"]) == ("s" * 80, "M" * 80)


@pytest.mark.parametrize("kind", ["lifespan", "websocket"])
def test_what_is_no_request_passes_and_leaves_no_line(stderr: Written, kind: str) -> None:
    seen: list[Scope] = []

    async def listener(scope: Scope, receive: Receive, send: Send) -> None:
        seen.append(scope)

    configure_logging("info")
    scope = {"type": kind}
    asyncio.run(exchange(AccessLogMiddleware(listener), scope))
    assert seen == [scope]
    assert lines(stderr) == []


def test_a_level_leaves_out_what_is_below_it(stderr: Written) -> None:
    configure_logging("error")
    ask(KEPT, "/stream")
    with pytest.raises(ValueError, match="cannot take"):
        ask(KEPT, "/boom", "POST")
    assert [line["message"] for line in lines(stderr)] == ["request failed"]


# secrets


def test_what_a_request_is_signed_in_with_is_struck_out_whoever_logs_it(stderr: Written) -> None:
    configure_logging("info")
    ask(KEPT, "/blurt", "POST", f"code={RAW_CODE}&after=1", BODY.encode())
    ask(KEPT, "/blurt", "POST", f"a=b&%63ode={RAW_CODE}", BODY.encode())
    ask(AccessLogMiddleware(minting), "/")
    assert [line["message"] for line in lines(stderr)][-2:] == [f"sent {REDACTED}, HttpOnly", "request"]
    assert len(lines(stderr)) == 10
    assert found(stderr.text()) == set()


def test_without_the_journal_and_its_lines_they_would_all_be_there(stderr: Written) -> None:
    configure_logging("info")
    [handler] = logging.getLogger("turnlog").handlers
    handler.setFormatter(logging.Formatter())
    ask(OPEN, "/blurt", "POST", f"code={RAW_CODE}", BODY.encode())
    ask(minting, "/")
    assert found(stderr.text()) == set(CANARIES) - {BODY, PATH}


def test_what_looks_like_a_secret_is_struck_out_where_nobody_knows_it(stderr: Written) -> None:
    configure_logging("info")
    log.info("Authorization: Basic %s", TOKEN)
    log.info("%r", HEADERS)
    log.info("Cookie: a=b; tl=%s\nnext", COOKIE)
    log.info("GET /join?code=%s&x=1 by bearer %s.", CODE, TOKEN)
    log.info("code=%s", CODE)
    assert found(stderr.text()) == set()
    assert [line["message"] for line in lines(stderr)][2:] == [
        f"Cookie: {REDACTED}\nnext",
        f"GET /join?code={REDACTED}&x=1 by bearer {REDACTED}",
        f"code={REDACTED}",
    ]


@pytest.mark.parametrize(
    "text",
    [
        "status_code=200 of barcode=1",
        "the cookie is stale, authorization failed",
        "a bearer",
        'SessionError(code="turn_timeout")',
        "no space left on device",
    ],
)
def test_other_words_stay(text: str) -> None:
    assert redact(text) == text
    assert SECRET_PATTERN.search(text) is None


def test_secrets_are_found_as_python_quotes_them_whole_and_only_if_they_are_long(stderr: Written) -> None:
    values = ["it's-a-\\-\xfc-secret", "password", "password-and-more", "dark"]
    cookies = "; ".join(f"c{number}={value}" for number, value in enumerate(values))

    async def chat(scope: Scope, receive: Receive, send: Send) -> None:
        log.info("%s %r %a", *values[:1] * 3)
        log.info("%s of %s, it is %s", *values[1:])

    configure_logging("info")
    scope = {"type": "http", "method": "GET", "headers": [(b"cookie", cookies.encode("latin-1"))]}
    asyncio.run(exchange(AccessLogMiddleware(chat), scope))
    assert [line["message"] for line in lines(stderr)] == [
        f'{REDACTED} "{REDACTED}" "{REDACTED}"',
        f"{REDACTED} of {REDACTED}, it is dark",
        "request",
    ]


def test_one_request_does_not_strike_out_for_another(stderr: Written) -> None:
    configure_logging("info")
    ask(KEPT, "/stream")
    log.info("about %s", TOKEN)
    assert lines(stderr)[-1]["message"] == f"about {TOKEN}"


# errors


def test_an_error_is_told_by_where_it_was_and_not_by_what_it_says(stderr: Written) -> None:
    configure_logging("info")
    with pytest.raises(ValueError, match="cannot take"):
        ask(KEPT, "/boom", "POST", f"code={RAW_CODE}", BODY.encode())
    [line] = lines(stderr)
    assert (line["level"], line["message"]) == ("ERROR", "request failed")
    assert (line["status"], line["route"]) == (500, "/boom")
    assert "in boom\n" in line["exception"]
    assert "builtins.ValueError\n" in line["exception"]
    assert line["exception"].endswith("builtins.LookupError\n")
    assert found(stderr.text()) == set()


def test_errors_of_a_group_are_all_named_and_hidden_ones_are_not(stderr: Written) -> None:
    configure_logging("info")
    with pytest.raises(ExceptionGroup):
        ask(KEPT, "/groups")
    with pytest.raises(ValueError, match=BODY):
        ask(KEPT, "/hidden")
    group, alone = [line["exception"] for line in lines(stderr)]
    assert all(f"builtins.{name}\n" in group for name in ("ExceptionGroup", "KeyError", "OSError"))
    assert "LookupError" not in alone
    assert found(stderr.text()) == set()


# lines


@pytest.mark.parametrize("text", ["a\nb\r\nc", "\x00\x1b[31m\x7f\x85", "\u2028\u2029", "\ud800", '"}\\'])
def test_nothing_in_a_record_ends_its_line(stderr: Written, text: str) -> None:
    configure_logging("info")
    log.info("%s", text, extra={"session": text, "route": text})
    [line] = lines(stderr)
    assert (line["message"], line["session"], line["route"]) == (text, text, text)
    assert len(stderr.text().splitlines()) == 1


def test_a_record_has_the_known_fields_and_no_others(stderr: Written) -> None:
    configure_logging("info")
    log.info("hi", extra=dict.fromkeys(EXTRA_FIELDS, 1) | {"password": TOKEN, "turn": HEADERS})
    [line] = lines(stderr)
    assert set(line) == {"ts", "level", "logger", "message", *EXTRA_FIELDS}
    assert line["turn"] == "<list>"


def test_an_exception_is_a_field(stderr: Written) -> None:
    configure_logging("info")
    try:
        raise ValueError("no\nno")
    except ValueError:
        log.exception("it failed")
    [line] = lines(stderr)
    assert (line["level"], line["message"]) == ("ERROR", "it failed")
    assert line["exception"].startswith("Traceback (most recent call last):\n")
    assert line["exception"].endswith("ValueError: no\nno")


def test_a_record_that_does_not_fit_together_is_a_line_all_the_same(stderr: Written) -> None:
    class Odd:
        def __str__(self) -> str:
            raise RuntimeError

    configure_logging("info")
    log.info("%d apples", "many")
    log.info("%s", Odd())
    assert [line["message"] for line in lines(stderr)] == ["%d apples", "%s"]


def test_times_are_in_utc_to_the_millisecond() -> None:
    record = logging.makeLogRecord({"created": 1_767_875_696.789, "msg": "x", "levelname": "INFO"})
    assert json.loads(JsonFormatter().format(record))["ts"] == "2026-01-08T12:34:56.789Z"


# with the real server


def test_set_up_twice_writes_once_and_uvicorn_has_no_lines_of_its_own(stderr: Written) -> None:
    logging.getLogger("uvicorn.error").setLevel(logging.NOTSET)  # servers of other tests may have set it
    configure_logging("info")
    configure_logging("info")
    log.info("once")
    logging.getLogger("uvicorn.error").warning("beware")
    assert [(line["logger"], line["message"]) for line in lines(stderr)] == [
        ("turnlog.test", "once"),
        ("uvicorn.error", "beware"),
    ]
    assert not logging.getLogger("uvicorn.access").hasHandlers()


async def served(app: ASGIApp, request: bytes) -> bytes:
    """The answer of a real server on loopback to one request."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = uvicorn.Config(app, log_config=None, log_level="warning", http="httptools", lifespan="off")
        server = uvicorn.Server(config)
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        writer.write(request)
        answer = await reader.read()
        writer.close()
        server.should_exit = True
        await serving
        return answer


def posted(path: str) -> bytes:
    return (
        f"POST {path}?code={RAW_CODE} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
        f"authorization: Bearer {TOKEN}\r\ncookie: tl={COOKIE}\r\ncontent-length: {len(BODY)}\r\n\r\n{BODY}"
    ).encode()


def test_a_request_to_the_real_server_that_fails_is_one_line(stderr: Written) -> None:
    configure_logging("info")
    answer = asyncio.run(served(KEPT, posted("/boom")))
    assert answer.startswith(b"HTTP/1.1 500")
    assert [line["message"] for line in lines(stderr)] == ["request failed"]
    assert found(stderr.text()) == set()


def test_without_the_middleware_the_real_server_tells_of_the_error(stderr: Written) -> None:
    configure_logging("info")
    asyncio.run(served(OPEN, posted("/boom")))
    [line] = lines(stderr)
    assert line["logger"] == "uvicorn.error"
    assert found(line["exception"]) == {BODY, COOKIE}
