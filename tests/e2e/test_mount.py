"""Turnlog inside another application: under a prefix, with the host's lifespan and the host's users."""

import asyncio
import contextlib
import json
import subprocess
import sys
import time
import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urljoin

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator
from playwright.sync_api import Response

from tests.e2e.browser import browsing, watched
from tests.e2e.harness import ROOT, Reader, Server, kind
from tests.e2e.mounted import DOT
from tests.support.invitations import FORM, redemption
from tests.support.limits import HANG_MS, HANG_S
from turnlog.app import Principal
from turnlog.server.auth.credentials import BuiltinAuth, Identity


@dataclass
class Mounted(Server):
    """A host, and the prefix under which Turnlog is; asked by a user of the host."""

    prefix: str = ""
    cookie: str = ""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}{self.prefix}"

    @property
    def headers(self) -> dict[str, str]:
        return {"cookie": self.cookie} if self.cookie else {}


@contextlib.contextmanager
def hosting(name: str, prefix: str, folder: Path, cookie: str = "") -> Iterator[Mounted]:
    command = [sys.executable, "-m", "tests.e2e.mounted", name, str(folder), "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    try:
        yield Mounted(process, int(process.stdout.readline()), prefix=prefix, cookie=cookie)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture(scope="module")
def ada(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mounted]:
    with hosting("fastapi", "/log", tmp_path_factory.mktemp("mount"), "user=cookie-of-ada") as host:
        yield host


def asked(host: Mounted, path: str, cookie: str = "", form: bytes | None = None) -> tuple[int, Any, bytes]:
    """GET, or POST of a form, without going where one is sent; status, headers, content."""

    class Stay(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None

    request = urllib.request.Request(
        f"http://127.0.0.1:{host.port}{path}",
        form,
        headers={"cookie": cookie or host.cookie, "content-type": FORM},
    )
    try:
        with urllib.request.build_opener(Stay).open(request, timeout=HANG_S) as response:
            return response.status, response.headers, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


def drawn(host: Mounted) -> tuple[str, Reader]:
    """A session in which something was drawn, and what was told of it."""
    session = host.session()
    host.send(session, "Draw a dot")
    reader = Reader(host, session, prefix=host.prefix)
    assert asyncio.run(reader.read(kind("agent.end")))
    return session, reader


def test_the_host_keeps_its_routes_and_its_lifespan(ada: Mounted) -> None:
    assert asked(ada, "/hello")[2] == b'{"ready":"yes"}'
    assert asked(ada, "/api/me")[0] == 404, "nothing of Turnlog is outside of its prefix"


def test_the_users_of_the_host_are_those_of_turnlog(ada: Mounted) -> None:
    me = {"name": "ada", "roles": [], "apps": ["dots"], "may_create_sessions": True}
    assert ada.get("/api/me") == (200, me)
    session = ada.session()
    bob = Mounted(ada.process, ada.port, prefix="/log", cookie="user=cookie-of-bob")
    eve = Mounted(ada.process, ada.port, prefix="/log", cookie="user=forged")
    assert bob.get(f"/api/state?session={session}")[0] == 404
    assert eve.get(f"/api/state?session={session}") == (401, {"error": "sign in first"})
    assert eve.get("/healthz")[0] == 200
    assert eve.get("/sign-in?code=x") == (404, {"error": "this server uses an external sign-in"})


def test_the_page_is_below_the_prefix(ada: Mounted) -> None:
    status, headers, _ = asked(ada, "/log")
    assert (status, headers["location"].removeprefix(f"http://127.0.0.1:{ada.port}")) == (307, "/log/")
    assert b'src="console.js"' in asked(ada, "/log/")[2]
    assert [asked(ada, f"/log/{name}")[0] for name in ("console.js", "console.css")] == [200, 200]


def test_a_turn_is_sent_streamed_and_resumed_there(ada: Mounted) -> None:
    session, reader = drawn(ada)
    again = Reader(ada, session, prefix="/log", last_id=reader.messages[3].id)
    assert asyncio.run(again.read(kind("agent.end")))
    assert again.events[0]["seq"] > reader.events[3]["seq"]
    assert again.events[-1] == reader.events[-1]


@pytest.mark.parametrize("dialect", ["turnlog", "blocks"])
def test_images_are_found_from_where_the_server_is(ada: Mounted, dialect: str) -> None:
    session, _ = drawn(ada)
    reader = Reader(ada, session, f"&dialect={dialect}", prefix="/log")
    asyncio.run(reader.read(lambda message: '"src"' in message.data))
    said = json.loads(reader.messages[-1].data)
    if dialect == "blocks":  # it fits into a message
        assert said["src"] == "data:image/png;base64," + b64encode(DOT).decode()
        return
    image = said["payload"]["images"][0]
    assert image["src"].startswith(f"api/blobs/{session}/")
    status, headers, data = asked(ada, urljoin("/log/", image["src"]))
    assert (status, headers["content-type"], data) == (200, "image/png", DOT)
    assert headers["content-disposition"] == "attachment"
    assert asked(ada, urljoin("/log/", image["src"]), "user=cookie-of-bob")[0] == 404


def test_the_description_says_where_it_is(ada: Mounted) -> None:
    status, document = ada.get("/openapi.json")
    assert (status, document["servers"]) == (200, [{"url": "/log"}])
    assert list(OpenAPIV31SpecValidator(document).iter_errors()) == []


def test_the_page_works_in_a_browser_below_the_prefix(ada: Mounted, chromium: str) -> None:
    _, reader = drawn(ada)
    [src] = [
        event["payload"]["images"][0]["src"] for event in reader.events if event["type"] == "tool.result"
    ]
    with browsing(chromium) as browser:
        context = browser.new_context()
        context.set_default_timeout(HANG_MS)
        cookie = {"name": "user", "value": "cookie-of-ada", "url": f"http://127.0.0.1:{ada.port}"}
        context.add_cookies([cookie])  # type: ignore[list-item]
        page = context.new_page()
        errors, answers = watched(page), list[Response]()
        page.on("response", lambda answer: answers.append(answer))
        page.goto(f"{ada.url}/", wait_until="load")
        shown = page.evaluate(
            "src => new Promise(done => { const i = new Image(); i.onload = () => done(i.naturalWidth);"
            " i.onerror = () => done(-1); i.src = src; })",
            src,
        )
        assert (shown, errors) == (1, [])
        assert {f"{ada.url}/{name}" for name in ("", "console.js", "console.css")} <= {
            answer.url for answer in answers
        }
        assert all(answer.url.startswith((f"{ada.url}/", "data:")) and answer.ok for answer in answers)


def test_below_two_prefixes_with_turnlogs_own_sign_in(tmp_path: Path) -> None:
    with hosting("starlette", "/a/b", tmp_path) as host:
        assert asked(host, "/hello")[2] == b"hello"
        code = BuiltinAuth(b"k" * 32).make_join_code("sess_none", "inv_1")
        assert asked(host, f"/a/b/sign-in?code={code}")[0] == 403
        assert host.get("/api/me")[0] == 401
        owner = BuiltinAuth(b"k" * 32)
        cookie = f"{owner.cookie_name}={owner.make_cookie(Identity(Principal('ada')), time.time())[0]}"
        ada = Mounted(host.process, host.port, prefix="/a/b", cookie=cookie)
        session, _ = drawn(ada)
        path = ada.post("/api/links", {"session": session, "roles": ["guest"]})[1]["path"]
        assert path.startswith("/a/b/sign-in?code=")
        address, form = redemption(path)
        status, headers, _ = asked(host, address, form=form)
        assert (status, headers["location"]) == (303, f"/a/b/talk/{session}")
        assert "Path=/a/b" in headers["set-cookie"].split("; ")
        guest = Mounted(
            host.process, host.port, prefix="/a/b", cookie=headers["set-cookie"].partition(";")[0]
        )
        assert [one["session_id"] for one in guest.get("/api/sessions")[1]["sessions"]] == [session]


def test_a_host_that_does_not_run_the_lifespan_is_told_so(tmp_path: Path) -> None:
    with hosting("forgotten", "/log", tmp_path, "user=cookie-of-ada") as host:
        for status, answer in (
            host.get("/api/sessions"),
            host.get("/api/events?session=x"),
            host.post("/api/send", {"message": "hi"}),
            host.post("/agent/run", {"user_prompt": "hi"}),
        ):
            assert status == 503
            assert "Turnlog has not started" in answer["error"]
            assert "lifespan_context" in answer["error"]
        assert list(tmp_path.iterdir()) == []


def test_a_host_stops_with_a_stream_open_and_the_session_goes_on_after_it(tmp_path: Path) -> None:
    cookie = "user=cookie-of-ada"
    with hosting("fastapi", "/log", tmp_path, cookie) as host:
        session, reader = drawn(host)

        async def stopped() -> bool:
            begun = asyncio.Event()
            reader.last_id = ""
            reading = asyncio.create_task(reader.read(lambda _: begun.set()))
            await begun.wait()
            await asyncio.to_thread(host.stop, 5)
            return await reading

        assert not asyncio.run(stopped())
    with hosting("fastapi", "/log", tmp_path, cookie) as host:
        again = Reader(host, session, prefix="/log")
        host.send(session, "Once more")
        ends = iter(range(2))
        assert asyncio.run(again.read(lambda message: kind("agent.end")(message) and next(ends) == 1))
        processes = [event["type"] for event in again.events if event["type"].startswith("process.")]
        assert processes == ["process.start", "process.end", "process.start"], "it stopped in order"
