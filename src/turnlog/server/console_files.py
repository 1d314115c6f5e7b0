"""The console's files, at `/` and beside it: what was built (see `hatch_build.py`), read once, sent as it is.

Everybody gets them; what they show, they ask for as whoever is signed in. All addresses in them are relative.
A browser asks each time whether a file has changed, and its ETag tells. Scripts and styles have a gzip twin
for those who accept it. Only names that the folder has can be asked for.
"""

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

CONSOLE_DIR = files("turnlog.server") / "console"
INDEX_FILE = "index.html"
MEDIA_TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".txt": "text/plain",
    ".svg": "image/svg+xml",
}
# The two policies that may make markup of text are those of Lit, for its templates, and of DOMPurify.
CONSOLE_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data: blob:; font-src 'none'; frame-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types lit-html dompurify",
    "x-dns-prefetch-control": "off",  # a link that nobody follows tells nobody anything
}
NOT_BUILT_MESSAGE = (
    "Turnlog's console is not built; everything else works. Install turnlog again, or run "
    "`python hatch_build.py` among its sources.\n"
)
Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class FileVariant:
    """One form of a file: its bytes, and the headers that say which they are."""

    body: bytes
    headers: dict[str, str]


def make_variant(body: bytes, **headers: str) -> FileVariant:
    """A form with its own ETag: a plain file and its twin are different bytes."""
    tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    said = {"etag": tag, "cache-control": "no-cache", "vary": "accept-encoding"}
    return FileVariant(body, {**CONSOLE_HEADERS, **said, **headers})


def console_routes(folder: Traversable = CONSOLE_DIR) -> list[Route]:
    """A route for every file in the folder; `/` alone, which says so, if nothing was built."""
    found = (
        {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
        if folder.is_dir()
        else {}
    )
    if INDEX_FILE not in found:
        return [Route("/", respond_not_built)]
    return [
        Route(
            "/" if name == INDEX_FILE else f"/{name}",
            make_file_endpoint(body, found.get(f"{name}.gz"), MEDIA_TYPES[suffix]),
        )
        for name, body in sorted(found.items())
        if (suffix := f".{name.rpartition('.')[2]}") in MEDIA_TYPES
    ]


def make_file_endpoint(body: bytes, gzip_body: bytes | None, media_type: str) -> Endpoint:
    """An endpoint that answers with a file, or with its twin, or that nothing has changed."""
    plain = make_variant(body)
    small = plain if gzip_body is None else make_variant(gzip_body, **{"content-encoding": "gzip"})

    async def endpoint(request: Request) -> Response:
        chosen = small if accepts_gzip(request.headers.get("accept-encoding", "")) else plain
        if chosen.headers["etag"] in parse_etags(request.headers.get("if-none-match", "")):
            return Response(status_code=304, headers=chosen.headers)
        return Response(chosen.body, media_type=media_type, headers=chosen.headers)

    return endpoint


async def respond_not_built(_: Request) -> Response:
    """What is at `/` while there is no console."""
    return PlainTextResponse(NOT_BUILT_MESSAGE, 503, CONSOLE_HEADERS)


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether an Accept-Encoding names gzip and does not refuse it."""
    for one in accept_encoding.lower().split(","):
        coding, weighed, weight = one.partition(";")
        if coding.strip() == "gzip":
            return not weighed or weight.strip(" q=0.") != ""
    return False


def parse_etags(if_none_match: str) -> set[str]:
    """The ETags of an If-None-Match, with those that a proxy has weakened."""
    return {one.strip().removeprefix("W/") for one in if_none_match.split(",")}
