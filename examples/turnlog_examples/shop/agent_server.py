"""The server of the agent, for the demo: what `uvicorn ag_ui_agent:agent` does, until stdin ends.

    python -m turnlog_examples.shop.agent_server --fd 5

The demo has opened the socket already, so a message that comes first waits in it.
"""

import asyncio
import socket
import sys
from contextlib import suppress

import click
import uvicorn

from turnlog_examples.bring_your_own.ag_ui_agent import agent

STOP_S = 1  # for answers that are being sent


async def run(fd: int) -> None:
    config = uvicorn.Config(agent, lifespan="off", log_level="error", timeout_graceful_shutdown=STOP_S)
    server = uvicorn.Server(config)
    loop = asyncio.get_running_loop()

    def stop() -> None:
        loop.remove_reader(sys.stdin)
        server.should_exit = True

    loop.add_reader(sys.stdin, stop)
    with socket.socket(fileno=fd) as listener:
        await server.serve([listener])


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--fd", type=int, required=True, help="A socket that listens already.")
def main(fd: int) -> None:
    """Answer runs of AG-UI."""
    with suppress(KeyboardInterrupt):
        asyncio.run(run(fd))


if __name__ == "__main__":
    main(prog_name="python -m turnlog_examples.shop.agent_server")
