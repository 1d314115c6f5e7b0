"""`turnlog serve` with the consoles of `console_layers` beside its own.

`python -m tests.security.console_server FOLDER serve ...`, where FOLDER has the builds. The console of a
layer is at `/NAME/`; below that everything else is the server's.
"""

import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from tests.security.console_layers import LAYERS, named
from turnlog import server
from turnlog.cli import main
from turnlog.server import console_files

Endpoint = Callable[[Request], Awaitable[Response]]
PLAIN = "/plain"  # a page that is nothing, from which anything can be loaded


async def plain(_: Request) -> Response:
    return HTMLResponse("<!doctype html><title>Plain</title>")


def pages(builds: Path) -> dict[str, Endpoint]:
    """The files of every layer by their path, each with its headers."""
    found: dict[str, Endpoint] = {PLAIN: plain}
    headers = console_files.CONSOLE_HEADERS
    for layer in LAYERS:
        console_files.CONSOLE_HEADERS = headers if "policy" in layer.has else {}
        for route in console_files.console_routes(builds / named(layer.build)):
            found[f"/{layer.name}{route.path}"] = route.endpoint
    console_files.CONSOLE_HEADERS = headers
    return found


class Layers:
    """Answers with files of layers, and lets everything else through without the name of the layer."""

    def __init__(self, app: ASGIApp, files: dict[str, Endpoint]) -> None:
        self._app = app
        self._files = files

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and (endpoint := self._files.get(scope["path"])):
            response = await endpoint(Request(scope, receive))
            return await response(scope, receive, send)
        _, first, rest = [*scope.get("path", "").split("/", 2), "", ""][:3]
        if first in {layer.name for layer in LAYERS}:
            scope = {**scope, "path": f"/{rest}", "raw_path": f"/{rest}".encode()}
        await self._app(scope, receive, send)


def with_layers(builds: Path) -> Callable[..., Starlette]:
    """A `create_app` whose application has them too."""
    create = server.create_app
    files = pages(builds)

    def created(*args: Any, **given: Any) -> Starlette:
        application = create(*args, **given)
        application.add_middleware(Layers, files=files)
        return application

    return created


if __name__ == "__main__":
    server.__dict__["create_app"] = with_layers(Path(sys.argv.pop(1)))
    main()
