"""One candidate, from its start to its end: its server, its readers, and what both took.

CPU is what all threads of the server ran, from `/proc/PID/task/*/schedstat`; writes are the calls the kernel
counted, from `/proc/PID/io`, which counts write() and not send(): a server that uses the latter reports them.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen
from typing import NamedTuple

READERS = 1_000
PACED = 30
INTERVAL_MS = 100  # the slowest candidate takes most of it
BURSTS = 6
BURST = 32
STOP_S = 10.0
SETTLE_S = 0.5
HERE = Path(__file__).parent


class Sample(NamedTuple):
    """What one candidate took in one round; `us` are of CPU, for one event to one reader."""

    paced_us: float
    burst_us: float
    burst_calls: float
    idle_kb: float
    used_kb: float
    p50_ms: float
    p99_ms: float


def compile_all(folder: Path) -> bool:
    """Make the C programs; whether there is a compiler."""
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if compiler is None:
        return False
    for name in ("client", "floor"):
        subprocess.run([compiler, "-O2", "-o", str(folder / name), str(HERE / f"{name}.c")], check=True)
    return True


class Told:
    """A process that takes a line and answers with one."""

    def __init__(self, command: Sequence[str]) -> None:
        self._name = " ".join(command[:4])
        self._process = Popen(command, stdin=PIPE, stdout=PIPE, text=True, bufsize=1)
        self.pid = self._process.pid

    def tell(self, line: str) -> None:
        """Say what to do."""
        assert self._process.stdin is not None
        self._process.stdin.write(line + "\n")

    def hear(self) -> str:
        """What it says; a process that says nothing any more has failed."""
        assert self._process.stdout is not None
        answer = self._process.stdout.readline()
        if not answer:
            raise RuntimeError(f"{self._name} ended with {self._process.wait(STOP_S)}")
        return answer

    def ask(self, line: str) -> str:
        self.tell(line)
        return self.hear()

    def close(self) -> None:
        """Stop it, kindly first."""
        self._process.terminate()
        try:
            self._process.communicate(timeout=STOP_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


@contextmanager
def running(command: Sequence[str]) -> Iterator[Told]:
    """A process for the time of a block."""
    process = Told(command)
    try:
        yield process
    finally:
        process.close()


def python(module: str, *args: str) -> list[str]:
    """The command of a candidate in Python."""
    return [sys.executable, "-m", f"bench.fanout.{module}", *args]


def cpu_us(pid: int) -> float:
    """CPU that all threads of a process have used."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1000


def rss_kb(pid: int) -> int:
    """Memory that a process has in RAM."""
    return int(field(f"/proc/{pid}/status", "VmRSS:"))


def writes(pid: int) -> int:
    """How often a process has called write() and its kin."""
    return int(field(f"/proc/{pid}/io", "syscw:"))


def field(path: str, name: str) -> str:
    """One value of a file of `/proc`."""
    lines = Path(path).read_text().splitlines()
    return next(line.split()[1] for line in lines if line.startswith(name))


class Work(NamedTuple):
    """What one phase took."""

    cpu_us: float
    calls: int
    p50_ms: float
    p99_ms: float


def phase(server: Told, client: Told, command: str, deliveries: int) -> Work:
    """Let the server send and the readers take everything; what it took the server."""
    cpu, calls = cpu_us(server.pid), writes(server.pid)
    client.tell(f"count {deliveries}")
    sent = int(server.ask(command).split()[1])
    _, _, p50_us, p99_us = map(int, client.hear().split())
    took = cpu_us(server.pid) - cpu
    return Work(took, writes(server.pid) - calls + sent, p50_us / 1000, p99_us / 1000)


def connect(server: Told, client: Told) -> float:
    """Connect all readers; kB for each. The first one pays for what a server loads with it."""
    client.ask("connect 1")
    time.sleep(SETTLE_S)
    before = rss_kb(server.pid)
    client.ask(f"connect {READERS - 1}")
    time.sleep(SETTLE_S)
    return (rss_kb(server.pid) - before) / (READERS - 1)


def measure(command: Sequence[str], folder: Path) -> Sample:
    """One round of one candidate. A burst is read to its end before the next: bursts do not join."""
    with running(command) as server:
        where = json.loads(server.hear())
        empty_kb = rss_kb(server.pid)
        with running(
            [str(folder / "client"), str(where["port"]), where["path"], *where["headers"]]
        ) as client:
            idle_kb = connect(server, client)
            phase(server, client, "burst 1", READERS)  # the first one pays for what is made once
            paced = phase(server, client, f"paced {PACED} {INTERVAL_MS}", PACED * READERS)
            bursts = [phase(server, client, f"burst {BURST}", BURST * READERS) for _ in range(BURSTS)]
            used_kb = (rss_kb(server.pid) - empty_kb) / READERS
    deliveries = BURSTS * BURST * READERS
    return Sample(
        paced_us=paced.cpu_us / (PACED * READERS),
        burst_us=sum(burst.cpu_us for burst in bursts) / deliveries,
        burst_calls=sum(burst.calls for burst in bursts) / deliveries,
        idle_kb=idle_kb,
        used_kb=used_kb,
        p50_ms=paced.p50_ms,
        p99_ms=paced.p99_ms,
    )
