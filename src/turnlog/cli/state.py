"""`turnlog state` and `turnlog rebuild`: what events make, and making again what is kept beside them."""

import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import click
import msgspec

from turnlog.app.read_models import ReadModels, ReadModelStore
from turnlog.cli.log import MAX_SEQ, log_option
from turnlog.cli.log_access import find_session_id, open_cli_log, run_command
from turnlog.cli.serve import load_app
from turnlog.cli.terminal import escape_controls, format_count, write_json
from turnlog.errors import BadInput, CallerError, SessionDamaged
from turnlog.events import CATALOG, Catalog
from turnlog.log import Log
from turnlog.state.fold import Reducer
from turnlog.state.pending import build_pending_report
from turnlog.team.roster import build_roster_report


class NoApp(NamedTuple):
    """The package alone: no reducers, no events of an application."""

    name: str = ""
    catalog: Catalog = CATALOG
    reducers: Mapping[type, Reducer] = {}
    initial_state: Callable[[], Any] = dict


@click.command(
    "state",
    short_help="Print what the events of a session make.",
    epilog="Example: turnlog state sess_96cf1 --app app:app --at 41",
)
@click.argument("session")
@log_option
@click.option("--at", type=click.IntRange(-1, MAX_SEQ), help="As of this seq; now without it.")
@click.option("--app", metavar="MODULE:APP", help="The application, for the state it makes of its events.")
def state_command(session: str, log_url: str, at: int | None, app: str | None) -> None:
    """Print what the events of SESSION make, as JSON: state, transcript, meters, what is open, the roster."""
    reduced = load_app(app) if app else NoApp()
    told = run_command(dump_session(log_url, session, at, reduced))
    for line in told.split(b"\n"):  # the breaks between lines are the command's own
        write_json(sys.stdout.buffer, line)


async def dump_session(log_url: str, session: str, at: int | None, app: Any) -> bytes:
    """Everything that is shown of a session."""
    async with open_cli_log(log_url) as log:
        session = await find_session_id(log, session)
        made_for = (await log.info(session)).app
        if app.name not in ("", made_for):
            whose = f"of {made_for}, not of {app.name}" if made_for else "of no application"
            raise CallerError(f"{session} is a session {whose}")
        panels = await load_read_models(log, app, session, at)
        told = {
            "seq": panels.seq,
            "state": panels.state,
            "transcript": list(panels.transcript.entries.values()),
            "meters": panels.meters.report(),
            "open": build_pending_report(panels.tree),
            "roster": build_roster_report(panels.roster.teams),
        }
        try:
            return msgspec.json.format(msgspec.json.encode(told), indent=2)
        except TypeError as error:
            raise CallerError(f"the state of {app.name} is not JSON: {error}") from None


async def load_read_models(log: Log, app: Any, session: str, at: int | None) -> ReadModels:
    """What is shown as of a seq; one that the session does not have is no path in a request here."""
    try:
        return await ReadModelStore(log).load_read_models(app, session, at)
    except BadInput as wrong:
        raise CallerError(wrong.problem) from None


@click.command(
    short_help="Make documents and snapshots again.",
    epilog="Example: turnlog rebuild --log sqlite:///shop.db",
)
@log_option
def rebuild(log_url: str) -> None:
    """Throw away every document and snapshot, and make the documents again from the events."""
    click.echo(run_command(rebuild_all(log_url)))


async def rebuild_all(log_url: str) -> str:
    """Make again what is kept beside the events."""
    async with open_cli_log(log_url):
        pass  # a log that is not there must not be made
    async with open_cli_log(log_url, writable=True) as log:
        await log.delete_derived()
        derived, heads = ReadModelStore(log), await log.sessions()
        for head in heads:
            await rebuild_documents(derived, head.session_id)
        documents = await log.documents()
        return f"{format_count(len(documents), 'document')} of {format_count(len(heads), 'session')}"


async def rebuild_documents(derived: ReadModelStore, session_id: str) -> None:
    """Make the documents of a session from what is left of it: a loss that is met is recorded."""
    while True:
        try:
            return await derived.write_documents(session_id)
        except SessionDamaged as damage:
            click.echo(escape_controls(str(damage)), err=True)


COMMANDS = (state_command, rebuild)
