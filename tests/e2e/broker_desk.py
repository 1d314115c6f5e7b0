"""Who uses the example `broker` in the tests: an installer with a token, a customer who followed a link."""

import asyncio
import contextlib
import hashlib
import http.client
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from tests.e2e.examples import over, read
from tests.e2e.harness import Reader, Server, running
from tests.support.invitations import FORM, redemption
from tests.support.limits import HANG_S
from turnlog.events import CORE, Catalog, decode_envelope
from turnlog.state.fold import Item
from turnlog.team.events import TEAM
from turnlog_examples.broker.events import BROKER

APPS = "tests.e2e.broker_apps:"
CATALOG = Catalog(CORE, TEAM, BROKER)
NAMES = ("ada", "bob")


def token(name: str) -> str:
    return f"token-of-{name}-0123456789abcdef0123456789"


class Step(NamedTuple):
    """What a page does at once: events, then words."""

    events: Sequence[tuple[str, Mapping[str, Any]]] = ()
    words: str | None = None

    @property
    def direct(self) -> list[Any]:
        return [{"type": name, "data": data} for name, data in self.events]


@dataclass
class Person(Server):
    """A server as one person sees it."""

    session_id: str = ""
    role: str = ""
    cookie: str = ""
    reader: Reader | None = field(default=None, repr=False)

    @property
    def headers(self) -> dict[str, str]:
        return {"cookie": self.cookie} if self.cookie else {"authorization": f"Bearer {self.token}"}

    def chat(self, step: Step, **more: Any) -> Any:
        """One exchange with the guide; what the route answers."""
        status, answer = self.try_chat(step, **more)
        assert status == 200, answer
        return answer

    def try_chat(self, step: Step, key: str | None = None, **body: Any) -> tuple[int, Any]:
        asked = {"sessionId": self.session_id, "directEvents": step.direct, **body}
        words = {"userMessage": step.words} if step.words is not None else {}
        headers = {"idempotency-key": key} if key else {}
        return self.post(f"/api/chat/{self.role}", asked | words, headers)

    def act(self, *events: tuple[str, Mapping[str, Any]]) -> tuple[int, Any]:
        """Post events of the page, with no turn."""
        posted = [{"type": f"broker.{name}", "payload": payload} for name, payload in events]
        return self.post("/api/events", {"session": self.session_id, "events": posted})

    def follow(self, step: Step) -> list[Any]:
        """The same by the other routes: post, send, and read the stream until the guide is done."""
        if step.events:
            status, answer = self.act(*step.events)
            assert status == 202, answer
        if self.reader is None:
            self.reader = Reader(self, self.session_id)
        self.send(self.session_id, step.words or "Go on.")
        return read(self.reader, over)

    def raw(self, path: str, body: Any = None) -> tuple[int, bytes]:
        """A request, and every byte that comes back with it."""
        return raw(self, path, body, self.headers)[:2]

    def heard(self, query: str, until: str) -> bytes:
        """Every byte of a stream, up to a word."""
        reader = Reader(self, self.session_id, query)

        async def listen() -> bytes:
            told = b""
            async with asyncio.timeout(HANG_S), contextlib.aclosing(reader.pieces()) as pieces:
                async for piece in pieces:
                    told += piece
                    if until.encode() in told:
                        return told
            raise AssertionError(f"{until} did not come: {told[-400:]!r}")

        return asyncio.run(listen())

    @property
    def case(self) -> Any:
        """The case as this person sees it."""
        status, answer = self.get(f"/api/state?session={self.session_id}")
        assert status == 200, answer
        return answer["state"]


@dataclass
class Office:
    """A case with its people: `root` sees everything."""

    root: Person
    installer: Person
    customer: Person

    @property
    def items(self) -> list[Item]:
        """The log of the case."""
        status, lines = self.root.raw(f"/api/log?session={self.root.session_id}")
        assert status == 200
        envelopes = [decode_envelope(line) for line in lines.split(b"\n")[1:-1]]
        return [(envelope, CATALOG.decode_payload(envelope)) for envelope in envelopes]

    def moved(self, server: Server) -> None:
        """Go on with another process."""
        for person in (self.root, self.installer, self.customer):
            person.process, person.port = server.process, server.port


def tokens_file(folder: Path) -> Path:
    """Who may come in, beside the owner."""
    hashes = {name: {"sha256": hashlib.sha256(token(name).encode()).hexdigest()} for name in NAMES}
    path = folder / "tokens.json"
    path.write_text(json.dumps(hashes))
    return path


@contextlib.contextmanager
def serving(app: str, folder: Path, port: int = 0) -> Iterator[Server]:
    """The broker's server; `ada` and `bob` have tokens."""
    with running(APPS + app, folder, port, options=["--tokens", str(tokens_file(folder))]) as server:
        yield server


@contextlib.contextmanager
def office(app: str, folder: Path) -> Iterator[Office]:
    """A case that ada, an installer, has made; its customer has followed the link."""
    with serving(app, folder) as server:
        yield open_case(server)


def person(server: Server, session_id: str, role: str, **more: Any) -> Person:
    return Person(server.process, server.port, server.link, session_id=session_id, role=role, **more)


def open_case(server: Server) -> Office:
    ada = person(server, "", "installer", token=token("ada"))
    ada.session_id = ada.session()
    status, answer = ada.post("/api/links", {"session": ada.session_id, "roles": ["customer"]})
    assert status == 201, answer
    customer = person(server, ada.session_id, "customer", cookie=followed(server, answer["path"])[1])
    root = person(server, ada.session_id, "customer", token=server.token)
    return Office(root, ada, customer)


def followed(server: Server, path: str) -> tuple[int, str]:
    """A link redeemed: the status, and the cookie that says who came."""
    status, _, headers = raw(server, *redemption(path), {"content-type": FORM})
    return status, (headers.get("set-cookie") or "").partition(";")[0]


def raw(
    server: Server, path: str, body: Any, headers: dict[str, str]
) -> tuple[int, bytes, http.client.HTTPMessage]:
    """One request, without following where it leads."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=HANG_S)
    data = body if body is None or isinstance(body, bytes) else json.dumps(body)
    kind = {"content-type": "application/json"} if data else {}
    with contextlib.closing(connection):
        connection.request("POST" if data else "GET", path, data, kind | headers)
        response = connection.getresponse()
        return response.status, response.read(), response.headers


def at_once(*calls: Any) -> list[Any]:
    """Calls of several threads at the same moment; what each gave."""

    async def together() -> list[Any]:
        return list(await asyncio.gather(*[asyncio.to_thread(call) for call in calls]))

    return asyncio.run(together())


def timeless(value: Any) -> Any:
    """A case without its times and its session, which differ from one to the next."""
    if isinstance(value, dict):
        passing = ("At", "sessionId")
        return {name: timeless(one) for name, one in value.items() if not name.endswith(passing)}
    return [timeless(one) for one in value] if isinstance(value, list) else value
