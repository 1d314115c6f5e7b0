"""Commands on a log: `tail`, `export`, `import`, `backup`, `verify`, `prune`.

All but `import` and `prune` only read, and work beside a running server. `tail` and `transfer` have the
longer parts.
"""

import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

import click

from turnlog.cli.log_access import (
    LOG_OPTION,
    check_log_exists,
    find_records,
    format_damage,
    open_cli_log,
    run_command,
)
from turnlog.cli.serve import load_app
from turnlog.cli.tail import (
    PageSource,
    PrintRows,
    follow_pages,
    make_json_printer,
    make_text_printer,
    print_tail,
    read_pages,
)
from turnlog.cli.terminal import format_count
from turnlog.cli.transfer import export_sessions, import_sessions
from turnlog.errors import BadInput, StoreError
from turnlog.events.catalog import Misfit
from turnlog.ids import now_ms
from turnlog.log import Damage, Log, SessionRecord, sqlite_path
from turnlog.log.blobs import find_missing_blobs
from turnlog.log.checkpoint_blobs import drop_superseded_blobs
from turnlog.log.filter import EventFilter
from turnlog.log.sqlite.backup import back_up
from turnlog.wire.cursor import END, parse_cursor
from turnlog.wire.durable_streams.events import STREAM_APP

if TYPE_CHECKING:
    from turnlog import App

UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
MAX_SEQ = (1 << 53) - 1  # the highest integer that JavaScript represents exactly

log_option = click.option(
    "--log", "log_url", callback=lambda context, option, value: reject_memory_log(value), **LOG_OPTION
)


def reject_memory_log(log_url: str) -> str:
    if log_url.startswith("memory:"):
        raise click.BadParameter("a log in memory is visible to its own process only")
    return log_url


def check_after(text: str) -> str:
    """Return the text; raise `BadParameter` if it is neither a cursor nor `end`."""
    if text != END:
        try:
            parse_cursor(text)
        except BadInput:
            raise click.BadParameter(f"expected a seq, a cursor like 41:k3x9, or end; got {text!r}") from None
    return text


def parse_age_ms(age: str) -> int:
    """Parse an age such as `30d`. Raise `BadParameter`."""
    match = re.fullmatch(r"(\d{1,12})([smhdw])", age, re.ASCII)
    if match is None:
        raise click.BadParameter(f"expected a number and one of s, m, h, d, w, such as 30d; got {age!r}")
    return int(match[1]) * UNIT_SECONDS[match[2]] * 1000


@click.command(
    "tail",
    short_help="Print the events of a session.",
    epilog="Example: turnlog tail sess_96cf1 --follow --type tool",
)
@click.argument("session", required=False)
@log_option
@click.option(
    "--after",
    default="-1",
    callback=lambda context, option, value: check_after(value),
    help="Print events after this seq or cursor; `end`: only new ones.",
)
@click.option("--follow", "-f", is_flag=True, help="Wait for new events until the session is closed.")
@click.option(
    "--type",
    "types",
    multiple=True,
    help="Print only this type; `tool` means all of tool.*. Can be repeated.",
)
@click.option(
    "--depth", type=click.IntRange(min=0), help="Print only agents down to this depth; 0 is the top agent."
)
@click.option("--json", "as_json", is_flag=True, help="Print the events as they are stored.")
@click.pass_context
def tail_command(
    context: click.Context,
    session: str | None,
    log_url: str,
    after: str,
    follow: bool,
    types: tuple[str, ...],
    depth: int | None,
    as_json: bool,
) -> None:
    """Print the events of SESSION, or of the newest session. Times are UTC."""
    source: PageSource = follow_pages if follow else read_pages
    print_rows: PrintRows = make_json_printer() if as_json else make_text_printer()
    event_filter = EventFilter(types, depth)
    if not run_command(print_tail(log_url, session, after, source, event_filter, print_rows)):
        context.exit(1)


@click.command(
    short_help="Write sessions and their files as JSON lines.",
    epilog="Example: turnlog export sess_96cf1 --output archive.jsonl",
)
@click.argument("names", metavar="[SESSION]...", nargs=-1)
@log_option
@click.option(
    "--output", "-o", type=click.File("wb"), default="-", help="The file to write; default: stdout."
)
@click.option(
    "--private",
    is_flag=True,
    help="Write private blobs too: what runtimes stored to go on later, such as prompts and tool results.",
)
def export(names: tuple[str, ...], log_url: str, output: BinaryIO, private: bool) -> None:
    """Write all sessions, or each SESSION, as lines of JSON, with their images and files.

    Each image or file follows the events of its session as lines of "type": "blob", with base64 content.
    """
    run_command(export_sessions(log_url, names, output, private=private))


@click.command(
    "import",
    short_help="Import what `turnlog export` wrote.",
    epilog="Example: turnlog import archive.jsonl --log sqlite:///copy.db",
)
@click.argument("file", type=click.File("rb"), default="-")
@log_option
def import_command(file: BinaryIO, log_url: str) -> None:
    """Import what `turnlog export` wrote, from FILE or stdin: events, images and files.

    Importing twice changes nothing. A blob that does not match the hash in its name is refused. Stop the
    server first.
    """
    if file.isatty():
        raise click.UsageError("expected a FILE, or lines on stdin")
    click.echo(run_command(import_sessions(log_url, file)))


@click.command(
    short_help="Copy a log, even while it is in use.",
    epilog="Example: turnlog backup copies/monday.db --log sqlite:///shop.db",
)
@click.argument("target", metavar="DEST", type=click.Path(path_type=Path))
@log_option
def backup(target: Path, log_url: str) -> None:
    """Copy a SQLite log to the file DEST, with all images and files. A server may write it meanwhile.

    DEST appears when the copy is complete, together with DEST.mark: keep both files.
    """
    if not log_url.startswith("sqlite:"):
        raise click.UsageError(
            "only a SQLite log can be copied as a file; use `turnlog export` for other logs"
        )
    check_log_exists(log_url)
    records = back_up(sqlite_path(log_url), target)
    click.echo(f"{count_sessions_and_events(records)} copied to {target}")


def count_sessions_and_events(records: Sequence[SessionRecord]) -> str:
    events = sum(record.last + 1 for record in records)
    return f"{format_count(len(records), 'session')}, {format_count(events, 'event')}"


@click.command(
    short_help="Check every event and blob of a log.",
    epilog="Example: turnlog verify --log sqlite:///shop.db",
)
@log_option
@click.option(
    "--app", metavar="MODULE:APP", help="Check that stored events fit the classes of this application."
)
@click.pass_context
def verify(context: click.Context, log_url: str, app: str | None) -> None:
    """Check every event and blob of a log, and that all blobs exist that events refer to.

    With --app it also checks that stored events fit the classes of the application: events that do not fit
    are missing in its state. The exit code is 1 if something is damaged, missing or does not fit.
    """
    records, damages = run_command(verify_log(log_url))
    for damage in damages:
        click.echo(format_damage(damage))

    misfits: list[tuple[SessionRecord, Misfit]] = []
    if app and not damages:
        misfits = run_command(find_misfits(log_url, records, load_app(app)))
    for record, misfit in misfits:
        events = f"{format_count(misfit.count, 'event')} {misfit.type}"
        click.echo(f"{record.session_id}: {events} of {app} do not fit the class: {misfit.problem}")

    if damages or misfits:
        context.exit(1)
    click.echo(f"no damage found: {count_sessions_and_events(records)}")


async def find_misfits(
    log_url: str, records: Sequence[SessionRecord], app: "App"
) -> list[tuple[SessionRecord, Misfit]]:
    misfits: list[tuple[SessionRecord, Misfit]] = []
    async with open_cli_log(log_url) as log:
        for record in records:
            if record.app == app.name:
                stored = [pair async for pair in read_durable_payloads(log, record.session_id)]
                misfits += [(record, misfit) for misfit in app.catalog.find_misfits(stored)]
    return misfits


async def read_durable_payloads(log: Log, session_id: str) -> AsyncIterator[tuple[str, bytes]]:
    after = -1
    while page := await log.read(session_id, after, replay_from=-1):
        for envelope in page.envelopes():
            yield envelope.type, bytes(envelope.payload)
        after = page.last


async def verify_log(log_url: str) -> tuple[list[SessionRecord], list[Damage]]:
    """Return the sessions and all damages, recorded ones and new ones; no sessions if some are new."""
    async with open_cli_log(log_url) as log:
        new_damages = await log.verify()
        if new_damages:  # a damaged file may not answer further queries
            return [], list(dict.fromkeys([*await read_known_damages(log), *new_damages]))

        records = await log.sessions()
        damages = await log.damages()
        damages += [damage async for damage in find_missing_blobs(log, records)]
        return records, damages


async def read_known_damages(log: Log) -> list[Damage]:
    """Return the recorded damages; an empty list if the file cannot be read."""
    try:
        return await log.damages()
    except StoreError:
        return []


@click.command(
    short_help="Remove old live events and what has expired.",
    epilog="Example: turnlog prune --older-than 30d",
)
@click.argument("names", metavar="[SESSION]...", nargs=-1)
@log_option
@click.option(
    "--older-than",
    "age_ms",
    metavar="AGE",
    required=True,
    callback=lambda context, option, value: parse_age_ms(value),
    help="An age such as 30d; the units are s, m, h, d, w.",
)
def prune(names: tuple[str, ...], log_url: str, age_ms: int) -> None:
    """Remove old live events of finished blocks and calls, of all sessions or of each SESSION.

    Live events are the streamed pieces of texts and progress. Complete messages, calls and results stay.
    Private blobs of checkpoints that a later checkpoint supersedes are removed too, whatever their age.
    So are streams (Durable Streams) that were deleted or have expired, unless a fork needs them.
    Without a SESSION, old uploads that no message names are removed too. Stop the server first.
    """
    removed = run_command(prune_sessions(log_url, names, max(0, now_ms() - age_ms)))
    summary = f"{format_count(removed.events, 'live event')} removed"
    if removed.events:
        summary += f" from {format_count(removed.sessions, 'session')}"
    if removed.blobs:
        summary += f", {format_count(removed.blobs, 'superseded checkpoint')} removed"
    if removed.streams:
        summary += f", {format_count(removed.streams, 'stream')} removed"
    if removed.uploads:
        summary += f", {format_count(removed.uploads, 'upload')} removed"
    click.echo(summary)


class PruneCounts(NamedTuple):
    """How much a prune removed: live events, from how many sessions, private blobs, streams, uploads."""

    events: int
    sessions: int
    blobs: int
    streams: int
    uploads: int


async def prune_sessions(log_url: str, names: tuple[str, ...], before_ms: int) -> PruneCounts:
    """Prune sessions, all if there are no names. A wrong name removes nothing."""
    async with open_cli_log(log_url) as log:  # for reading first: a missing log must not be created
        records = await find_records(log, names)
    async with open_cli_log(log_url, writable=True) as log:
        counts = [await log.prune(record.session_id, before_ms) for record in records]
        blobs = [await drop_superseded_blobs(log, record.session_id) for record in records]
        streams = await erase_gone_streams(log, records)
        uploads = 0 if names else await log.drop_uploads(before_ms)
    sessions = sum(count > 0 for count in counts)
    return PruneCounts(sum(counts), sessions, sum(blobs), streams, uploads)


async def erase_gone_streams(log: Log, records: Sequence[SessionRecord]) -> int:
    """Erase the streams among sessions that were deleted or have expired. Return how many."""
    session_ids = [record.session_id for record in records if record.app == STREAM_APP]
    if not session_ids:
        return 0
    from turnlog.server.protocols.durable_streams.directory import StreamDirectory

    directory = StreamDirectory(log)
    return sum([await directory.erase_if_gone(session_id) for session_id in session_ids])


COMMANDS = (tail_command, export, import_command, backup, verify, prune)
