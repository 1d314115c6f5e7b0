"""The office in a terminal: who sits where, and what was written, as the log has it now."""

import asyncio

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from turnlog import open_log
from turnlog.app import state_at
from turnlog.errors import CallerError, TurnlogError
from turnlog.events import CORE, Catalog
from turnlog.team import TEAM, TeamMember
from turnlog_examples.office.floor import REDUCERS, Floor

STATES = {"alive": "green", "hatching": "yellow", "sleeping": "dim"}


class Office:
    """What the application is to those who only look: it starts no process."""

    name = "office"
    catalog = Catalog(CORE, TEAM)
    reducers = REDUCERS
    initial_state = Floor


async def floor_of(session: str, log_url: str) -> Floor:
    """The office as a session has left it."""
    log = await open_log(log_url, writable=False)
    try:
        record = await log.info(session)
        if record.app != Office.name:
            raise CallerError(f"{session} is no session of the office")
        floor = await state_at(log, Office, session, record.last)
        assert isinstance(floor, Floor)
        return floor
    finally:
        await log.close()


def printable(text: str) -> str:
    """A text of the log as a terminal may get it: escape sequences are written out."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def seat(member: TeamMember | None, number: int) -> Text:
    """One place of the grid."""
    if member is None:
        return Text(f"{number}\n", "dim")
    return Text(f"{number} {printable(member.name)}\n").append(member.state, STATES[member.state])


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("session")
@click.option("--log", "log_url", default="sqlite:///turnlog.db", show_default=True, help="Where the log is.")
def main(session: str, log_url: str) -> None:
    """Print the roster and the artifacts of SESSION."""
    try:
        floor = asyncio.run(floor_of(session, log_url))
    except TurnlogError as error:
        raise click.ClickException(printable(str(error))) from None
    grid = Table(show_header=False, show_lines=True)
    places = [seat(member, number) for number, member in enumerate(floor.grid)]
    for row in range(0, len(places), 3):
        grid.add_row(*places[row : row + 3])
    screen = Console(highlight=False, markup=False, emoji=False)
    screen.print(grid)
    if floor.hatching:
        screen.print(f"Somebody is expected since {floor.hatching}.")
    for path, artifact in floor.artifacts.items():
        description = printable(artifact.description or "")
        line = f"{printable(path)}  {artifact.size_bytes} bytes  {description}"
        screen.print(Text(line.rstrip()), soft_wrap=True)


if __name__ == "__main__":
    main(prog_name="python -m turnlog_examples.office")
