"""The worker: another process, with the agent. It is a client of the server and nothing else.

    python -m turnlog_examples.support.worker --url http://127.0.0.1:8765

Its token is in TURNLOG_TOKEN; it needs the role `source` there (`turnlog token clerk --role source`).
"""

import asyncio
import logging
import os
import signal
import sys
from contextlib import suppress

import click

import turnlog
from turnlog.adapters import ForeignAgent
from turnlog.errors import TurnlogError
from turnlog_examples.support.clerk import Clerk

APP = "support"


async def run(url: str, token: str | None, pace_s: float, attached: bool = False) -> None:
    """Answer until a stop signal; one that is attached ends with its stdin, too."""
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, task.cancel)
    if attached:
        loop.add_reader(sys.stdin, lambda: (loop.remove_reader(sys.stdin), task.cancel()))
    with suppress(asyncio.CancelledError):
        async with turnlog.connect(url, token) as server:
            await server.serve(APP, ForeignAgent(Clerk(pace_s)))


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--url", default="http://127.0.0.1:8765", show_default=True, help="The server.")
@click.option("--pace", type=float, default=0.05, show_default=True, help="The seconds of a word.")
@click.option("--attached", is_flag=True, help="End when stdin does, and so with who started it.")
def main(url: str, pace: float, attached: bool) -> None:
    """Answer the sessions of the support application."""
    level = logging.ERROR if attached else logging.WARNING
    logging.basicConfig(level=level, format="%(message)s")
    try:
        asyncio.run(run(url, os.environ.get("TURNLOG_TOKEN"), pace, attached))
    except TurnlogError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main(prog_name="python -m turnlog_examples.support.worker")
