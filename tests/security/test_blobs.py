"""Rows 11 and 12: a name is a label, never a path; what is served is an attachment, never a page."""

import re
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.security.apps import plain
from tests.security.desk import Answer, Desk, bare, desk, run
from tests.security.watch import watched
from tests.support.examples import examples
from turnlog.log import Log
from turnlog.server.routes import blobs

PARTS = (
    "..",
    ".",
    "%2e%2e",
    "%2E.",
    "..%2f",
    "..%5c",
    "\\",
    "/",
    "//",
    "%00",
    "\0",
    "~",
    "etc",
    "passwd",
    "C:",
    "nul",
)
TRAVERSALS = (
    "../secret",
    "..%2fsecret",
    "%2e%2e/secret",
    "%2e%2e%2fsecret",
    "..%5csecret",
    "%252e%252e%252fsecret",
    "secret%00.png",
    "link",
    "/etc/passwd",
    "//etc/passwd",
    "....//secret",
)
names = st.one_of(
    st.lists(st.sampled_from(PARTS), min_size=1, max_size=6).map("".join),
    st.text(st.characters(codec="utf-8"), min_size=1, max_size=40),
)


async def get(at: Desk, session: str, name: str) -> Answer:
    path = (
        name
        if re.fullmatch(r"[!-~]+", name) and "?" not in name and "#" not in name
        else quote(name, safe="")
    )
    return await at.get("ada", f"/api/blobs/{session}/{path}")


@examples(40)
@given(st.lists(names, min_size=1, max_size=20))
def test_no_name_finds_a_file(given_names: list[str]) -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            session = await at.session("ada")
            with watched() as seen:
                for name in given_names:
                    answer = await get(at, session, name)
                    assert answer.status in (307, 400, 404), name  # 307: a slash at the end, taken off
            assert seen == []

    run(scenario())


async def read_file(request: Request) -> Response:
    """A route as many have it: the name of a blob is a path in a folder."""
    folder = Path(request.app.state.folder)
    file = folder / request.path_params["digest"]
    try:
        return Response(file.read_bytes())
    except (OSError, ValueError):
        return Response(status_code=404)


async def traverse(at: Desk, session: str) -> list[bytes]:
    return [(await at.get("ada", f"/api/blobs/{session}/{name}")).body for name in TRAVERSALS]


def test_no_traversal_reads_what_is_beside_the_log(tmp_path: Path) -> None:
    folder = tmp_path / "blobs"
    folder.mkdir()
    (tmp_path / "secret").write_text("canary")
    (folder / "link").symlink_to(tmp_path / "secret")

    async def scenario() -> None:
        async with desk(plain, f"sqlite:///{folder}/log.db") as at:
            session = await at.session("ada")
            with watched() as seen:
                found = await traverse(at, session)
            assert not [body for body in found if b"canary" in body or b"root:" in body]
            assert not [what for kind, what in seen if kind == "open" and "secret" in str(what)]

    run(scenario())


def test_control_a_route_that_opens_files_is_led_out_of_its_folder(tmp_path: Path) -> None:
    folder = tmp_path / "blobs"
    folder.mkdir()
    (tmp_path / "secret").write_text("canary")
    (folder / "link").symlink_to(tmp_path / "secret")

    def change(served: Starlette) -> None:
        served.state.folder = folder
        served.router.routes.insert(0, Route("/api/blobs/{session}/{digest:path}", read_file))

    async def scenario() -> None:
        async with desk(plain, change=change) as at:
            with watched() as seen:
                found = await traverse(at, await at.session("ada"))
            assert b"canary" in found[TRAVERSALS.index("../secret")]
            assert b"canary" in found[TRAVERSALS.index("link")]
            assert [what for kind, what in seen if kind == "open" and "secret" in str(what)]

    run(scenario())


# what is served


def runs(answer: Answer) -> list[str]:
    """Why a browser might run an answer as a page of this server."""
    policy = answer.header("content-security-policy")
    reasons = {
        "shown": not answer.header("content-disposition").startswith("attachment"),
        "sniffed": answer.header("x-content-type-options") != "nosniff",
        "scripts": "sandbox" not in policy or "default-src 'none'" not in policy or "allow-" in policy,
        "embedded": answer.header("cross-origin-resource-policy") != "same-origin",
        "a page": not re.match(
            r"image/(png|jpeg|gif|webp)|application/octet-stream", answer.header("content-type")
        ),
    }
    return [name for name, holds in reasons.items() if holds]


HTML = b"<script>parent.document.title='x'</script>"
MEDIA = (
    "text/html",
    "image/svg+xml",
    "application/xhtml+xml",
    "text/xml",
    "application/pdf",
    "image/png",
    "x",
)


async def served(at: Desk, log: Log) -> list[list[str]]:
    """HTML, kept under all kinds of names, as it is served."""
    found = []
    session = await at.session("ada")
    for media_type in MEDIA:
        name = await log.put_blob(session, HTML + media_type.encode(), media_type)
        found.append(runs(await at.get("ada", f"/api/blobs/{name}")))
    return found


def test_html_is_never_a_page_of_this_server(kept: list[Log]) -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            assert await served(at, kept[-1]) == [[]] * len(MEDIA)

    run(scenario())


def test_control_without_its_headers_it_is(kept: list[Log], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blobs, "BLOB_HEADERS", {})
    monkeypatch.setattr(blobs, "IMAGE_TYPES", frozenset(MEDIA))

    async def scenario() -> None:
        async with desk(plain, change=bare) as at:
            assert (await served(at, kept[-1]))[0] == ["shown", "sniffed", "scripts", "embedded", "a page"]

    run(scenario())
