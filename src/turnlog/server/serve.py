"""Running the server: uvicorn, with open streams closed by the stop signal.

uvicorn waits for open responses before it stops, and an event stream never ends by itself. So the signal
also ends the streams; readers reconnect with their cursor. The log is opened before uvicorn starts, so that
what is wrong with it is an error of ours, not a stack trace of the server's.
"""

import asyncio
import socket
from types import FrameType

import uvicorn
from starlette.applications import Starlette


class StoppingServer(uvicorn.Server):
    """A uvicorn server whose stop signal ends the open streams and then the server, in order and quietly."""

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit  # a second signal does not wait
        self.should_exit = True
        application = self.config.app
        assert isinstance(application, Starlette)
        asyncio.get_running_loop().call_soon_threadsafe(application.state.stop_streams)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
    except OSError:
        listener.close()
        raise
    listener.listen(2048)
    return listener


def serve(application: Starlette, listener: socket.socket) -> None:
    """Serve until a stop signal."""
    config = uvicorn.Config(
        application,
        log_level="warning",
        access_log=False,
        http="httptools",
        lifespan="off",
        timeout_graceful_shutdown=3,
        server_header=False,
    )
    with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
        runner.run(run(application, StoppingServer(config), listener))


async def run(application: Starlette, server: uvicorn.Server, listener: socket.socket) -> None:
    """The application's life around the server's."""
    async with application.router.lifespan_context(application):
        await server.serve(sockets=[listener])
