"""Pages with the packages of this repository: bundled by esbuild, served from an origin of their own."""

import os
import shutil
from pathlib import Path

from tests.e2e.harness import ROOT
from tests.e2e.react.npm_packages import install_turnlog, run_node
from tests.foreign_clients.pages import ESBUILD_OPTIONS, PAGE
from tests.support.docs_blocks import blocks

HERE = Path(__file__).parent
EXAMPLE = ROOT / "examples/react_chat"
HOW_TO = ROOT / "docs/howto/react.md"
PACKAGE_PAGE = ROOT / "web/react/README.md"


def prepare_pages(place: Path) -> Path:
    """Return a folder with the example, the pages of the tests, the code of the documents, and packages."""
    place.mkdir()
    os.symlink(install_turnlog() / "node_modules", place / "node_modules")
    for folder in (EXAMPLE, HERE):
        for path in folder.glob("*.ts*"):
            shutil.copy(path, place)
    for name in ("index.html", "package.json", "tsconfig.json"):
        shutil.copy(EXAMPLE / name, place)
    for block in (*blocks(HOW_TO), *blocks(PACKAGE_PAGE)):
        if block.language == "tsx":
            (place / (block.value("title") or f"readme-{block.line}.tsx")).write_text(block.text)
    return place


def bundle(place: Path, *names: str) -> None:
    """Bundle scripts of a folder into `out`; each gets a page."""
    run_esbuild(place, *names)
    for name in names:
        (place / f"out/{name}.html").write_text(PAGE.format(name=name))


def render_example(place: Path) -> str:
    """Return the HTML of the example as Node.js renders it, with the packages as Node.js finds them."""
    run_esbuild(place, "server-render", "--platform=node", "--packages=external")
    return run_node(place, "out/server-render.js").strip()


def run_esbuild(place: Path, *arguments: str) -> None:
    sources = [name if name.startswith("-") else f"{name}.tsx" for name in arguments]
    run_node(place, "node_modules/esbuild/bin/esbuild", *sources, *ESBUILD_OPTIONS, "--outdir=out")
