"""`turnlog tail`: the events of a session, one line each, as far as there are or as they come.

Reads beside the process that writes. A part that is damaged is named on stderr and passed over; what is
behind it is shown. Lines for people are cut to the width of the terminal, so that an event is one line.
"""

import sys
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

import click
from rich.text import Text

from turnlog.cli.describe import describe
from turnlog.cli.log_access import damage_line, newest, opened, session_named
from turnlog.cli.terminal import console, escape, write_json
from turnlog.errors import Damaged
from turnlog.events import CATALOG, AgentEnd, Envelope, Payload, SessionError, ToolResult, Unknown, decode
from turnlog.log import Damage, Head, Log, Page, Row, line_of
from turnlog.log.filter import Choice

SHORT_CHARS = 500  # of what happened; the whole of it is in --json
DEEPEST = 16  # steps of indentation: a depth from a foreign log must not fill the line

FAMILIES = {
    "ui": "green",
    "agent": "magenta",
    "assistant": "cyan",
    "block": "blue",
    "tool": "yellow",
    "approval": "yellow",
    "session": "red",
}

Show = Callable[[Sequence[Row]], None]
Source = Callable[[Log, str, int], AsyncIterator[Page]]


async def tail(
    log_url: str, session_id: str | None, after: int, source: Source, choice: Choice, show: Show
) -> bool:
    """Show the events of a session; False if some of it was found to be damaged."""
    whole = True
    async with opened(log_url) as log:
        session_id = await (session_named(log, session_id) if session_id else newest(log))
        shown = Shown(choice, show)
        for damage in await log.damages():
            if damage.session_id == session_id and damage.last > after:
                note(damage)
        while fault := await show_pages(source(log, session_id, after), shown):
            if fault.first < 0:  # the session's own record: there is nothing behind it
                raise fault
            note(Damage(fault.session_id, fault.first, fault.last, fault.problem))
            whole, after = False, fault.last
        if not shown.count:
            say_nothing_shown(await log.info(session_id), after, shown.passed)
    return whole


class Shown:
    """Shows the events that are wanted, and counts them; `passed` has the types of those that are not."""

    def __init__(self, choice: Choice, show: Show) -> None:
        self._choice = choice
        self._show = show
        self.count = 0
        self.passed: dict[str, None] = {}

    def take(self, page: Page) -> None:
        """Show what is wanted of a page."""
        rows = [row for row in page if self._choice.takes(row)]
        if rows:
            self.count += len(rows)
            self._show(rows)
        if not self.count:
            self.passed |= dict.fromkeys(row.type for row in page)


def say_nothing_shown(head: Head, after: int, passed: Iterable[str]) -> None:
    """Say on stderr why nothing was printed."""
    if types := ", ".join(passed):
        text = f"no event of {head.session_id} after seq {after} is what you asked for; there are {types}"
    elif head.last < 0:
        text = f"{head.session_id} has no events yet"
    else:
        text = f"{head.session_id} has nothing after seq {after}: its last event has seq {head.last}"
    click.echo(escape(text), err=True)


async def show_pages(pages: AsyncIterator[Page], shown: Shown) -> Damaged | None:
    """Show what is wanted, as far as it goes: to the end, or to damage."""
    try:
        async for page in pages:
            shown.take(page)
    except Damaged as damage:
        return damage
    return None


def note(damage: Damage) -> None:
    """A loss, beside the events."""
    click.echo(damage_line(damage), err=True)


async def stored(log: Log, session_id: str, after: int) -> AsyncIterator[Page]:
    """What there is."""
    await log.info(session_id)
    while rows := await log.read(session_id, after):
        yield rows
        after = rows[-1].seq


async def followed(log: Log, session_id: str, after: int) -> AsyncIterator[Page]:
    """What there is and what comes, until the session is closed; a new epoch is followed too."""
    closed = False
    while not closed:
        epoch = (await log.info(session_id)).epoch
        async for rows in log.follow(session_id, after):
            yield rows
            after = rows[-1].seq
        head = await log.info(session_id)
        closed = head.closed and head.epoch == epoch


def json_lines() -> Show:
    """Show envelopes as they are stored."""
    output = sys.stdout.buffer

    def show(rows: Sequence[Row]) -> None:
        for row in rows:
            write_json(output, line_of(row))
        output.flush()

    return show


def readable_lines() -> Show:
    """Show events for people."""
    screen = console()
    options: dict[str, Any] = {"soft_wrap": True}
    if sys.stdout.isatty():
        options = {"no_wrap": True, "overflow": "ellipsis"}

    def show(rows: Sequence[Row]) -> None:
        screen.print(Text("\n").join(readable(row) for row in rows), **options)

    return show


def readable(row: Row) -> Text:
    """One event as one line."""
    envelope = decode(line_of(row))
    payload = CATALOG.payload(envelope)
    family = envelope.type.partition(".")[0]
    line = Text().append(f"{envelope.seq:>5} {envelope.ts[11:23]} ", "dim")
    line.append(f"{escape(envelope.type):<18} ", FAMILIES.get(family, ""))
    line.append(f"{agent(envelope):<12} ", "bold")
    text = describe(payload)
    cut = text[:SHORT_CHARS] + "…" if len(text) > SHORT_CHARS else text
    return line.append(escape(cut), style(row, payload))


def agent(envelope: Envelope) -> str:
    """Whose event it is, indented by its depth."""
    name = envelope.agent_name or envelope.agent_id or ""
    return "  " * min(envelope.depth or 0, DEEPEST) + escape(name)


def style(row: Row, payload: Payload | Unknown) -> str:
    """What failed is red, what only matters while it happens stays back."""
    failed = (
        isinstance(payload, SessionError)
        or (isinstance(payload, ToolResult) and not payload.ok)
        or (isinstance(payload, AgentEnd) and payload.stop_reason == "error")
    )
    if failed:
        return "red"
    return "dim" if row.live else ""
