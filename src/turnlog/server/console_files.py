"""The files of the console (built by `hatch_build.py`), read once at the start and served at `/`.

`/talk/{session}` is the page of participants: the file `talk.html` of the build. A build without it sends
them to the console, which shows them what their role sees.

They need no sign-in; the data they show does. All addresses in them are relative. A browser revalidates each
file with its ETag. Scripts and styles also have a gzip variant. Only files of the folder are served.
"""

import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from turnlog.events import is_session_id
from turnlog.server.html_pages import get_root_path

CONSOLE_DIR = files("turnlog.server") / "console"
INDEX_FILE = "index.html"
TALK_FILE = "talk.html"
TALK_PATH = "/talk/{session}"
MEDIA_TYPES = {
    ".html": "text/html",
    ".js": "text/javascript",
    ".css": "text/css",
    ".txt": "text/plain",
    ".svg": "image/svg+xml",
}
# Only two trusted-types policies may create markup: Lit's, for its templates, and DOMPurify's.
CONSOLE_HEADERS = {
    "content-security-policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data: blob:; font-src 'none'; frame-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types lit-html dompurify",
    "x-dns-prefetch-control": "off",  # a link must not reveal its host before it is clicked
}
NOT_BUILT_MESSAGE = (
    "Turnlog's console is not built; everything else works. Install turnlog again, or run "
    "`python hatch_build.py` in its source folder.\n"
)
Endpoint = Callable[[Request], Awaitable[Response]]


@dataclass(frozen=True, slots=True)
class FileVariant:
    """A file with one content encoding: its bytes and headers."""

    body: bytes
    headers: dict[str, str]


def make_variant(body: bytes, **headers: str) -> FileVariant:
    etag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
    caching = {"etag": etag, "cache-control": "no-cache", "vary": "accept-encoding"}
    return FileVariant(body, {**CONSOLE_HEADERS, **caching, **headers})


def console_routes(folder: Traversable = CONSOLE_DIR) -> list[Route]:
    """Return a route for every file in the folder. If nothing was built, return one that says so."""
    bodies: dict[str, bytes] = {}
    if folder.is_dir():
        bodies = {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()}
    if INDEX_FILE not in bodies:
        return [Route("/", respond_not_built), Route(TALK_PATH, respond_not_built)]

    talk_body = bodies.pop(TALK_FILE, None)
    talk_endpoint: Endpoint = redirect_to_console
    if talk_body is not None:
        talk_endpoint = make_file_endpoint(talk_body, bodies.get(f"{TALK_FILE}.gz"), MEDIA_TYPES[".html"])
    routes = [Route(TALK_PATH, talk_endpoint)]
    for name, body in sorted(bodies.items()):
        media_type = MEDIA_TYPES.get("." + name.rpartition(".")[2])
        if media_type is not None:
            endpoint = make_file_endpoint(body, bodies.get(f"{name}.gz"), media_type)
            routes.append(Route("/" if name == INDEX_FILE else f"/{name}", endpoint))
    return routes


def make_file_endpoint(body: bytes, gzip_body: bytes | None, media_type: str) -> Endpoint:
    plain = make_variant(body)
    compressed = plain if gzip_body is None else make_variant(gzip_body, **{"content-encoding": "gzip"})

    async def send_file(request: Request) -> Response:
        use_gzip = accepts_gzip(request.headers.get("accept-encoding", ""))
        variant = compressed if use_gzip else plain
        if variant.headers["etag"] in parse_etags(request.headers.get("if-none-match", "")):
            return Response(status_code=304, headers=variant.headers)
        return Response(variant.body, media_type=media_type, headers=variant.headers)

    return send_file


async def redirect_to_console(request: Request) -> Response:
    session_id = request.path_params["session"]
    query = f"?session={session_id}" if is_session_id(session_id) else ""
    return RedirectResponse(f"{get_root_path(request.scope)}/{query}", 303, CONSOLE_HEADERS)


async def respond_not_built(_: Request) -> Response:
    return PlainTextResponse(NOT_BUILT_MESSAGE, 503, CONSOLE_HEADERS)


def accepts_gzip(accept_encoding: str) -> bool:
    for part in accept_encoding.lower().split(","):
        coding, has_weight, weight = part.partition(";")
        if coding.strip() == "gzip":
            return not has_weight or weight.strip(" q=0.") != ""
    return False


def parse_etags(if_none_match: str) -> set[str]:
    return {tag.strip().removeprefix("W/") for tag in if_none_match.split(",")}
