"""A guest that does its worst for a minute beside two members: how long they wait, what the server takes.

The guest and the members are processes of their own, so that no measurement counts its own work. The guest
has the lowest priority: on another machine it would not take this one's processors at all.
"""

import json
import subprocess
import sys
import time
from collections.abc import Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from tests.e2e.harness import ROOT, TURNLOG, Server
from tests.e2e.streams import resident_bytes
from tests.security.desk import token
from tests.security.test_hostile_guest import GROWTH_BYTES, invited, served, session_of
from tests.soak.figures import Measure

MEMBERS = "tests.soak.members"
GUEST = "tests.soak.guest"
ATTACK_S = 60.0
QUIET_S = 20.0
SLOWER_TIMES = 5.0
MAX_WAIT_S = 0.25
LEAST_S = 0.005  # a p99 below this is noise of the machine
SAMPLE_S = 0.1


class Program:
    """A process that reads one line of JSON and writes one to a file: a pipe would fill up unread."""

    def __init__(self, folder: Path, module: str, order: Mapping[str, Any], niceness: int = 0) -> None:
        self._output = folder / f"{module}.json"
        command = ["nice", "-n", str(niceness), sys.executable, "-m", module]
        with self._output.open("w") as output:
            self.process = subprocess.Popen(
                command, cwd=ROOT, stdin=subprocess.PIPE, stdout=output, text=True
            )
        assert self.process.stdin is not None
        with self.process.stdin as stdin:
            stdin.write(json.dumps(order) + "\n")

    def __enter__(self) -> "Program":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()

    def result(self) -> Any:
        """What it wrote, when it has ended."""
        assert self.process.wait() == 0
        return json.loads(self._output.read_text())


def peak_while(program: Program, server: Server) -> int:
    """The most memory that a server has while a program runs."""
    peak = resident_bytes(server)
    while program.process.poll() is None:
        peak = max(peak, resident_bytes(server))
        time.sleep(SAMPLE_S)  # a sample now and then
    return peak


def p99(done: Mapping[str, Any]) -> float:
    times = sorted(chain.from_iterable(done["times"].values()))
    return float(times[len(times) * 99 // 100])


def test_guest_that_does_its_worst_for_a_minute_holds_no_member_up(tmp_path: Path, measure: Measure) -> None:
    with served(tmp_path, TURNLOG) as server:
        sessions = {name: session_of(server, name) for name in ("ada", "bob")}
        guest = invited(server, sessions["ada"])
        members = [[token(name), session] for name, session in sessions.items()]
        work = {"port": server.port, "members": members}

        with Program(tmp_path, MEMBERS, work | {"seconds": QUIET_S}) as working:
            first = working.result()
        before = resident_bytes(server)
        with (
            Program(tmp_path, GUEST, guest._asdict() | {"seconds": ATTACK_S}, niceness=19) as attack,
            Program(tmp_path, MEMBERS, work | {"seconds": ATTACK_S - 2}) as working,
        ):
            peak = peak_while(working, server)
            beside, counts = working.result(), attack.result()
        with Program(tmp_path, MEMBERS, work | {"seconds": QUIET_S}) as working:
            last = working.result()

        # What else the machine does changes from minute to minute: the attack is between two quiet times.
        without_s = max(p99(first), p99(last), LEAST_S)
        measure(
            f"{ATTACK_S:g} s, {sum(sum(found.values()) for found in counts.values())} requests of the guest",
            members_requests=sum(map(len, beside["times"].values())),
            p99_before_ms=1000 * p99(first),
            p99_after_ms=1000 * p99(last),
            p99_beside_ms=1000 * p99(beside),
            grown_mb=(peak - before) / 1e6,
            refused_429=sum(found.get("429", 0) for found in counts.values()),
        )
        assert first["faults"] == beside["faults"] == last["faults"] == []
        assert {"health", "send", "read", "follow"} <= set(beside["times"])
        assert peak - before < GROWTH_BYTES
        assert p99(beside) < SLOWER_TIMES * without_s
        assert p99(beside) < MAX_WAIT_S
