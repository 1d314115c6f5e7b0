"""The office in a terminal: who sits where, and what was written, as the log has it now."""

import click
from rich.table import Table
from rich.text import Text

from turnlog.app.read_models import ReadModelStore
from turnlog.cli.log_access import open_cli_log, run_command
from turnlog.cli.terminal import escape_controls, make_console
from turnlog.errors import CallerError, TurnlogError
from turnlog.events import CORE, TEAM, Catalog
from turnlog.team.roster import TeamMember
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
    async with open_cli_log(log_url) as log:
        if (await log.info(session)).app != Office.name:
            raise CallerError(f"{session} is no session of the office")
        floor = (await ReadModelStore(log).load_read_models(Office, session)).state
        assert isinstance(floor, Floor)
        return floor


def seat(member: TeamMember | None, number: int) -> Text:
    """One place of the grid."""
    if member is None:
        return Text(f"{number}\n", "dim")
    return Text(f"{number} {escape_controls(member.name)}\n").append(member.state, STATES[member.state])


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.argument("session")
@click.option("--log", "log_url", default="sqlite:///turnlog.db", show_default=True, help="Where the log is.")
def main(session: str, log_url: str) -> None:
    """Print the roster and the artifacts of SESSION."""
    try:
        floor = run_command(floor_of(session, log_url))
    except TurnlogError as error:
        raise click.ClickException(escape_controls(str(error))) from None
    grid = Table(show_header=False, show_lines=True)
    places = [seat(member, number) for number, member in enumerate(floor.grid)]
    for row in range(0, len(places), 3):
        grid.add_row(*places[row : row + 3])
    screen = make_console()
    screen.print(grid)
    if floor.hatching:
        screen.print(f"Somebody is expected since {floor.hatching}.")
    for path, artifact in floor.artifacts.items():
        description = escape_controls(artifact.description or "")
        line = f"{escape_controls(path)}  {artifact.size_bytes} bytes  {description}"
        screen.print(Text(line.rstrip()), soft_wrap=True)


if __name__ == "__main__":
    main(prog_name="python -m turnlog_examples.office")
