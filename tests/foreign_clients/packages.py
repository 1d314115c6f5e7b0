"""The npm packages of foreign clients: installed once for each lock, inside the virtual environment.

A folder has `package.json`, `package-lock.json` and scripts. `workspace` returns a folder in which its
scripts find their packages.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.foreign_clients import node

CACHE = Path(sys.prefix) / "foreign_clients"
PACKAGE_FILES = ("package.json", "package-lock.json", ".npmrc")
SCRIPTS = ("*.mjs", "*.js", "*.jsx")
# Not `npm ci`, which refuses a lock without the optional packages of platforms that a registry does not have.
INSTALL = ("install", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error")


def install_packages(folder: Path) -> Path:
    """Return a folder with the packages of a lock in `node_modules`. Two processes may install at once."""
    digest = hashlib.sha256((folder / "package-lock.json").read_bytes()).hexdigest()[:16]
    installed = CACHE / f"{folder.name}-{digest}"
    if installed.exists():
        return installed

    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as name:
        for file in PACKAGE_FILES:
            shutil.copy(folder / file, name)
        subprocess.run([*node.find_node().npm, *INSTALL], cwd=name, check=True, stdout=subprocess.DEVNULL)
        target = Path(name) / "done"
        target.mkdir()
        for path in list(Path(name).iterdir()):
            if path != target:
                path.rename(target / path.name)
        if not installed.exists():
            target.rename(installed)
    return installed


@contextmanager
def workspace(folder: Path, parent: Path) -> Iterator[Path]:
    """Yield a folder with the scripts of `folder` and its packages."""
    installed = install_packages(folder)
    place = Path(tempfile.mkdtemp(dir=parent))
    for pattern in SCRIPTS:
        for script in folder.glob(pattern):
            shutil.copy(script, place)
    shutil.copy(folder / "package.json", place)
    os.symlink(installed / "node_modules", place / "node_modules")
    yield place
