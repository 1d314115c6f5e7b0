"""The assistant in a terminal: a turn, the answer to its question, the rest of the turn."""

import asyncio
import logging
import sys
from collections.abc import Mapping
from typing import Any

import click

from turnlog import open_log
from turnlog.agents import Agent
from turnlog.cli.event_printers import TreePrinter, print_events
from turnlog.cli.terminal import escape_controls
from turnlog.errors import TurnlogError
from turnlog.events import AwaitedCall, ToolAwait
from turnlog_examples.assistant.team import make_agent

QUESTION = "Can we fly from Oslo?"
PACE_S = 0.05  # a word: as fast as one reads


def question_of(call: AwaitedCall) -> str:
    """What the page would ask."""
    return escape_controls(str(call.args.get("question", call.tool)))


async def talk(agent: Agent, question: str) -> None:
    """Show one turn; what it asks is asked here, and the turn goes on with the answer."""
    log = await open_log("memory:")
    session, client = await log.create("assistant"), TreePrinter()
    prompt: str | None = question
    answers: Mapping[str, Any] | None = None
    while prompt or answers:
        events = agent.run(prompt, answers=answers, log=log, session_id=session)
        waits = [
            entry.payload
            async for entry in print_events(events, client)
            if isinstance(entry.payload, ToolAwait)
        ]
        asked = [call for wait in waits for call in wait.calls]
        prompt, answers = None, {call.call_id: click.confirm(question_of(call)) for call in asked}
    await log.close()


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("question", default=QUESTION)
@click.option("--pace", "pace_s", type=click.FloatRange(0), help="Seconds for a word of the script.")
@click.option("--model", metavar="NAME", help="A real model, as anthropic:claude-sonnet-4-5.")
def main(question: str, pace_s: float | None, model: str | None) -> None:
    """Ask whether a balloon can fly; QUESTION names the place."""
    logging.getLogger("turnlog").addHandler(logging.NullHandler())  # what fails is shown as an event
    pace_s = (PACE_S if sys.stdout.isatty() else 0.0) if pace_s is None else pace_s
    try:
        asyncio.run(talk(make_agent(pace_s, model=model), question))
    except TurnlogError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main(prog_name="python -m turnlog_examples.assistant")
