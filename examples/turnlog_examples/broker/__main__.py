"""A case accounted for, as JSON: what happened to it, and its disclosures asked for again.

It reads a log beside the server that writes it. A person who can read the log sees all of every case in it.
"""

import asyncio
import json
from typing import Any

import click
import msgspec

from turnlog import open_log
from turnlog.errors import NotFound, TurnlogError
from turnlog.state import Item
from turnlog_examples.broker import make_agents
from turnlog_examples.broker.audit import MOST_RUNS, RUNS, accounted, asking, items_of, replayed

log_option = click.option(
    "--log",
    "log_url",
    default="sqlite:///turnlog.db",
    envvar="TURNLOG_LOG",
    show_default=True,
    show_envvar=True,
    help="Where the log is.",
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def main() -> None:
    """Look at a broker's cases."""


@main.command()
@click.argument("session")
@log_option
def audit(session: str, log_url: str) -> None:
    """Print the timeline and the compliance figures of SESSION."""
    show(accounted(items(log_url, session)))


@main.command()
@click.argument("session")
@log_option
@click.option("--runs", type=click.IntRange(1, MOST_RUNS), default=RUNS, help="How often each is asked for.")
@click.option(
    "--model", metavar="NAME", help="A real model, as anthropic:claude-sonnet-4-5; scripted if not."
)
def replay(session: str, log_url: str, runs: int, model: str | None) -> None:
    """Ask the customer's guide again for every disclosure that was presented in SESSION."""
    happened = items(log_url, session)
    try:
        results = asyncio.run(replayed(happened, asking(make_agents(model=model)["customer"]), runs))
    except TurnlogError as error:
        raise click.ClickException(str(error)) from error
    if not results:
        raise click.ClickException(f"no disclosure was presented in {session}")
    show(results)


def items(log_url: str, session: str) -> list[Item]:
    """Everything that happened in a session of a broker."""

    async def read() -> list[Item]:
        log = await open_log(log_url, writable=False)
        try:
            if (await log.info(session)).app != "broker":
                raise NotFound(f"{session} is not a session of a broker")
            return await items_of(log, session)
        finally:
            await log.close()

    try:
        return asyncio.run(read())
    except TurnlogError as error:
        raise click.ClickException(str(error)) from error


def show(told: Any) -> None:
    """A value as JSON that one can read; in ASCII, so that no character of it controls a terminal."""
    click.echo(json.dumps(msgspec.to_builtins(told), indent=2))


if __name__ == "__main__":
    main(prog_name="python -m turnlog_examples.broker")
