"""`turnlog tail`: the events of a session, one line each, as far as there are or as they come.

Reads beside the process that writes. A part that is damaged is named on stderr and passed over; what is
behind it is shown. Lines for people are cut to the width of the terminal, so that an event is one line.
"""

import sys
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from typing import Any

import click
from rich.text import Text

from turnlog.cli.describe import describe_payload
from turnlog.cli.log_access import find_session_id, format_damage, latest_session, open_cli_log
from turnlog.cli.terminal import escape_controls, make_console, write_json
from turnlog.errors import SessionDamaged
from turnlog.events import (
    CATALOG,
    AgentEnd,
    Envelope,
    Payload,
    SessionError,
    ToolResult,
    UnknownPayload,
    decode_envelope,
)
from turnlog.log import Damage, Log, Page, Row, SessionRecord, envelope_json
from turnlog.log.filter import EventFilter

MAX_TEXT_CHARS = 500  # of what happened; the whole of it is in --json
MAX_INDENT_STEPS = 16  # steps of indentation: a depth from a foreign log must not fill the line

FAMILY_STYLES = {
    "ui": "green",
    "agent": "magenta",
    "assistant": "cyan",
    "block": "blue",
    "tool": "yellow",
    "approval": "yellow",
    "session": "red",
}

PrintRows = Callable[[Sequence[Row]], None]
PageSource = Callable[[Log, str, int], AsyncIterator[Page]]


async def print_tail(
    log_url: str,
    session_id: str | None,
    after: int,
    source: PageSource,
    event_filter: EventFilter,
    show: PrintRows,
) -> bool:
    """Show the events of a session; False if some of it was found to be damaged."""
    whole = True
    async with open_cli_log(log_url) as log:
        session_id = await (find_session_id(log, session_id) if session_id else latest_session(log))
        shown = RowPrinter(event_filter, show)
        for damage in await log.damages():
            if damage.session_id == session_id and damage.last > after:
                warn_damage(damage)
        while fault := await print_pages(source(log, session_id, after), shown):
            if fault.first < 0:  # the session's own record: there is nothing behind it
                raise fault
            warn_damage(Damage(fault.session_id, fault.first, fault.last, fault.problem))
            whole, after = False, fault.last
        if not shown.count:
            explain_empty_output(await log.info(session_id), after, shown.skipped_types)
    return whole


class RowPrinter:
    """Shows the events that are wanted, and counts them; `passed` has the types of those that are not."""

    def __init__(self, event_filter: EventFilter, print_rows: PrintRows) -> None:
        self._event_filter = event_filter
        self._print_rows = print_rows
        self.count = 0
        self.skipped_types: dict[str, None] = {}

    def print_page(self, page: Page) -> None:
        """Show what is wanted of a page."""
        rows = [row for row in page if self._event_filter.matches(row)]
        if rows:
            self.count += len(rows)
            self._print_rows(rows)
        if not self.count:
            self.skipped_types |= dict.fromkeys(row.type for row in page)


def explain_empty_output(record: SessionRecord, after: int, skipped_types: Iterable[str]) -> None:
    """Say on stderr why nothing was printed."""
    if types := ", ".join(skipped_types):
        text = f"no event of {record.session_id} after seq {after} is what you asked for; there are {types}"
    elif record.last < 0:
        text = f"{record.session_id} has no events yet"
    else:
        text = f"{record.session_id} has nothing after seq {after}: its last event has seq {record.last}"
    click.echo(escape_controls(text), err=True)


async def print_pages(pages: AsyncIterator[Page], printer: RowPrinter) -> SessionDamaged | None:
    """Show what is wanted, as far as it goes: to the end, or to damage."""
    try:
        async for page in pages:
            printer.print_page(page)
    except SessionDamaged as damage:
        return damage
    return None


def warn_damage(damage: Damage) -> None:
    """A loss, beside the events."""
    click.echo(format_damage(damage), err=True)


async def read_pages(log: Log, session_id: str, after: int) -> AsyncIterator[Page]:
    """What there is."""
    await log.info(session_id)
    while rows := await log.read(session_id, after):
        yield rows
        after = rows[-1].seq


async def follow_pages(log: Log, session_id: str, after: int) -> AsyncIterator[Page]:
    """What there is and what comes, until the session is closed; a new epoch is followed too."""
    closed = False
    while not closed:
        epoch = (await log.info(session_id)).epoch
        async for rows in log.follow(session_id, after):
            yield rows
            after = rows[-1].seq
        head = await log.info(session_id)
        closed = head.closed and head.epoch == epoch


def make_json_printer() -> PrintRows:
    """Show envelopes as they are stored."""
    output = sys.stdout.buffer

    def show(rows: Sequence[Row]) -> None:
        for row in rows:
            write_json(output, envelope_json(row))
        output.flush()

    return show


def make_text_printer() -> PrintRows:
    """Show events for people."""
    screen = make_console()
    options: dict[str, Any] = {"soft_wrap": True}
    if sys.stdout.isatty():
        options = {"no_wrap": True, "overflow": "ellipsis"}

    def show(rows: Sequence[Row]) -> None:
        screen.print(Text("\n").join(format_row(row) for row in rows), **options)

    return show


def format_row(row: Row) -> Text:
    """One event as one line."""
    envelope = decode_envelope(envelope_json(row))
    payload = CATALOG.decode_payload(envelope)
    family = envelope.type.partition(".")[0]
    line = Text().append(f"{envelope.seq:>5} {envelope.ts[11:23]} ", "dim")
    line.append(f"{escape_controls(envelope.type):<18} ", FAMILY_STYLES.get(family, ""))
    line.append(f"{agent_column(envelope):<12} ", "bold")
    text = describe_payload(payload)
    cut = text[:MAX_TEXT_CHARS] + "…" if len(text) > MAX_TEXT_CHARS else text
    return line.append(escape_controls(cut), row_style(row, payload))


def agent_column(envelope: Envelope) -> str:
    """Whose event it is, indented by its depth."""
    name = envelope.agent_name or envelope.agent_id or ""
    return "  " * min(envelope.depth or 0, MAX_INDENT_STEPS) + escape_controls(name)


def row_style(row: Row, payload: Payload | UnknownPayload) -> str:
    """What failed is red, what only matters while it happens stays back."""
    failed = (
        isinstance(payload, SessionError)
        or (isinstance(payload, ToolResult) and not payload.ok)
        or (isinstance(payload, AgentEnd) and payload.stop_reason == "error")
    )
    if failed:
        return "red"
    return "dim" if row.live else ""
