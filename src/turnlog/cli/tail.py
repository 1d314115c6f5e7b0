"""`turnlog tail`: print the events of a session, one line each, and follow new ones.

It reads beside the process that writes. Damaged parts are reported on stderr and skipped. A database that
does not answer is reported, too, and followed again when it is back. Text lines are cut to the width of the
terminal, so that each event is one line.
"""

import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import click
from rich.text import Text

from turnlog.cli.describe import describe_payload
from turnlog.cli.log_access import find_session_id, format_damage, latest_session, open_cli_log
from turnlog.cli.terminal import escape_controls, make_console, write_json
from turnlog.errors import CallerError, SessionDamaged, StoreAway
from turnlog.events import (
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
from turnlog.vocabularies import FULL_CATALOG
from turnlog.wire.cursor import END, parse_cursor

MAX_TEXT_CHARS = 500  # --json prints the whole event
REACH_CHECK_S = 1.0  # a database is away when it has not answered for 10 s
MAX_INDENT_STEPS = 16  # an imported log may have any depth: it must not fill the line
AWAY_MESSAGE = "the database of the log does not answer; waiting for it"
BACK_MESSAGE = "the database of the log answers again"

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


def resolve_after(text: str, record: SessionRecord) -> int:
    """Return the seq after which to print: a cursor's, or that of the last event for `end`.

    Raise `CallerError` for a cursor of another epoch: its seq belongs to a history that was replaced.
    """
    if text == END:
        return record.last
    cursor = parse_cursor(text, "--after")
    if cursor.epoch not in (None, record.epoch):
        raise CallerError(f"{text} is no cursor of this log, its epoch is {record.epoch}; use --after -1")
    # An event of which the reader has some chunks is printed whole.
    return cursor.seq if cursor.chunk is None else cursor.seq - 1


async def print_tail(
    log_url: str,
    session_id: str | None,
    after_text: str,
    source: PageSource,
    event_filter: EventFilter,
    print_rows: PrintRows,
) -> bool:
    """Print the events of a session (None: the newest); return False if some are damaged.

    `after_text` is a cursor or `end`.
    """
    is_undamaged = True
    async with open_cli_log(log_url) as log, reported_outages(log):
        if session_id:
            session_id = await find_session_id(log, session_id)
        else:
            session_id = await latest_session(log)
        after = resolve_after(after_text, await log.info(session_id))

        printer = RowPrinter(event_filter, print_rows)
        for damage in await log.damages():
            if damage.session_id == session_id and damage.last > after:
                warn_damage(damage)
        while error := await print_pages(source(log, session_id, after), printer):
            if error.first < 0:  # the session's record: no event can be read
                raise error
            warn_damage(Damage(error.session_id, error.first, error.last, error.problem))
            is_undamaged = False
            after = error.last

        if not printer.count:
            explain_empty_output(await log.info(session_id), after, printer.skipped_types)
    return is_undamaged


@asynccontextmanager
async def reported_outages(log: Log) -> AsyncIterator[None]:
    """Print a line when the database of the log is away, and one when it is back."""

    async def report() -> None:
        is_away = False
        while True:
            await asyncio.sleep(REACH_CHECK_S)
            if log.reach.is_lost != is_away:
                is_away = not is_away
                click.echo(AWAY_MESSAGE if is_away else BACK_MESSAGE, err=True)

    task = asyncio.create_task(report())
    try:
        yield
    finally:
        task.cancel()


class RowPrinter:
    """Prints and counts matching events. `skipped_types` are the types before the first match, in order."""

    def __init__(self, event_filter: EventFilter, print_rows: PrintRows) -> None:
        self._event_filter = event_filter
        self._print_rows = print_rows
        self.count = 0
        self.skipped_types: dict[str, None] = {}

    def print_page(self, page: Page) -> None:
        rows = [row for row in page if self._event_filter.matches(row)]
        if rows:
            self.count += len(rows)
            self._print_rows(rows)
        if not self.count:
            self.skipped_types |= dict.fromkeys(row.type for row in page)


def explain_empty_output(record: SessionRecord, after: int, skipped_types: Iterable[str]) -> None:
    types = ", ".join(skipped_types)
    if types:
        text = f"no event of {record.session_id} after seq {after} matches; it has events of type {types}"
    elif record.last < 0:
        text = f"{record.session_id} has no events yet"
    else:
        text = f"{record.session_id} has no event after seq {after}; its last event has seq {record.last}"
    click.echo(escape_controls(text), err=True)


async def print_pages(pages: AsyncIterator[Page], printer: RowPrinter) -> SessionDamaged | None:
    """Print pages to the end or to the first damage, which is returned."""
    try:
        async for page in pages:
            printer.print_page(page)
    except SessionDamaged as damage:
        return damage
    return None


def warn_damage(damage: Damage) -> None:
    click.echo(format_damage(damage), err=True)


async def read_pages(log: Log, session_id: str, after: int) -> AsyncIterator[Page]:
    await log.info(session_id)
    while page := await log.read(session_id, after):
        yield page
        after = page.last


async def follow_pages(log: Log, session_id: str, after: int) -> AsyncIterator[Page]:
    """Yield stored and new pages until the session is closed, across changes of its epoch and outages."""
    is_closed = False
    while not is_closed:
        try:
            epoch = (await log.info(session_id)).epoch
            async for page in log.follow(session_id, after):
                yield page
                after = page.last
            record = await log.info(session_id)
            is_closed = record.closed and record.epoch == epoch
        except StoreAway:
            continue  # each try has waited for a minute


def make_json_printer() -> PrintRows:
    output = sys.stdout.buffer

    def print_rows(rows: Sequence[Row]) -> None:
        for row in rows:
            write_json(output, envelope_json(row))
        output.flush()

    return print_rows


def make_text_printer() -> PrintRows:
    console = make_console()
    options: dict[str, Any] = {"soft_wrap": True}
    if sys.stdout.isatty():
        options = {"no_wrap": True, "overflow": "ellipsis"}

    def print_rows(rows: Sequence[Row]) -> None:
        console.print(Text("\n").join(format_row(row) for row in rows), **options)

    return print_rows


def format_row(row: Row) -> Text:
    envelope = decode_envelope(envelope_json(row))
    payload = FULL_CATALOG.decode_payload(envelope)
    family = envelope.type.partition(".")[0]
    line = Text().append(f"{envelope.seq:>5} {envelope.ts[11:23]} ", "dim")
    line.append(f"{escape_controls(envelope.type):<18} ", FAMILY_STYLES.get(family, ""))
    line.append(f"{agent_column(envelope):<12} ", "bold")
    text = describe_payload(payload)
    if len(text) > MAX_TEXT_CHARS:
        text = text[:MAX_TEXT_CHARS] + "…"
    return line.append(escape_controls(text), row_style(row, payload))


def agent_column(envelope: Envelope) -> str:
    name = envelope.agent_name or envelope.agent_id or ""
    return "  " * min(envelope.depth or 0, MAX_INDENT_STEPS) + escape_controls(name)


def row_style(row: Row, payload: Payload | UnknownPayload) -> str:
    failed = (
        isinstance(payload, SessionError)
        or (isinstance(payload, ToolResult) and not payload.ok)
        or (isinstance(payload, AgentEnd) and payload.stop_reason == "error")
    )
    if failed:
        return "red"
    return "dim" if row.live else ""
