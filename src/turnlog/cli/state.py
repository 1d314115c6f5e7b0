"""`turnlog state` prints the state of a session, `turnlog rebuild` derives documents again."""

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
from turnlog.events import Catalog
from turnlog.log import Log
from turnlog.state.fold import Reducer
from turnlog.state.pending import build_pending_report
from turnlog.team.roster import build_roster_report
from turnlog.vocabularies import FULL_CATALOG


class NoApp(NamedTuple):
    """Stands for an application without reducers and events."""

    name: str = ""
    catalog: Catalog = FULL_CATALOG
    reducers: Mapping[type, Reducer] = {}
    initial_state: Callable[[], Any] = dict


@click.command(
    "state",
    short_help="Print the state of a session.",
    epilog="Example: turnlog state sess_96cf1 --app app:app --at 41",
)
@click.argument("session")
@log_option
@click.option(
    "--at", type=click.IntRange(-1, MAX_SEQ), help="The state after this seq; default: the last one."
)
@click.option("--app", metavar="MODULE:APP", help="The application whose reducers compute the state.")
def state_command(session: str, log_url: str, at: int | None, app: str | None) -> None:
    """Print the state of SESSION as JSON: state, transcript, meters, open calls and roster."""
    loaded_app = load_app(app) if app else NoApp()
    report = run_command(dump_session(log_url, session, at, loaded_app))
    for line in report.split(b"\n"):  # line by line: escaping would change the line breaks, too
        write_json(sys.stdout.buffer, line)


async def dump_session(log_url: str, session: str, at: int | None, app: Any) -> bytes:
    async with open_cli_log(log_url) as log:
        session = await find_session_id(log, session)
        session_app = (await log.info(session)).app
        if app.name not in ("", session_app):
            owner = f"of {session_app}, not of {app.name}" if session_app else "of no application"
            raise CallerError(f"{session} is a session {owner}")

        models = await load_read_models(log, app, session, at)
        report = {
            "seq": models.seq,
            "state": models.state,
            "transcript": list(models.transcript.entries.values()),
            "meters": models.meters.report(),
            "open": build_pending_report(models.tree),
            "roster": build_roster_report(models.roster.teams),
        }
        try:
            return msgspec.json.format(msgspec.json.encode(report), indent=2)
        except TypeError as error:
            raise CallerError(f"the state of {app.name} is not JSON: {error}") from None


async def load_read_models(log: Log, app: Any, session: str, at: int | None) -> ReadModels:
    """Return the read models as of a seq. Raise `CallerError` for a seq that the session does not have."""
    try:
        return await ReadModelStore(log).load_read_models(app, session, at)
    except BadInput as error:
        raise CallerError(error.problem) from None  # without the path: there is no request body here


@click.command(
    short_help="Derive documents and snapshots again.",
    epilog="Example: turnlog rebuild --log sqlite:///shop.db",
)
@log_option
def rebuild(log_url: str) -> None:
    """Delete all documents, snapshots and lists of sessions, and derive them again from the events."""
    click.echo(run_command(rebuild_all(log_url)))


async def rebuild_all(log_url: str) -> str:
    async with open_cli_log(log_url):
        pass  # for reading first: a missing log must not be created
    async with open_cli_log(log_url, writable=True) as log:
        await log.delete_derived()
        read_models = ReadModelStore(log)
        records = await log.sessions()
        for record in records:
            await rebuild_documents(read_models, record.session_id)
        documents = await log.documents(version=read_models.documents_version)
        return f"{format_count(len(documents), 'document')} of {format_count(len(records), 'session')}"


async def rebuild_documents(read_models: ReadModelStore, session_id: str) -> None:
    """Derive the documents of a session from its undamaged events. Damage is printed and recorded."""
    while True:
        try:
            return await read_models.write_documents(session_id)
        except SessionDamaged as damage:
            click.echo(escape_controls(str(damage)), err=True)


COMMANDS = (state_command, rebuild)
