"""Runs the fenced blocks of a document, in order, in one folder. What is done, a block's first line says:

    ```python               run as a script; a warning is an error
    ```python title=app.py  written to that file, and run; as a test if it is called test_...
    ```js title=page.mjs    its syntax and its imports are checked, and it is written to that file
    ```tsx                  its syntax is checked
    ```sh run               run by bash; blocks share the folder and what they export
    ```sh until=TEXT        the same, for what does not end: stopped when a line of its output has the text
    ```sh server            `turnlog serve`, started on a free port and stopped at the end of the document
    ```sh checked           not run, as it leaves this machine: its commands are looked up (`docs_names`)
    ```text output          what the block before printed; `...` stands for anything
    ```json, ```toml        must parse; written if there is a title
    ```nginx                must be a server block that nginx takes

Where a document says 127.0.0.1:8765 the port of its server is meant. In the documents at the root, which have
no words for tests in them, a block of a shell is `checked`. A block without a language is a drawing.
"""

import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tomllib
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import IO

from tests.foreign_clients.node import install_clients
from tests.support.docs_blocks import ROOT, Block, blocks
from tests.support.limits import HANG_S

PROGRAMS = ("curl", "openssl", "node")  # that blocks of a shell use, and a machine may not have
USUAL = "127.0.0.1:8765"
IMPORT = re.compile(r"""^(?:import|export)\b[^"';]*["']([^"']+)["']""", re.MULTILINE)
CLIENT = ROOT / "web/client"


class Fault(Exception):
    """A block is not as it says."""


class Room:
    """A folder in which the blocks of one document run, its variables, and its server."""

    def __init__(self, folder: Path, program: Callable[[str], str]) -> None:
        self.folder = folder
        self.program = program
        self.printed = ""
        self.address = USUAL
        self.env = dict(os.environ) | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
        self.env.pop("TURNLOG_TOKEN", None)
        self.variables = folder / ".variables"
        self.variables.touch()
        modules = folder / "node_modules/@turnlog"
        modules.mkdir(parents=True)
        (modules / "client").symlink_to(CLIENT)
        self.closing = ExitStack()

    def run(self, path: Path) -> None:
        """Every block of a document; `Fault` names the first one that is not as it says."""
        with self.closing:
            for block in blocks(path):
                self.block(block)

    def block(self, block: Block) -> None:
        kind = KINDS.get(block.language)
        if kind is None:
            raise Fault(f"{block}: nothing checks {block.language}")
        text = block.text.replace(USUAL, self.address)
        try:
            if title := block.value("title"):
                (self.folder / title).write_text(text)
            kind(self, block, text)
        except Fault as fault:
            raise Fault(f"{block}: {fault}") from None
        except subprocess.TimeoutExpired:
            raise Fault(f"{block}: has not ended after {HANG_S:g} s") from None

    def execute(self, command: list[str]) -> None:
        ran = subprocess.run(
            command, cwd=self.folder, env=self.env, capture_output=True, text=True, timeout=HANG_S
        )
        self.printed = ran.stdout
        if ran.returncode != 0:
            raise Fault(f"ended with {ran.returncode}\n{ran.stdout}{ran.stderr}")

    def shell(self, text: str) -> list[str]:
        """A command that runs a text, with the variables of the blocks before it, and keeps its own."""
        for name in PROGRAMS:
            if re.search(rf"\b{name} ", text):
                self.env["PATH"] += f":{Path(self.program(name)).parent}"
        kept = shlex.quote(str(self.variables))
        return ["bash", "-euo", "pipefail", "-c", f". {kept}\n{text}\n{{ export -p; declare -f; }} > {kept}"]

    def start(self, text: str) -> subprocess.Popen[str]:
        """A process that is ended with the document, if not before."""
        process = subprocess.Popen(
            self.shell(text),
            cwd=self.folder,
            env=self.env,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,  # a group of its own, to be ended whole
        )
        self.closing.callback(ended, process)
        return process


def ended(process: subprocess.Popen[str]) -> None:
    """Stop a process that was started here, and what it started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(HANG_S)
    if process.stdout:
        process.stdout.close()


def python(room: Room, block: Block, text: str) -> None:
    title = block.value("title")
    pytest = ["-m", "pytest", "-q", "-p", "no:cacheprovider"] if title.startswith("test_") else []
    command = [sys.executable, "-W", "error", *pytest, *([title] if title else ["-c", text])]
    room.execute(room.shell(shlex.join(command)))


def js(room: Room, block: Block, text: str) -> None:
    file = room.folder / (block.value("title") or f"block-{block.line}.mjs")
    file.write_text(text)
    room.execute([room.program("node"), "--check", file.name])
    for name in IMPORT.findall(text):
        probe = f"await import.meta.resolve({name!r}); await import({name!r})"
        room.execute([room.program("node"), "--input-type=module", "-e", probe])


def tsx(room: Room, block: Block, text: str) -> None:
    """Check the syntax. The packages of React that it imports are not installed."""
    program = install_clients() / "node_modules" / "esbuild" / "bin" / "esbuild"
    file = room.folder / f"block-{block.line}.tsx"
    file.write_text(text)
    room.execute([room.program("node"), str(program), "--log-level=warning", file.name])


def sh(room: Room, block: Block, text: str) -> None:
    how = block.words[0] if block.words else "checked" if block.path.parent == ROOT else ""
    if how == "run":
        room.execute(room.shell(text))
    elif how == "server":
        serve(room, text)
    elif how.startswith("until="):
        until(room, text, block.value("until"))
    elif how != "checked":
        raise Fault("expected one of run, until=TEXT, server, checked")


def serve(room: Room, text: str) -> None:
    """Start the server of a block; from now on the usual address means it."""
    process = room.start(text.replace("turnlog serve", "turnlog serve --port 0"))
    line = lines_until(process.stdout, "Turnlog is at")[-1]
    room.address = line.split("http://")[1].split("/")[0].replace("localhost", "127.0.0.1")


def until(room: Room, text: str, wanted: str) -> None:
    process = room.start(text)
    room.printed = "".join(lines_until(process.stdout, wanted))
    ended(process)


def lines_until(stream: IO[str] | None, wanted: str) -> list[str]:
    """The lines of a process up to one that has a text in it."""
    assert stream is not None
    lines: list[str] = []
    for line in stream:
        lines.append(line)
        if wanted in line:
            return lines
    raise Fault(f"ended, and has not said {wanted}\n{''.join(lines)}")


def words(room: Room, block: Block, text: str) -> None:
    if "output" not in block.words:
        return
    pieces = [re.escape(piece) for piece in text.strip().split("...")]
    if not re.fullmatch(".*?".join(pieces), room.printed.strip(), re.DOTALL):
        raise Fault(f"the block before printed\n{room.printed}")


def parsed(parse: Callable[[str], object]) -> Callable[[Room, Block, str], None]:
    """A check of what has to parse."""

    def check(room: Room, block: Block, text: str) -> None:
        try:
            parse(text)
        except ValueError as error:
            raise Fault(str(error)) from None

    return check


def nginx(room: Room, block: Block, text: str) -> None:
    from tests.support.docs_nginx import check_command, configure

    room.execute(check_command(room.program("nginx"), configure(room.folder, text)))


def drawing(room: Room, block: Block, text: str) -> None:
    """Nothing to run."""


KINDS: dict[str, Callable[[Room, Block, str], None]] = {
    "python": python,
    "js": js,
    "tsx": tsx,
    "sh": sh,
    "text": words,
    "json": parsed(json.loads),
    "toml": parsed(tomllib.loads),
    "nginx": nginx,
    "": drawing,
}
