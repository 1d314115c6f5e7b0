"""`turnlog sessions` and `turnlog close`: the sessions of a log, what each is about, and the end of one."""

import sys
from collections.abc import Iterator

import click
import msgspec
from rich.text import Text

from turnlog.cli.log import log_option
from turnlog.cli.log_access import broken_line, named_heads, opened, run, span
from turnlog.cli.terminal import console, escape, write_json
from turnlog.errors import CallerError, Damaged
from turnlog.events import CATALOG
from turnlog.events.envelope import timestamp
from turnlog.log import Damage, Head, Log
from turnlog.state.tree import Tree

STATES = {"idle": "", "running": "green", "waiting": "yellow", "closed": "dim"}  # and their colours
COLUMNS = ("session", "app", "events", "created", "state", "title", "damage")
FEW = 3  # parts of a session that are named one by one
TITLE_CHARS = 60


class Lost(msgspec.Struct):
    """A part of a session that is lost, as `turnlog sessions --json` prints it."""

    first: int
    last: int
    problem: str


class Listed(msgspec.Struct):
    """A session as `turnlog sessions --json` prints it."""

    session_id: str
    app: str
    title: str
    state: str
    events: int
    created: str
    updated: str | None
    closed: bool
    damage: list[Lost]

    def matches(self, text: str, state: str | None) -> bool:
        """Whether its id, application or title has a text, and its state is the one that is wanted."""
        words = (self.session_id, self.app, self.title)
        return state in (None, self.state) and any(text.casefold() in word.casefold() for word in words)


@click.command(
    short_help="List the sessions of a log.", epilog="Example: turnlog sessions Rome --state waiting"
)
@click.argument("text", required=False, default="")
@log_option
@click.option("--state", type=click.Choice(list(STATES)), help="Only sessions in this state.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per session.")
def sessions(text: str, log_url: str, state: str | None, as_json: bool) -> None:
    """List the sessions of a log, the oldest first; with TEXT those whose id, application or title has it.

    A session is running while an agent works in it, waiting while every agent waits for a person, idle
    otherwise, or closed. Times are UTC.
    """
    every, broken = run(list_sessions(log_url))
    for name in broken:
        click.echo(f"warning: {broken_line(name)}", err=True)
    listed = [item for item in every if item.matches(text, state)]
    if as_json:
        output = sys.stdout.buffer
        for item in listed:
            write_json(output, msgspec.json.encode(item))
    elif listed:
        screen = console()
        for line in session_lines(listed):
            screen.print(line, soft_wrap=True)  # as wide as it needs to be: an id that is cut is no id
    elif every:
        click.echo(f"None of {len(every)} sessions is what you asked for.", err=True)
    elif not broken:
        click.echo("There is no session in this log yet.", err=True)


async def list_sessions(log_url: str) -> tuple[list[Listed], list[str]]:
    """The sessions with what is known to be lost of them, and those whose record cannot be read."""
    async with opened(log_url) as log:
        heads, damages, broken = await log.sessions(), await log.damages(), await log.broken()
        unfinished = {name: await state_of(log, name) for name in await log.unfinished()}
    lost: dict[str, list[Damage]] = {}
    for damage in damages:
        lost.setdefault(damage.session_id, []).append(damage)
    listed = [
        listed_session(head, unfinished.get(head.session_id, "idle"), lost.get(head.session_id, []))
        for head in heads
    ]
    return listed, broken


async def state_of(log: Log, session_id: str) -> str:
    """Whether the open agents of a session run or wait; where damage hides that, they count as running."""
    try:
        tree = await tree_of(log, session_id)
    except Damaged:
        return "running"
    return "waiting" if tree.all_wait else "running"


async def tree_of(log: Log, session_id: str) -> Tree:
    """Return what is open in a session."""
    tree = Tree()
    while page := await log.read(session_id, tree.last, origin=-1):
        for envelope in page.envelopes():
            tree.apply(envelope, CATALOG.payload(envelope))
    return tree


def listed_session(head: Head, state: str, damage: list[Damage]) -> Listed:
    """A session in its list."""
    return Listed(
        session_id=head.session_id,
        app=head.app,
        title=head.title,
        state="closed" if head.closed else state,
        events=head.last + 1,
        created=timestamp(head.created_ms),
        updated=timestamp(head.updated_ms) if head.updated_ms else None,
        closed=head.closed,
        damage=[Lost(item.first, item.last, item.problem) for item in damage],
    )


def session_lines(listed: list[Listed]) -> Iterator[Text]:
    """The list for people, line by line; a column about damage only if there is some."""
    names = COLUMNS if any(item.damage for item in listed) else COLUMNS[:-1]
    rows = [[Text(name, "bold") for name in names], *[list(cells(item))[: len(names)] for item in listed]]
    widths = [max(cell.cell_len for cell in column) for column in zip(*rows, strict=True)]
    for row in rows:
        for name, cell, width in zip(names, row, widths, strict=True):
            cell.align("right" if name == "events" else "left", width)
        yield Text("  ").join(row)


def cells(item: Listed) -> Iterator[Text]:
    """The row of a session."""
    yield Text(item.session_id)
    yield Text(escape(item.app))
    yield Text(str(item.events))
    yield Text(item.created[:16].replace("T", " "), "dim")
    yield Text(item.state, STATES[item.state])
    yield Text(escape(item.title[:TITLE_CHARS] + ("…" if len(item.title) > TITLE_CHARS else "")))
    yield Text(lost_parts(item.damage), "red")


def lost_parts(damage: list[Lost]) -> str:
    """What is lost, in a few words."""
    if len(damage) > FEW:
        return f"{len(damage)} parts lost"
    return ", ".join(lost_part(lost) for lost in damage)


def lost_part(lost: Lost) -> str:
    """One part; the session's own record has no seq."""
    return f"seq {span(lost.first, lost.last)} lost" if lost.first >= 0 else "its record was damaged"


@click.command(epilog="Example: turnlog close sess_96cf1")
@click.argument("names", metavar="SESSION...", nargs=-1, required=True)
@log_option
def close(names: tuple[str, ...], log_url: str) -> None:
    """Close sessions: they take no more events, and stay readable. The server must not be running.

    A session in which an agent works or waits is refused: stop the agent in the console first.
    """
    for session_id in run(close_sessions(log_url, names)):
        click.echo(f"{session_id} is closed")


async def close_sessions(log_url: str, names: tuple[str, ...]) -> list[str]:
    """Close sessions, all or none; their ids."""
    async with opened(log_url) as log:  # a log that is not there must not be made
        heads, unfinished = await named_heads(log, names), set(await log.unfinished())
    for head in heads:
        if head.session_id in unfinished:
            raise CallerError(f"an agent of {head.session_id} is not done: stop it in the console first")
    async with opened(log_url, writable=True) as log:
        for head in heads:
            await log.close_session(head.session_id)
    return [head.session_id for head in heads]


COMMANDS = (sessions, close)
