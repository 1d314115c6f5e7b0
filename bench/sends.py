"""What a message costs the server, from the request to the end of its turn: `python -m bench.sends`. Linux.

One client sends messages to a server process, one after the other over one connection; a scripted agent
answers each with one sentence. The peer is a bare Starlette route on the same HTTP server that decodes the
same body and answers. Both are measured in CPU time of the server process; every round runs both, and medians
count. The difference is what an append that is on the disk, a turn and its events cost.
"""

import http.client
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from tests.e2e.harness import ROOT, TURNLOG, running
from turnlog import Agent, App
from turnlog.agents import Scripted
from turnlog.state.history import Message

ROUNDS = 5
SENDS = 300  # below the burst that one person may send
GOAL = 40  # times a bare route, which stores nothing and answers nothing
TICKS = os.sysconf("SC_CLK_TCK")
BARE = """
import socket, uvicorn
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.routing import Route

async def send(request):
    await request.json()
    return JSONResponse({"eventId": 0}, 202)

listener = socket.create_server(("127.0.0.1", 0))
print(listener.getsockname()[1], flush=True)
app = Starlette(routes=[Route("/api/send", send, methods=["POST"])])
uvicorn.Server(uvicorn.Config(app, log_level="error", access_log=False)).run([listener])
"""


def answer(messages: list[Message]) -> Iterator[str]:
    yield "That is one sentence."


app = App("bench", Agent("Answerer", "Answer.", Scripted(answer)))


def cpu_s(pid: int) -> float:
    """Return the CPU time that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICKS


def send_all(port: int, pid: int, headers: dict[str, str], session: str) -> float:
    """Send the messages and return the server's CPU time for each, in microseconds."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    begun = cpu_s(pid)
    for number in range(SENDS):
        body = json.dumps({"session": session, "message": f"message {number}"})
        connection.request("POST", "/api/send", body, {"content-type": "application/json", **headers})
        response = connection.getresponse()
        response.read()
        if response.status != 202:
            raise RuntimeError(f"send {number} was answered with {response.status}")
    connection.close()
    return (cpu_s(pid) - begun) / SENDS * 1e6


@contextmanager
def bare_server() -> Iterator[tuple[int, int]]:
    """Run the bare route; yield its port and the id of its process."""
    process = subprocess.Popen([sys.executable, "-c", BARE], stdout=subprocess.PIPE, text=True, cwd=ROOT)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline()), process.pid
    finally:
        process.kill()
        process.wait()


def measure() -> tuple[float, float]:
    """Return the CPU time for each message, in microseconds: of the bare route and of Turnlog."""
    with bare_server() as (port, pid):
        bare_us = send_all(port, pid, {}, "sess_1")
    with (
        tempfile.TemporaryDirectory() as folder,
        running("bench.sends:app", Path(folder), program=[TURNLOG]) as server,
    ):
        turnlog_us = send_all(server.port, server.process.pid, server.headers, server.session())
    return bare_us, turnlog_us


def main() -> int:
    """Print the times and the ratio; return the number of missed goals."""
    rounds = [measure() for _ in range(ROUNDS)]
    bare_us, turnlog_us = (median(times) for times in zip(*rounds, strict=True))
    print(f"bare route {bare_us:.0f} µs, Turnlog {turnlog_us:.0f} µs of CPU time for each message\n")
    times = median(turnlog / bare for bare, turnlog in rounds)
    met = times <= GOAL
    print(f"a message, times a bare route: {times:.1f}, goal at most {GOAL}, {'met' if met else 'MISSED'}")
    return int(not met)


if __name__ == "__main__":
    sys.exit(main())
