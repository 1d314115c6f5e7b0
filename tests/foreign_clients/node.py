"""Clients of other projects from npm, as processes that tests give steps to.

The packages of `package-lock.json` are installed once for each version of that file, into a folder of the
virtual environment. Each client is a Node.js program that reads one JSON step per line and prints one report
per step.
"""

import hashlib
import json
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hatch_build import INSTALL, Node, machine_node, wheel_node
from tests.support.limits import HANG_S

HERE = Path(__file__).parent
LOCK = HERE / "package-lock.json"


def find_node() -> Node:
    node = machine_node() or wheel_node()
    assert node is not None, "npm is missing: install Node.js 20 or later, or run `make test`, which does"
    return node


def install_clients() -> Path:
    """Return a folder with the clients' packages and programs."""
    digest = hashlib.sha256(LOCK.read_bytes()).hexdigest()[:16]
    folder = Path(sys.prefix) / "foreign_clients" / digest
    if folder.exists():
        return folder
    # Several test processes may install at once: the first that is done gives the folder its name.
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as workshop:
        for name in ("package.json", "package-lock.json", ".npmrc"):
            shutil.copy(HERE / name, workshop)
        subprocess.run([*find_node().npm, *INSTALL], cwd=workshop, check=True, stdout=subprocess.DEVNULL)
        finished = Path(workshop) / "finished"
        finished.mkdir()
        for path in Path(workshop).iterdir():
            if path != finished:
                path.rename(finished / path.name)
        with suppress(OSError):  # another process was faster
            finished.rename(folder)
    return folder


class Client:
    """A running client program."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self._reports: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._reports.put(line)
        self._reports.put("")

    def join(self) -> None:
        """Wait for the end of a process that was killed."""
        self._process.wait()
        self._reader.join()
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()

    def start(self, op: str, **step: Any) -> None:
        """Begin a step; `report` waits for it."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"op": op, **step}) + "\n")
        self._process.stdin.flush()

    def report(self) -> Any:
        line = self._reports.get(timeout=HANG_S)
        assert line, "the client program has ended"
        return json.loads(line)

    def do(self, op: str, **step: Any) -> Any:
        self.start(op, **step)
        return self.report()


@contextmanager
def running_client(program: str, *arguments: str) -> Iterator[Client]:
    folder = install_clients()
    # The program must lie beside the packages that it imports.
    name = f"{hashlib.sha256((HERE / program).read_bytes()).hexdigest()[:16]}-{program}"
    if not (folder / name).exists():
        shutil.copy(HERE / program, folder / name)
    process = subprocess.Popen(
        [*find_node().node, str(folder / name), *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    client = Client(process)
    try:
        yield client
    finally:
        process.kill()
        client.join()
