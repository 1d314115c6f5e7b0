"""A server for the conformance suite, run as a module with the URL of a log and the seconds of a long poll.

The suite signs in as nobody and sends as many requests as it can. So everyone is one principal here, without
limits. The first line of the output is the URL.
"""

import sys

from starlette.requests import HTTPConnection

from turnlog import App
from turnlog.agents import Agent
from turnlog.agents.models.scripted import Scripted
from turnlog.app import LOCAL
from turnlog.server import create_app
from turnlog.server.auth.credentials import Identity
from turnlog.server.limits.policy import Limits
from turnlog.server.protocols.durable_streams import DurableStreams
from turnlog.server.uvicorn_server import listen, serve

UNLIMITED = Limits(
    requests_per_s=1e6,
    program_burst=1_000_000,
    body_bytes_per_s=1e9,
    burst_bytes=1_000_000_000,
    program_streams=10_000,
    program_concurrent_requests=10_000,
)


class Everyone:
    """Authenticates every request as the person who started the server."""

    async def authenticate(self, connection: HTTPConnection, now_s: float) -> Identity:
        return Identity(LOCAL)


def main(log_url: str, long_poll_s: str) -> None:
    app = App("echo", Agent("Echo", "Repeat.", Scripted(lambda _: [])))
    application = create_app(
        app,
        log_url,
        auth=Everyone(),
        limits=UNLIMITED,
        protocols=[DurableStreams(float(long_poll_s))],
        origins=["https://example.com"],  # that of the suite's preflight request
    )
    listener = listen("127.0.0.1", 0)
    url = f"http://127.0.0.1:{listener.getsockname()[1]}\n"

    def on_started() -> None:
        sys.stdout.write(url)
        sys.stdout.flush()

    serve(application, listener, on_started)


if __name__ == "__main__":
    main(*sys.argv[1:])
