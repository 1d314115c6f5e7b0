"""React pages of other projects' packages: bundled by esbuild, served from an origin of their own."""

import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from playwright.sync_api import ConsoleMessage, Page

from tests.foreign_clients.node import find_node
from tests.foreign_clients.packages import workspace

ESBUILD_OPTIONS = (
    "--bundle",
    "--format=esm",
    "--jsx=automatic",
    "--loader:.css=empty",
    "--log-level=error",
    '--define:process.env.NODE_ENV="production"',
)
PAGE = """<!doctype html><title>{name}</title><link rel="icon" href="data:,">
<div id="root"></div><script type="module" src="{name}.js"></script>"""


class QuietHandler(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@contextmanager
def bundled(folder: Path, parent: Path, *names: str) -> Iterator[Path]:
    """Yield a folder with the packages and scripts of `folder`, and the pages `names` in `out`."""
    with workspace(folder, parent) as place:
        out = place / "out"
        out.mkdir()
        sources = [f"{name}.jsx" for name in names]
        esbuild = place / "node_modules" / "esbuild" / "bin" / "esbuild"
        subprocess.run(
            [*find_node().node, esbuild, *sources, *ESBUILD_OPTIONS, "--outdir=out"], cwd=place, check=True
        )
        for name in names:
            (out / f"{name}.html").write_text(PAGE.format(name=name))
        yield place


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on a port of its own. Yield the origin."""
    handler = partial(QuietHandler, directory=str(folder))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Visit:
    """A page in a browser, and what it complained of."""

    def __init__(self, page: Page, address: str) -> None:
        self.page = page
        self._address = address
        self.problems: list[str] = []
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.on("console", self._on_console)

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(message.text)

    def open(self) -> None:
        """Load the page, also for a second time."""
        self.page.goto(self._address)

    def say(self, text: str) -> None:
        """Type a message and send it. A page that is still loading takes none: then it is typed again."""
        field = self.page.locator("input:not([type=button]), textarea").first
        field.fill(text)
        field.press("Enter")
        while field.input_value():
            field.fill(text)
            field.press("Enter")
