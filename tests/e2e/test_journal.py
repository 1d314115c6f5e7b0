"""What a real server process writes to stderr: lines of JSON, also when a request fails, and no secret."""

import json
import signal
import subprocess
import sys
import urllib.error
import urllib.request

import pytest

from tests.support.limits import HANG_S

SERVER = """
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route
from turnlog.server.access_log import AccessLogMiddleware
from turnlog.server.log_format import configure_logging
from turnlog.server.uvicorn_server import listen, serve

async def boom(request):
    raise ValueError(f"{await request.body()} {request.headers} {request.url}")

app = Starlette(routes=[Route("/boom", boom, methods=["POST"])], middleware=[Middleware(AccessLogMiddleware)])
app.state.stop_streams = lambda: None
listener = listen("127.0.0.1", 0)
configure_logging("info")
print(listener.getsockname()[1], flush=True)
serve(app, listener)
"""
CANARY = "canary-0123456789"


OWN = "import logging.config, uvicorn\nlogging.config.dictConfig(uvicorn.config.LOGGING_CONFIG)\n"


def written_by(program: str) -> str:
    """What a server wrote to stderr, which was asked for something that fails and then stopped."""
    command = [sys.executable, "-c", program]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as server:
        assert server.stdout
        assert server.stderr
        request = urllib.request.Request(
            f"http://127.0.0.1:{int(server.stdout.readline())}/boom?code={CANARY}",
            data=CANARY.encode(),
            headers={"authorization": f"Bearer {CANARY}", "cookie": f"tl={CANARY}"},
        )
        with pytest.raises(urllib.error.HTTPError, match="500") as refused:
            urllib.request.urlopen(request, timeout=HANG_S)
        refused.value.close()
        server.send_signal(signal.SIGTERM)
        return server.stderr.read()


def test_a_server_process_writes_lines_and_no_secret() -> None:
    written = written_by(SERVER)
    lines = [json.loads(line) for line in written.splitlines()]
    [line] = [line for line in lines if line["level"] != "INFO"]
    assert (line["route"], line["status"], "in boom" in line["exception"]) == ("/boom", 500, True)
    assert CANARY not in written


def test_with_the_logs_that_uvicorn_sets_up_itself_there_would_be_secrets() -> None:
    assert CANARY in written_by(SERVER.replace("serve(app, listener)", OWN + "serve(app, listener)"))
