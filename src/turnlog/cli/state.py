"""`turnlog state` and `turnlog rebuild`: what events make, and making again what is kept beside them."""

import sys
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import click
import msgspec

from turnlog.app.read_models import Derived, Panels
from turnlog.cli.log import LAST_SEQ, log_option
from turnlog.cli.log_access import opened, run, session_named
from turnlog.cli.serve import load_app
from turnlog.cli.terminal import counted, escape, write_json
from turnlog.errors import BadInput, CallerError, Damaged
from turnlog.events import CATALOG, Catalog
from turnlog.log import Log
from turnlog.state.fold import Reducer
from turnlog.state.pending import pending
from turnlog.state.roster import report


class NoApp(NamedTuple):
    """The package alone: no reducers, no events of an application."""

    name: str = ""
    catalog: Catalog = CATALOG
    reducers: Mapping[type, Reducer] = {}
    start: Callable[[], Any] = dict


@click.command(
    "state",
    short_help="Print what the events of a session make.",
    epilog="Example: turnlog state sess_96cf1 --app app:app --at 41",
)
@click.argument("session")
@log_option
@click.option("--at", type=click.IntRange(-1, LAST_SEQ), help="As of this seq; now without it.")
@click.option("--app", metavar="MODULE:APP", help="The application, for the state it makes of its events.")
def state_command(session: str, log_url: str, at: int | None, app: str | None) -> None:
    """Print what the events of SESSION make, as JSON: state, transcript, meters, what is open, the roster."""
    reduced = load_app(app) if app else NoApp()
    told = run(shown(log_url, session, at, reduced))
    for line in told.split(b"\n"):  # the breaks between lines are the command's own
        write_json(sys.stdout.buffer, line)


async def shown(log_url: str, session: str, at: int | None, app: Any) -> bytes:
    """Everything that is shown of a session."""
    async with opened(log_url) as log:
        session = await session_named(log, session)
        made_for = (await log.info(session)).app
        if app.name not in ("", made_for):
            whose = f"of {made_for}, not of {app.name}" if made_for else "of no application"
            raise CallerError(f"{session} is a session {whose}")
        panels = await panels_of(log, app, session, at)
        told = {
            "seq": panels.seq,
            "state": panels.state,
            "transcript": list(panels.transcript.bubbles.values()),
            "meters": panels.meters.report(),
            "open": pending(panels.tree),
            "roster": report(panels.roster.teams),
        }
        try:
            return msgspec.json.format(msgspec.json.encode(told), indent=2)
        except TypeError as error:
            raise CallerError(f"the state of {app.name} is not JSON: {error}") from None


async def panels_of(log: Log, app: Any, session: str, at: int | None) -> Panels:
    """What is shown as of a seq; one that the session does not have is no path in a request here."""
    try:
        return await Derived(log).panels(app, session, at)
    except BadInput as wrong:
        raise CallerError(wrong.problem) from None


@click.command(
    short_help="Make documents and snapshots again.",
    epilog="Example: turnlog rebuild --log sqlite:///shop.db",
)
@log_option
def rebuild(log_url: str) -> None:
    """Throw away every document and snapshot, and make the documents again from the events."""
    click.echo(run(rebuilt(log_url)))


async def rebuilt(log_url: str) -> str:
    """Make again what is kept beside the events."""
    async with opened(log_url):
        pass  # a log that is not there must not be made
    async with opened(log_url, writable=True) as log:
        await log.forget_derived()
        derived, heads = Derived(log), await log.sessions()
        for head in heads:
            await written(derived, head.session_id)
        documents = await log.documents()
        return f"{counted(len(documents), 'document')} of {counted(len(heads), 'session')}"


async def written(derived: Derived, session_id: str) -> None:
    """Make the documents of a session from what is left of it: a loss that is met is recorded."""
    while True:
        try:
            return await derived.write_documents(session_id)
        except Damaged as damage:
            click.echo(escape(str(damage)), err=True)


COMMANDS = (state_command, rebuild)
