"""The nginx of `docs/deploy.md`, for real: TLS, events as they come, resume, cookies, names."""

import contextlib
import http.client
import json
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.conftest import program
from tests.e2e.harness import Server, running
from tests.support.docs_blocks import ROOT, blocks
from tests.support.docs_nginx import NAME, configure, free_port, run_command
from tests.support.limits import HANG_S

UPSTREAM = "127.0.0.1:8765"
NEVER_S = 1.0  # how long a control waits for what must not come


class Site(NamedTuple):
    """A server behind nginx."""

    server: Server
    plain: int
    tls: int
    folder: Path

    def open(self, limit_s: float = HANG_S) -> http.client.HTTPConnection:
        """A connection as a browser has it: to the name, which is this machine here."""
        trusted = ssl.create_default_context(cafile=self.folder / "cert.pem")
        return http.client.HTTPSConnection("127.0.0.1", self.tls, timeout=limit_s, context=trusted)

    @property
    def host(self) -> str:
        return f"{NAME}:{self.tls}"

    def headers(self, **more: str) -> dict[str, str]:
        named = {name.replace("_", "-"): value for name, value in more.items()}
        return self.server.headers | {"host": self.host} | named

    def post(self, path: str, body: object, **more: str) -> tuple[int, http.client.HTTPMessage, bytes]:
        with contextlib.closing(self.open()) as line:
            headers = self.headers(content_type="application/json", **more)
            line.request("POST", path, json.dumps(body), headers)
            answer = line.getresponse()
            return answer.status, answer.headers, answer.read()

    @contextlib.contextmanager
    def events(self, session: str, **more: str) -> Iterator[http.client.HTTPResponse]:
        with contextlib.closing(self.open()) as line:
            line.request("GET", f"/api/events?session={session}", headers=self.headers(**more))
            answer = line.getresponse()
            assert (answer.status, answer.headers["content-type"]) == (
                200,
                "text/event-stream; charset=utf-8",
            )
            yield answer


@contextlib.contextmanager
def behind(nginx: str, folder: Path, replaced: tuple[str, str] = ("", "")) -> Iterator[Site]:
    """A server, and before it the nginx of the document, or one with another line in it."""
    [block] = [block for block in blocks(ROOT / "docs/deploy.md") if block.language == "nginx"]
    assert replaced[0] in block.text
    with running("turnlog_examples.tour:app", folder, options=["--allow-host", NAME]) as server:
        servers = block.text.replace(UPSTREAM, f"127.0.0.1:{server.port}").replace(*replaced)
        plain, tls = free_port(), free_port()
        proxy = subprocess.Popen(run_command(nginx, configure(folder, servers, plain, tls)))
        try:
            yield waited(Site(server, plain, tls, folder), proxy)
        finally:
            proxy.terminate()
            proxy.wait(HANG_S)


def waited(site: Site, proxy: subprocess.Popen[bytes]) -> Site:
    """Wait until nginx answers: it says nothing when it begins to listen."""
    while proxy.poll() is None:
        with contextlib.suppress(ConnectionRefusedError), contextlib.closing(site.open()) as line:
            line.request("GET", "/healthz", headers=site.headers())
            if line.getresponse().status == 200:
                return site
    raise AssertionError((site.folder / "error.log").read_text())


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, nginx: str) -> Iterator[Site]:
    with behind(nginx, tmp_path_factory.mktemp("nginx")) as site:
        yield site


def message(stream: http.client.HTTPResponse) -> tuple[str, str]:
    """The next message: its id and its data. Whoever holds it back makes this wait, and fail."""
    place = ""
    while line := stream.readline().decode().strip() or " ":
        name, _, value = line.partition(": ")
        if name == "id":
            place = value
        elif name == "data":
            return place, value
    raise AssertionError("the stream has ended")


def test_events_come_while_the_turn_goes_on_and_a_reader_that_comes_back_goes_on(site: Site) -> None:
    session = site.server.session()
    with site.events(session) as stream:
        message(stream)  # the stream is open and caught up
        status, _, _ = site.post("/api/send", {"session": session, "message": "Oslo"})
        assert status == 202
        seen = [message(stream) for _ in range(5)]
        [asked] = [place for place, data in seen if '"ui.message"' in data]
    with site.events(session, last_event_id=asked) as again:
        place, _ = message(again)
    assert place == seen[[place for place, _ in seen].index(asked) + 1][0]


def test_a_page_of_this_name_may_post_and_one_of_another_may_not(site: Site) -> None:
    assert site.post("/api/sessions", {}, origin=f"https://{site.host}")[0] == 201
    assert site.post("/api/sessions", {}, origin="https://elsewhere.example.org")[0] == 403


def test_cookies_are_secure_and_plain_http_is_sent_to_tls(site: Site) -> None:
    status, headers, _ = site.post("/api/sign-in", {})
    assert status == 204
    assert "; Secure" in headers["set-cookie"]
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", site.plain, timeout=HANG_S)) as line:
        line.request("GET", "/api/me", headers={"host": NAME})
        answer = line.getresponse()
        assert (answer.status, answer.headers["location"]) == (301, f"https://{NAME}/api/me")


def test_a_browser_may_speak_http_2(site: Site) -> None:
    command = [program("curl"), "-s", "--http2", "-o", "-", "-w", "%{http_version}", "--cacert", "cert.pem"]
    resolve = ["--resolve", f"{site.host}:127.0.0.1", f"https://{site.host}/healthz"]
    ran = subprocess.run(
        [*command, *resolve], cwd=site.folder, capture_output=True, text=True, timeout=HANG_S
    )
    assert '"status":"ok"' in ran.stdout
    assert ran.stdout.endswith("2"), ran.stdout


def test_control_without_its_line_cookies_are_not_secure(tmp_path: Path, nginx: str) -> None:
    with behind(nginx, tmp_path, ("proxy_set_header X-Forwarded-Proto $scheme;", "")) as site:
        assert "Secure" not in site.post("/api/sign-in", {})[1]["set-cookie"]


def test_control_a_proxy_that_buffers_holds_events_back(tmp_path: Path, nginx: str) -> None:
    buffers = "proxy_buffering on; proxy_ignore_headers X-Accel-Buffering;"
    changed = behind(nginx, tmp_path, ("proxy_buffering off;", buffers))
    with changed as site, contextlib.closing(site.open(NEVER_S)) as line:
        line.request("GET", f"/api/events?session={site.server.session()}", headers=site.headers())
        with pytest.raises(TimeoutError):
            line.getresponse()
