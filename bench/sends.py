"""What a message costs the server, from the request to the end of its turn: `python -m bench.sends`. Linux.

One client sends messages to a server process, one after the other over one connection, ten to a session; a
scripted agent answers each with one sentence. The peer is a bare Starlette route on the same HTTP server that
decodes the same body and answers. Both are measured in CPU time of the server process until every turn has
ended; every round runs both, and medians count. The difference is what an append that is on the disk, a turn
and its events cost.
"""

import http.client
import json
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median

from bench.fanout.measure import cpu_us
from tests.e2e.harness import ROOT, TURNLOG, Server, running
from turnlog import Agent, App
from turnlog.agents import Scripted
from turnlog.state.history import Message

ROUNDS = 5
SESSIONS = 40
EACH = 10
SENDS = SESSIONS * EACH  # below the burst that one program may send
GOAL = 40  # times a bare route, which stores nothing and answers nothing
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


def send_all(port: int, headers: dict[str, str], sessions: list[str]) -> None:
    """Send the messages, in turns to the sessions."""
    connection = http.client.HTTPConnection("127.0.0.1", port)
    for number in range(SENDS):
        body = json.dumps({"session": sessions[number % SESSIONS], "message": f"message {number}"})
        connection.request("POST", "/api/send", body, {"content-type": "application/json", **headers})
        response = connection.getresponse()
        response.read()
        if response.status != 202:
            raise RuntimeError(f"send {number} was answered with {response.status}")
    connection.close()


def wait_for_ends(server: Server, session: str) -> None:
    """Wait until every turn of a session has ended."""
    address = f"{server.url}/api/log?session={session}"
    ends = 0
    while ends < EACH:
        with urllib.request.urlopen(urllib.request.Request(address, headers=server.headers)) as response:
            ends = response.read().count(b'"agent.end"')


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
        begun_us = cpu_us(pid)
        send_all(port, {}, ["sess_1"] * SESSIONS)
        bare_us = cpu_us(pid) - begun_us
    with (
        tempfile.TemporaryDirectory() as folder,
        running("bench.sends:app", Path(folder), program=[TURNLOG]) as server,
    ):
        sessions = [server.session() for _ in range(SESSIONS)]
        begun_us = cpu_us(server.process.pid)
        send_all(server.port, server.headers, sessions)
        for session in sessions:
            wait_for_ends(server, session)
        turnlog_us = cpu_us(server.process.pid) - begun_us
    return bare_us / SENDS, turnlog_us / SENDS


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
