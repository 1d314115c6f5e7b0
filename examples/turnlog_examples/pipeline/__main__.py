"""The pipeline in a terminal: the top of the tree, or all of it."""

import asyncio
import sys

import click

from turnlog.agents import Agent, all_ended
from turnlog.cli.event_printers import AnswerPrinter, TreePrinter, print_events
from turnlog.errors import TurnlogError
from turnlog_examples.pipeline.team import make_team

TOPIC = "honey, lightning and the Moon"
PACE_S = 0.05  # a word: as fast as one reads


async def top(planner: Agent, topic: str) -> None:
    """Show what the agents at the top say, until both of them have ended."""
    await all_ended(print_events(planner.run(topic, depth=0), AnswerPrinter()))


async def whole(planner: Agent, topic: str) -> None:
    """Show every level, until every agent that started has ended."""
    ends = await all_ended(print_events(planner.run(topic), TreePrinter()))
    click.echo(f"{len(ends)} agents, {sum(end.steps or 0 for end in ends.values())} steps")


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("topic", default=TOPIC)
@click.option("--all", "view", flag_value="whole", help="Show every level of the tree, not only the top.")
@click.option("--pace", "pace_s", type=click.FloatRange(0), help="Seconds for a word of the script.")
@click.option("--model", metavar="NAME", help="A real model for everyone, as anthropic:claude-sonnet-4-5.")
def main(topic: str, view: str | None, pace_s: float | None, model: str | None) -> None:
    """Have a team of agents find out about TOPIC and write it down."""
    pace_s = (PACE_S if sys.stdout.isatty() else 0.0) if pace_s is None else pace_s
    try:
        team = make_team(pace_s, model=model)
        asyncio.run(whole(team, topic) if view else top(team, topic))
    except TurnlogError as error:
        raise click.ClickException(str(error)) from error


if __name__ == "__main__":
    main(prog_name="python -m turnlog_examples.pipeline")
