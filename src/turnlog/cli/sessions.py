"""`turnlog sessions` and `turnlog close`: the sessions of a log, what each is about, and the end of one."""

import sys
from collections.abc import Iterator

import click
import msgspec
from rich.text import Text

from turnlog.cli.log import log_option
from turnlog.cli.log_access import damaged_record_message, find_records, open_cli_log, run_command, seq_range
from turnlog.cli.terminal import escape_controls, make_console, write_json
from turnlog.errors import CallerError, SessionDamaged
from turnlog.events import CATALOG
from turnlog.events.envelope import format_timestamp
from turnlog.log import Damage, Log, SessionRecord
from turnlog.state.tree import Tree

STATE_STYLES = {"idle": "", "running": "green", "waiting": "yellow", "closed": "dim"}  # and their colours
COLUMNS = ("session", "app", "events", "created", "state", "title", "damage")
MAX_LISTED_RANGES = 3  # parts of a session that are named one by one
MAX_TITLE_CHARS = 60


class LostRange(msgspec.Struct):
    """A part of a session that is lost, as `turnlog sessions --json` prints it."""

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
        """Whether its id, application or title has a text, and its state is the one that is wanted."""
        words = (self.session_id, self.app, self.title)
        return state in (None, self.state) and any(text.casefold() in word.casefold() for word in words)


@click.command(
    short_help="List the sessions of a log.", epilog="Example: turnlog sessions Rome --state waiting"
)
@click.argument("text", required=False, default="")
@log_option
@click.option("--state", type=click.Choice(list(STATE_STYLES)), help="Only sessions in this state.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per session.")
def sessions(text: str, log_url: str, state: str | None, as_json: bool) -> None:
    """List the sessions of a log, the oldest first; with TEXT those whose id, application or title has it.

    A session is running while an agent works in it, waiting while every agent waits for a person, idle
    otherwise, or closed. Times are UTC.
    """
    every, broken = run_command(list_sessions(log_url))
    for name in broken:
        click.echo(f"warning: {damaged_record_message(name)}", err=True)
    listed = [item for item in every if item.matches(text, state)]
    if as_json:
        output = sys.stdout.buffer
        for item in listed:
            write_json(output, msgspec.json.encode(item))
    elif listed:
        screen = make_console()
        for line in format_session_table(listed):
            screen.print(line, soft_wrap=True)  # as wide as it needs to be: an id that is cut is no id
    elif every:
        click.echo(f"None of {len(every)} sessions is what you asked for.", err=True)
    elif not broken:
        click.echo("There is no session in this log yet.", err=True)


async def list_sessions(log_url: str) -> tuple[list[SessionListItem], list[str]]:
    """The sessions with what is known to be lost of them, and those whose record cannot be read."""
    async with open_cli_log(log_url) as log:
        heads, damages, broken = await log.sessions(), await log.damages(), await log.damaged_sessions()
        unfinished = {name: await session_state(log, name) for name in await log.sessions_with_open_agents()}
    lost: dict[str, list[Damage]] = {}
    for damage in damages:
        lost.setdefault(damage.session_id, []).append(damage)
    listed = [
        make_list_item(head, unfinished.get(head.session_id, "idle"), lost.get(head.session_id, []))
        for head in heads
    ]
    return listed, broken


async def session_state(log: Log, session_id: str) -> str:
    """Whether the open agents of a session run or wait; where damage hides that, they count as running."""
    try:
        tree = await read_session_tree(log, session_id)
    except SessionDamaged:
        return "running"
    return "waiting" if tree.is_all_waiting else "running"


async def read_session_tree(log: Log, session_id: str) -> Tree:
    """Return what is open in a session."""
    tree = Tree()
    while page := await log.read(session_id, tree.last_seq, replay_from=-1):
        for envelope in page.envelopes():
            tree.apply(envelope, CATALOG.decode_payload(envelope))
    return tree


def make_list_item(record: SessionRecord, state: str, damage: list[Damage]) -> SessionListItem:
    """A session in its list."""
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
    """The list for people, line by line; a column about damage only if there is some."""
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
    """The row of a session."""
    yield Text(item.session_id)
    yield Text(escape_controls(item.app))
    yield Text(str(item.events))
    yield Text(item.created[:16].replace("T", " "), "dim")
    yield Text(item.state, STATE_STYLES[item.state])
    yield Text(
        escape_controls(item.title[:MAX_TITLE_CHARS] + ("…" if len(item.title) > MAX_TITLE_CHARS else ""))
    )
    yield Text(describe_lost_ranges(item.damage), "red")


def describe_lost_ranges(damage: list[LostRange]) -> str:
    """What is lost, in a few words."""
    if len(damage) > MAX_LISTED_RANGES:
        return f"{len(damage)} parts lost"
    return ", ".join(describe_lost_range(lost) for lost in damage)


def describe_lost_range(lost: LostRange) -> str:
    """One part; the session's own record has no seq."""
    return f"seq {seq_range(lost.first, lost.last)} lost" if lost.first >= 0 else "its record was damaged"


@click.command(epilog="Example: turnlog close sess_96cf1")
@click.argument("names", metavar="SESSION...", nargs=-1, required=True)
@log_option
def close(names: tuple[str, ...], log_url: str) -> None:
    """Close sessions: they take no more events, and stay readable. The server must not be running.

    A session in which an agent works or waits is refused: stop the agent in the console first.
    """
    for session_id in run_command(close_sessions(log_url, names)):
        click.echo(f"{session_id} is closed")


async def close_sessions(log_url: str, names: tuple[str, ...]) -> list[str]:
    """Close sessions, all or none; their ids."""
    async with open_cli_log(log_url) as log:  # a log that is not there must not be made
        heads, unfinished = await find_records(log, names), set(await log.sessions_with_open_agents())
    for head in heads:
        if head.session_id in unfinished:
            raise CallerError(f"an agent of {head.session_id} is not done: stop it in the console first")
    async with open_cli_log(log_url, writable=True) as log:
        for head in heads:
            await log.close_session(head.session_id)
    return [head.session_id for head in heads]


COMMANDS = (sessions, close)
