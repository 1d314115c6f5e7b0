"""`turnlog sessions` lists the sessions of a log, `turnlog close` closes some."""

import sys
from collections.abc import Iterator

import click
import msgspec
from rich.text import Text

from turnlog.cli.log import log_option
from turnlog.cli.log_access import damaged_record_message, find_records, open_cli_log, run_command, seq_range
from turnlog.cli.terminal import escape_controls, make_console, write_json
from turnlog.errors import CallerError, SessionDamaged
from turnlog.events.envelope import format_timestamp
from turnlog.log import Damage, Log, SessionRecord
from turnlog.state.tree import Tree
from turnlog.vocabularies import FULL_CATALOG

STATE_STYLES = {"idle": "", "running": "green", "waiting": "yellow", "closed": "dim"}
COLUMNS = ("session", "app", "events", "created", "state", "title", "damage")
MAX_LISTED_RANGES = 3  # with more, only their number is printed
MAX_TITLE_CHARS = 60


class LostRange(msgspec.Struct):
    """A lost part of a session, as `turnlog sessions --json` prints it."""

    first: int
    last: int
    problem: str


class SessionListItem(msgspec.Struct):
    """A session as `turnlog sessions --json` prints it."""

    session_id: str
    app: str
    title: str
    state: str
    events: int
    created: str
    updated: str | None
    closed: bool
    damage: list[LostRange]

    def matches(self, text: str, state: str | None) -> bool:
        if state not in (None, self.state):
            return False
        fields = (self.session_id, self.app, self.title)
        return any(text.casefold() in value.casefold() for value in fields)


@click.command(
    short_help="List the sessions of a log.", epilog="Example: turnlog sessions Rome --state waiting"
)
@click.argument("text", required=False, default="")
@log_option
@click.option("--state", type=click.Choice(list(STATE_STYLES)), help="List only sessions in this state.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per session.")
def sessions(text: str, log_url: str, state: str | None, as_json: bool) -> None:
    """List the sessions of a log, the oldest first.

    With TEXT, list those whose id, application or title contains it. A session is running while an agent
    works or a message waits for a server, waiting while every agent waits for a person, closed, or else idle.
    Times are UTC.
    """
    items, damaged = run_command(list_sessions(log_url))
    for session_id in damaged:
        click.echo(f"warning: {damaged_record_message(session_id)}", err=True)

    matching = [item for item in items if item.matches(text, state)]
    if as_json:
        output = sys.stdout.buffer
        for item in matching:
            write_json(output, msgspec.json.encode(item))
    elif matching:
        console = make_console()
        for line in format_session_table(matching):
            console.print(line, soft_wrap=True)  # never cut: a part of an id is of no use
    elif items:
        click.echo(f"None of {len(items)} sessions matches.", err=True)
    elif not damaged:
        click.echo("This log has no sessions yet.", err=True)


async def list_sessions(log_url: str) -> tuple[list[SessionListItem], list[str]]:
    """Return the sessions, and the ids of those whose record is damaged."""
    async with open_cli_log(log_url) as log:
        records = await log.sessions()
        damages = await log.damages()
        damaged = await log.damaged_sessions()
        open_ids = await log.sessions_with_open_agents()
        leases = await log.leases.states([record.session_id for record in records])
        states = {session_id: "running" for session_id, lease in leases.items() if lease.is_unclaimed}
        states |= {session_id: await session_state(log, session_id) for session_id in open_ids}

    damages_by_session: dict[str, list[Damage]] = {}
    for damage in damages:
        damages_by_session.setdefault(damage.session_id, []).append(damage)
    items = [
        make_list_item(
            record, states.get(record.session_id, "idle"), damages_by_session.get(record.session_id, [])
        )
        for record in records
    ]
    return items, damaged


async def session_state(log: Log, session_id: str) -> str:
    """Return the state of a session with open agents; "running" if damage hides it."""
    try:
        tree = await read_session_tree(log, session_id)
    except SessionDamaged:
        return "running"
    return "waiting" if tree.is_all_waiting else "running"


async def read_session_tree(log: Log, session_id: str) -> Tree:
    tree = Tree()
    while page := await log.read(session_id, tree.last_seq, replay_from=-1):
        for envelope in page.envelopes():
            tree.apply(envelope, FULL_CATALOG.decode_payload(envelope))
    return tree


def make_list_item(record: SessionRecord, state: str, damage: list[Damage]) -> SessionListItem:
    return SessionListItem(
        session_id=record.session_id,
        app=record.app,
        title=record.title,
        state="closed" if record.closed else state,
        events=record.last + 1,
        created=format_timestamp(record.created_ms),
        updated=format_timestamp(record.updated_ms) if record.updated_ms else None,
        closed=record.closed,
        damage=[LostRange(item.first, item.last, item.problem) for item in damage],
    )


def format_session_table(items: list[SessionListItem]) -> Iterator[Text]:
    names = COLUMNS if any(item.damage for item in items) else COLUMNS[:-1]
    rows = [
        [Text(name, "bold") for name in names],
        *[list(session_cells(item))[: len(names)] for item in items],
    ]
    widths = [max(cell.cell_len for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        for name, cell, width in zip(names, row, widths, strict=True):
            cell.align("right" if name == "events" else "left", width)
        yield Text("  ").join(row)


def session_cells(item: SessionListItem) -> Iterator[Text]:
    yield Text(item.session_id)
    yield Text(escape_controls(item.app))
    yield Text(str(item.events))
    yield Text(item.created[:16].replace("T", " "), "dim")
    yield Text(item.state, STATE_STYLES[item.state])
    title = item.title
    if len(title) > MAX_TITLE_CHARS:
        title = title[:MAX_TITLE_CHARS] + "…"
    yield Text(escape_controls(title))
    yield Text(describe_lost_ranges(item.damage), "red")


def describe_lost_ranges(damage: list[LostRange]) -> str:
    if len(damage) > MAX_LISTED_RANGES:
        return f"{len(damage)} parts lost"
    return ", ".join(describe_lost_range(lost) for lost in damage)


def describe_lost_range(lost: LostRange) -> str:
    if lost.first < 0:
        return "its record was damaged"
    return f"seq {seq_range(lost.first, lost.last)} lost"


@click.command(short_help="Close sessions.", epilog="Example: turnlog close sess_96cf1")
@click.argument("names", metavar="SESSION...", nargs=-1, required=True)
@log_option
@click.option("--reason", help="Why, for the members: one line.")
def close(names: tuple[str, ...], log_url: str, reason: str | None) -> None:
    """Close sessions. They accept no more events and stay readable.

    Stop the server first. A session with an active agent is refused: stop the agent in the console first.
    """
    for session_id in run_command(close_sessions(log_url, names, reason)):
        click.echo(f"{session_id} is closed")


async def close_sessions(log_url: str, names: tuple[str, ...], reason: str | None) -> list[str]:
    """Close sessions, all or none. Return their ids. Their last event names the person of this machine."""
    from turnlog.app import LOCAL  # loads the agents' runtime: other commands start without it
    from turnlog.app.session_ends import make_close_event

    make_close_event(LOCAL.name, reason)  # raises for a reason that no event can have, before one is closed
    async with open_cli_log(log_url) as log:  # for reading first: a missing log must not be created
        records = await find_records(log, names)
        open_ids = set(await log.sessions_with_open_agents())
    session_ids = [record.session_id for record in records]
    for session_id in session_ids:
        if session_id in open_ids:
            raise CallerError(f"an agent of {session_id} is still active; stop it in the console first")

    async with open_cli_log(log_url, writable=True) as log:
        for session_id in session_ids:
            await log.close_session(session_id, [make_close_event(LOCAL.name, reason)])
    return session_ids


COMMANDS = (sessions, close)
