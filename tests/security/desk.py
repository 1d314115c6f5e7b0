"""A server in this process, and people who ask it over ASGI: every byte that each of them gets can be seen.

A defence is switched off by giving the same application without it (`without`, `bare`, `everybody`), so that
a test can show that the attack works as soon as the defence is gone.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.types import ASGIApp, Message, Scope

from tests.support.invitations import FORM
from tests.support.limits import HANG_S
from turnlog.app import LOCAL, App, Principal
from turnlog.log import Store
from turnlog.server import create_app
from turnlog.server.auth.authentication import AuthenticationCheck
from turnlog.server.auth.credentials import BuiltinAuth, Identity, TokenVerifier, hash_token, reject_token
from turnlog.server.auth.host_check import LOOPBACK
from turnlog.server.limits import Limits
from turnlog.server.middleware import RequestChecksMiddleware
from turnlog.server.protocols import PROTOCOLS
from turnlog.server.routes.blobs import UPLOAD_BODY_TYPE
from turnlog.server.scope_keys import IDENTITY_KEY, PRINCIPAL_KEY
from turnlog.wire.sse import Decoder

KEY = b"k" * 32
ROOT = Principal("root", frozenset({"operator"}))
WORKER = Principal("worker", frozenset({"executor"}))
SOURCES = [Principal(name, frozenset({"source"})) for name in ("bot", "rival")]
NAMES = ("ada", "bob", "cyd", "a", "a:b")
STREAM = "text/event-stream"
UPLOADS = "/api/blobs?"
# An attack is many requests at once; those that are about a limit set their own.
MANY = Limits(
    burst=100_000, burst_bytes=1 << 30, guest_burst=100_000, guest_burst_bytes=1 << 30,
    burst_busy_s=1e6, guest_burst_busy_s=1e6, concurrent_requests=10_000, guest_concurrent_requests=10_000,
)  # fmt: skip

Change = Callable[[Starlette], None]


def token(name: str) -> str:
    """The token of somebody."""
    return f"token-of-{name}-0123456789abcdef"


def tokens() -> dict[str, Principal]:
    """Everybody who has a token, by its hash; `root` is an operator."""
    known = {hash_token(token(name)): Principal(name) for name in NAMES}
    return known | {hash_token(token(one.name)): one for one in (ROOT, WORKER, *SOURCES)}


def bearer(name: str) -> dict[str, str]:
    """The header that says who is asking."""
    return {"authorization": f"Bearer {token(name)}"}


@dataclass
class Answer:
    """One response: as far as it has come, and whether it is over."""

    status: int = 0
    headers: list[tuple[str, str]] = field(default_factory=list)
    body: bytes = b""
    ended: bool = False

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key == name), "")

    @property
    def value(self) -> Any:
        return json.loads(self.body)

    @property
    def events(self) -> list[Any]:
        """Return the log events of a stream in `turnlog`, without heartbeats and other control frames."""
        messages = [message for message in Decoder().feed(self.body) if message.event == "message"]
        return [json.loads(message.data) for message in messages if message.data.startswith('{"type"')]


class Call:
    """A request that is being answered. Its body comes while `may_send_body` is set."""

    def __init__(self, application: ASGIApp, scope: Scope, body: bytes) -> None:
        self.answer = Answer()
        self._body = body
        self._moved = asyncio.Condition()
        self._gone = asyncio.Event()
        self._asked = False
        self.wants_body = asyncio.Event()
        self.may_send_body = asyncio.Event()
        self.may_send_body.set()
        self._task = asyncio.create_task(self._run(application, scope))

    async def _run(self, application: ASGIApp, scope: Scope) -> None:
        try:
            await application(scope, self._receive, self._send)
        finally:
            self.answer.ended = True
            async with self._moved:
                self._moved.notify_all()

    async def _receive(self) -> Message:
        if not self._asked:
            self._asked = True
            self.wants_body.set()
            await self.may_send_body.wait()
            return {"type": "http.request", "body": self._body, "more_body": False}
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.answer.status = message["status"]
            self.answer.headers = [(name.decode(), value.decode()) for name, value in message["headers"]]
        self.answer.body += message.get("body", b"")
        async with self._moved:
            self._moved.notify_all()

    async def until(self, reached: Callable[[Answer], bool]) -> Answer:
        """Wait until the answer is so, or over."""
        async with asyncio.timeout(HANG_S), self._moved:
            await self._moved.wait_for(lambda: self.answer.ended or reached(self.answer))
        return self.answer

    async def word(self, text: str) -> Answer:
        """Wait until a text is in the answer; it has to come."""
        answer = await self.until(lambda answer: text.encode() in answer.body)
        assert text.encode() in answer.body, answer.body[-400:]
        return answer

    async def end(self) -> Answer:
        """Wait until the response is over."""
        answer = await self.until(lambda answer: False)
        await self._task
        return answer

    async def leave(self) -> Answer:
        """Go away."""
        self._gone.set()
        return await self.end()


class Desk:
    """An application that runs, and those who ask it."""

    def __init__(self, application: Starlette) -> None:
        self.application = application

    def call(
        self,
        who: str | None,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
    ) -> Call:
        """Begin a request."""
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        said = {"host": "127.0.0.1"} | (bearer(who) if who else {})
        kind = FORM if (method, path) == ("POST", "/sign-in") else "application/json"
        kind = UPLOAD_BODY_TYPE if path.startswith(UPLOADS) else kind
        said |= {"content-type": kind} if data or method == "POST" else {}
        said |= {"content-length": str(len(data))} if data else {}
        said |= headers or {}
        parts = urlsplit(path)
        scope = {
            "type": "http",
            "method": method,
            "scheme": "http",
            "path": unquote(parts.path),
            "raw_path": parts.path.encode(),
            "root_path": "",
            "query_string": parts.query.encode(),
            "headers": [(name.encode(), value.encode("latin-1")) for name, value in said.items()],
            "server": ("127.0.0.1", 80),
            "client": ("127.0.0.1", 1),
        }
        return Call(self.application, scope, data)

    async def ask(
        self,
        who: str | None,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
    ) -> Answer:
        """A whole answer; of a stream that does not end by itself, the head."""
        call = self.call(who, method, path, body, headers)
        endless = method == "GET" and path.startswith("/api/events")
        await call.until(lambda answer: endless and answer.status == 200)
        return await call.leave()

    async def get(self, who: str | None, path: str, **headers: str) -> Answer:
        return await self.ask(who, "GET", path, None, headers)

    async def post(self, who: str | None, path: str, body: Any, **headers: str) -> Answer:
        return await self.ask(who, "POST", path, body, headers)

    def follow(self, who: str, query: str) -> Call:
        """Open a stream."""
        return self.call(who, "GET", f"/api/events?{query}")

    async def session(self, who: str, app: str | None = None) -> str:
        """A session of somebody."""
        answer = await self.post(who, "/api/sessions", {"app": app} if app else {})
        assert answer.status == 201, answer.body
        return str(answer.value["session_id"])

    async def enrol(self, by: str, session: str, name: str, *roles: str) -> None:
        """Give a person roles; one who is no member accepts the invitation."""
        invite = await self.invite(by, session, name, *roles)
        if invite is not None:
            accepted = await self.post(name, "/api/invites/accept", {"session": session, "invite": invite})
            assert accepted.status == 202, accepted.body

    async def invite(self, by: str, session: str, name: str, *roles: str) -> str | None:
        """Give a person roles; return the invitation of one who is no member."""
        body = {"session": session, "principal": name, "roles": list(roles)}
        answer = await self.post(by, "/api/members", body)
        assert answer.status == 202, answer.body
        invite: str | None = answer.value.get("invite")
        return invite

    async def send(self, who: str, session: str, message: str, **more: str) -> Any:
        """Say something; where it is."""
        answer = await self.post(who, "/api/send", {"session": session, "message": message, **more})
        assert answer.status == 202, answer.body
        return answer.value

    async def log(self, who: str, session: str) -> list[Any]:
        """A session's events, as somebody may see them."""
        answer = await self.get(who, f"/api/log?session={session}")
        assert answer.status == 200, answer.body
        return [json.loads(line) for line in answer.body.split(b"\n")[1:] if line]

    async def told(self, who: str, session: str, type: str, count: int = 1) -> list[Any]:
        """The events of a type, when there are so many of them."""
        call = self.follow(who, f"session={session}&types={type}")
        await call.until(lambda answer: len(answer.events) >= count)
        return (await call.leave()).events


@asynccontextmanager
async def desk(
    apps: App | Iterable[App],
    log_url: str | Store = "memory:",
    *,
    hosts: Iterable[str] = LOOPBACK,
    limits: Limits = MANY,
    verify: TokenVerifier = reject_token,
    change: Change = lambda _: None,
    origins: Iterable[str] = (),
) -> AsyncIterator[Desk]:
    """A server while it runs, with all protocols; `change` takes a defence away from it."""
    application = create_app(
        apps,
        log_url,
        auth=BuiltinAuth(KEY, tokens(), verify),
        hosts=hosts,
        limits=limits,
        protocols=[make() for make in PROTOCOLS.values()],
        origins=origins,
    )
    change(application)
    async with application.router.lifespan_context(application):
        yield Desk(application)


def kind_of(gate: Middleware) -> object:
    """The class of a gate."""
    return gate.cls


def front_of(application: Starlette) -> dict[str, Any]:
    """What the front of an application is made with, to be changed."""
    [front] = [
        gate.kwargs for gate in application.user_middleware if kind_of(gate) is RequestChecksMiddleware
    ]
    return front


def without(kind: type) -> Change:
    """The application without one of its checks."""

    def change(application: Starlette) -> None:
        front = front_of(application)
        left = [check for check in front["checks"] if not isinstance(check, kind)]
        assert len(left) == len(front["checks"]) - 1
        front["checks"] = left

    return change


def bare(application: Starlette) -> None:
    """The application without what every answer says to browsers."""
    front_of(application)["headers"] = ()


async def let_in(scope: Scope) -> None:
    """In the place of the entry: everybody is the owner of everything."""
    known = Identity(LOCAL)
    scope.update({IDENTITY_KEY: known, PRINCIPAL_KEY: known.principal})


def everybody(application: Starlette) -> None:
    """The application without its entry."""
    without(AuthenticationCheck)(application)
    front_of(application)["checks"].append(let_in)


def run(scenario: Coroutine[Any, Any, None], limit_s: float = HANG_S) -> None:
    """Play a scenario, within a time."""
    asyncio.run(asyncio.wait_for(scenario, limit_s))


def expiring(seconds: float) -> TokenVerifier:
    """Tokens that begin with `short-` hold for so long after the first request with one of them."""
    until_s = 0.0

    def verify(given: str, now_s: float) -> Identity | None:
        nonlocal until_s
        if not given.startswith("short-"):
            return None
        until_s = until_s or now_s + seconds
        return Identity(Principal(given.removeprefix("short-")), until_s) if now_s < until_s else None

    return verify
