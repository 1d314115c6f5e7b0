"""The console's files: who gets which bytes, with which headers, and what is there when nothing was built."""

import gzip
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.testclient import TestClient

from turnlog.app import LOCAL
from turnlog.server import create_app
from turnlog.server.auth.credentials import BuiltinAuth, hash_token
from turnlog.server.console_files import (
    CONSOLE_HEADERS,
    NOT_BUILT_MESSAGE,
    TALK_PATH,
    accepts_gzip,
    console_routes,
)
from turnlog_examples.tour import make_app

SCRIPT = b"export const words = 'much of the same, much of the same, much of the same';"
FILES = {
    "index.html": b"<!doctype html><title>Turnlog</title>",
    "console.js": SCRIPT,
    "console.js.gz": gzip.compress(SCRIPT, mtime=0),
    "chunk-ABC.js": b"export {};",
    "console.css": b"p { color: red }",
    "LICENSES.txt": b"free",
    "SOURCES": b"a digest",
    "console.js.map": b"{}",
}
KINDS = {
    "/": "text/html",
    "/console.js": "text/javascript",
    "/chunk-ABC.js": "text/javascript",
    "/console.css": "text/css",
    "/LICENSES.txt": "text/plain",
}
TOKEN = "a" * 32


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, body in FILES.items():
        (tmp_path / name).write_bytes(body)
    (tmp_path.parent / "beside.js").write_text("not of the console")
    return tmp_path


@pytest.fixture
def visitor(folder: Path) -> TestClient:
    return TestClient(Starlette(routes=list(console_routes(folder))), headers={"accept-encoding": "identity"})


def test_every_file_is_served_as_what_it_is_and_nothing_else(visitor: TestClient, folder: Path) -> None:
    assert {route.path for route in console_routes(folder)} == {*KINDS, TALK_PATH}
    for path, kind in KINDS.items():
        answer = visitor.get(path)
        assert (answer.status_code, answer.headers["content-type"]) == (200, f"{kind}; charset=utf-8")
        assert answer.content == FILES[path[1:] or "index.html"]


def test_participants_get_their_page_with_the_policy_of_the_console(folder: Path) -> None:
    (folder / "talk.html").write_bytes(b"<!doctype html><title>Talk</title>")
    visitor = TestClient(Starlette(routes=list(console_routes(folder))))
    page = visitor.get("/talk/sess_1")
    assert (page.status_code, page.content) == (200, b"<!doctype html><title>Talk</title>")
    policy = "content-security-policy"
    assert page.headers[policy] == visitor.get("/").headers[policy] == CONSOLE_HEADERS[policy]
    assert visitor.get("/talk.html").status_code == visitor.get("/talk/a/b").status_code == 404


@pytest.mark.parametrize(("session", "target"), [("sess_1", "/?session=sess_1"), ("..%5c", "/"), ("x", "/")])
def test_a_build_without_that_page_sends_them_to_the_console(
    visitor: TestClient, session: str, target: str
) -> None:
    answer = visitor.get(f"/talk/{session}", follow_redirects=False)
    assert (answer.status_code, answer.headers["location"]) == (303, target)


def test_the_page_of_participants_needs_no_sign_in() -> None:
    application = create_app(make_app(), "memory:", auth=BuiltinAuth(b"k" * 32))
    with TestClient(application, base_url="http://127.0.0.1") as client:
        assert client.get("/talk/sess_1", follow_redirects=False).status_code in (200, 303)
        assert client.get("/api/state?session=sess_1").status_code == 401


@pytest.mark.parametrize(
    "path",
    [
        "/index.html",
        "/SOURCES",
        "/console.js.gz",
        "/console.js.map",
        "/beside.js",
        "/../beside.js",
        "/..%2fbeside.js",
        "/%2e%2e/beside.js",
        "/..%5cbeside.js",
        "/console.js%00",
    ],
)
def test_other_names_lead_nowhere(visitor: TestClient, path: str) -> None:
    assert visitor.get(path).status_code == 404


def test_a_file_that_has_not_changed_is_not_sent_again(visitor: TestClient, folder: Path) -> None:
    first = visitor.get("/console.css")
    tag = first.headers["etag"]
    assert first.headers["cache-control"] == "no-cache"
    for matching in (tag, f"W/{tag}", f'"other", {tag}'):
        again = visitor.get("/console.css", headers={"if-none-match": matching})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    (folder / "console.css").write_text("p { color: blue }")
    changed = TestClient(Starlette(routes=list(console_routes(folder))))
    answer = changed.get("/console.css", headers={"if-none-match": tag})
    assert (answer.status_code, answer.text) == (200, "p { color: blue }")
    assert answer.headers["etag"] != tag


def test_who_accepts_gzip_gets_the_twin_and_its_own_tag(visitor: TestClient) -> None:
    plain = visitor.get("/console.js")
    small = visitor.get("/console.js", headers={"accept-encoding": "br, gzip"})
    assert (plain.content, small.content) == (SCRIPT, SCRIPT), "the client has unpacked the second"
    assert "content-encoding" not in plain.headers
    assert small.headers["content-encoding"] == "gzip"
    assert int(small.headers["content-length"]) == len(FILES["console.js.gz"])
    assert {answer.headers["vary"] for answer in (plain, small)} == {"accept-encoding"}
    assert plain.headers["etag"] != small.headers["etag"]
    both = {"accept-encoding": "gzip", "if-none-match": small.headers["etag"]}
    assert visitor.get("/console.js", headers=both).status_code == 304
    without = visitor.get("/console.css", headers={"accept-encoding": "gzip"})
    assert "content-encoding" not in without.headers, "it has no twin"


@pytest.mark.parametrize(
    ("accepted", "taken"),
    [
        ("gzip", True),
        ("GZIP", True),
        ("deflate, gzip;q=1.0, *;q=0.5", True),
        ("gzip; q=0.001", True),
        ("gzip;q=0", False),
        ("gzip ; q=0.000, br", False),
        ("br", False),
        ("xgzip", False),
        ("", False),
    ],
)
def test_gzip_is_taken_where_it_is_not_refused(accepted: str, taken: bool) -> None:
    assert accepts_gzip(accepted) is taken


@pytest.mark.parametrize("left", [[], ["console.js"]])
def test_without_a_build_the_page_says_what_to_do(tmp_path: Path, left: list[str]) -> None:
    folder = tmp_path / "console"
    for name in left:
        folder.mkdir()
        (folder / name).write_text("")
    visitor = TestClient(Starlette(routes=list(console_routes(folder))))
    answer = visitor.get("/")
    assert (answer.status_code, answer.text) == (503, NOT_BUILT_MESSAGE)
    assert answer.headers["content-type"] == "text/plain; charset=utf-8"
    assert visitor.get("/console.js").status_code == 404


def test_the_built_console_is_for_everybody_and_under_its_policy() -> None:
    app = create_app(make_app(), "memory:", auth=BuiltinAuth(b"k" * 32, {hash_token(TOKEN): LOCAL}))
    visitor = TestClient(app, base_url="http://localhost")
    paths = [route.path for route in console_routes()]
    assert {"/", "/console.js", "/console.css", "/LICENSES.txt"} <= set(paths)
    for path in paths:
        answer = visitor.get(path)
        policy = answer.headers["content-security-policy"].split("; ")
        assert answer.status_code == 200
        assert policy[0] == "default-src 'none'"
        assert {"script-src 'self'", "style-src 'self'", "frame-ancestors 'none'"} <= set(policy)
        assert policy[-2:] == ["require-trusted-types-for 'script'", "trusted-types lit-html dompurify"]
        assert "unsafe" not in answer.headers["content-security-policy"]
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["referrer-policy"] == "no-referrer"
        assert answer.headers["x-dns-prefetch-control"] == "off"
    assert visitor.get("/nothing.js").status_code == 401
    known = {"authorization": f"Bearer {TOKEN}"}
    assert visitor.get("/nothing.js", headers=known).status_code == 404
