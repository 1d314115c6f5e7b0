"""The packages of this repository as npm packs them: compiled, packed, and installed from their tarballs.

`install_turnlog` returns a folder whose `node_modules` has `@turnlog/client` and `@turnlog/react` beside
React and assistant-ui. It is built once for each version of the sources, inside the virtual environment.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from contextlib import suppress
from pathlib import Path

from tests.e2e.harness import ROOT
from tests.foreign_clients.node import find_node
from tests.foreign_clients.packages import CACHE, INSTALL, install_packages

HERE = Path(__file__).parent
SOURCES = (ROOT / "web/client", ROOT / "web/react")  # in the order of their dependencies
NOT_SOURCES = shutil.ignore_patterns("dist", "node_modules")


def run_node(folder: Path, *arguments: str | Path) -> str:
    """Run a script with Node.js in a folder and return its output, which a failure shows."""
    return run(folder, [*find_node().node, *map(str, arguments)])


def run_npm(folder: Path, *arguments: str) -> str:
    return run(folder, [*find_node().npm, *arguments])


def run(folder: Path, command: list[str]) -> str:
    # npm starts `node` by its name
    path = os.pathsep.join([str(Path(find_node().node[0]).parent), os.environ.get("PATH", "")])
    done = subprocess.run(
        command, cwd=folder, env=os.environ | {"PATH": path}, stdout=subprocess.PIPE, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def digest_sources() -> str:
    """Return a digest of all files that the packages are built from."""
    digest = hashlib.sha256((HERE / "package-lock.json").read_bytes())
    for root in SOURCES:
        for path in sorted(root.rglob("*")):
            if path.is_file() and not {"dist", "node_modules"} & set(path.relative_to(root).parts):
                digest.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return digest.hexdigest()[:16]


def pack(source: Path, place: Path) -> Path:
    """Pack a package, whose script `prepack` compiles it with the packages of `place`. Return the tarball."""
    folder = place / "packages" / source.name
    shutil.copytree(source, folder, ignore=NOT_SOURCES)
    run_npm(folder, "pack", "--ignore-scripts=false", "--loglevel=error")
    [tarball] = folder.glob("*.tgz")
    return tarball


def install_turnlog() -> Path:
    """Return a folder with all packages in `node_modules`. Two processes may install at once."""
    installed = CACHE / f"turnlog-{digest_sources()}"
    if installed.exists():
        return installed

    base = install_packages(HERE)
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        place = Path(name) / "done"
        # npm replaces files and never changes them, so links share the disk space
        shutil.copytree(base, place, symlinks=True, copy_function=link_file)
        tarballs: list[str] = []
        for source in SOURCES:
            tarballs.append(f"./{pack(source, place).relative_to(place)}")
            run_npm(place, *INSTALL, "--prefer-offline", "--no-save", *tarballs)
        with suppress(OSError):  # another process was faster
            place.rename(installed)
    return installed


def link_file(source: str, target: str) -> None:
    Path(target).hardlink_to(source)
