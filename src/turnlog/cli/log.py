"""Commands on a log: `tail`, `export`, `import`, `backup`, `verify`, `prune`.

All but `import` and `prune` only read, and work beside a running server. Each command is its options and one
piece of work; what it prints about the work is here, what takes longer is in a module of its own.
"""

import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

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
from turnlog.errors import StoreError
from turnlog.events.catalog import Misfit
from turnlog.ids import now_ms
from turnlog.log import Damage, Log, SessionRecord, sqlite_path
from turnlog.log.blobs import find_missing_blobs
from turnlog.log.filter import EventFilter
from turnlog.log.sqlite.backup import back_up

if TYPE_CHECKING:
    from turnlog import App

UNIT_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
MAX_SEQ = (1 << 53) - 1  # no event has a higher one

log_option = click.option(
    "--log", "log_url", callback=lambda context, option, value: reject_memory_log(value), **LOG_OPTION
)


def reject_memory_log(log_url: str) -> str:
    """Refuse a log that no other process can see."""
    if log_url.startswith("memory:"):
        raise click.BadParameter("a log in memory is seen by its own process only")
    return log_url


def parse_age_ms(age: str) -> int:
    """A length of time such as `30d`."""
    found = re.fullmatch(r"(\d{1,12})([smhdw])", age, re.ASCII)
    if found is None:
        raise click.BadParameter(f"expected a number and one of s, m, h, d, w, such as 30d; got {age!r}")
    return int(found[1]) * UNIT_SECONDS[found[2]] * 1000


@click.command("tail", epilog="Example: turnlog tail sess_96cf1 --follow --type tool")
@click.argument("session", required=False)
@log_option
@click.option("--after", type=click.IntRange(-1, MAX_SEQ), default=-1, help="Begin after this seq.")
@click.option("--follow", "-f", is_flag=True, help="Wait for more, until the session is closed.")
@click.option(
    "--type", "types", multiple=True, help="Only this type; `tool` means all of tool.*. May be repeated."
)
@click.option("--depth", type=click.IntRange(min=0), help="Only agents down to this depth; 0 is the first.")
@click.option("--json", "as_json", is_flag=True, help="Print the events as they are stored.")
@click.pass_context
def tail_command(
    context: click.Context,
    session: str | None,
    log_url: str,
    after: int,
    follow: bool,
    types: tuple[str, ...],
    depth: int | None,
    as_json: bool,
) -> None:
    """Print the events of SESSION, or of the newest one. Times are UTC."""
    source: PageSource = follow_pages if follow else read_pages
    show: PrintRows = make_json_printer() if as_json else make_text_printer()
    if not run_command(print_tail(log_url, session, after, source, EventFilter(types, depth), show)):
        context.exit(1)


@click.command(
    short_help="Write sessions and their files as JSON lines.",
    epilog="Example: turnlog export sess_96cf1 --output archive.jsonl",
)
@click.argument("names", metavar="[SESSION]...", nargs=-1)
@log_option
@click.option("--output", "-o", type=click.File("wb"), default="-", help="The file to write; else stdout.")
def export(names: tuple[str, ...], log_url: str, output: BinaryIO) -> None:
    """Write sessions with their pictures and files as lines of JSON: those that are named, or all.

    Each blob is lines with "type": "blob" after the events of its session, its content as base64.
    """
    run_command(export_sessions(log_url, names, output))


@click.command(
    "import",
    short_help="Take in what `turnlog export` wrote.",
    epilog="Example: turnlog import archive.jsonl --log sqlite:///copy.db",
)
@click.argument("file", type=click.File("rb"), default="-")
@log_option
def import_command(file: BinaryIO, log_url: str) -> None:
    """Take in what `turnlog export` wrote, from FILE or stdin: events, pictures and files.

    Doing it twice is harmless. A blob whose content does not match the hash in its name is refused.
    """
    if file.isatty():
        raise click.UsageError("expected a FILE, or lines on stdin")
    click.echo(run_command(import_sessions(log_url, file)))


@click.command(
    short_help="Copy a log that may be in use.",
    epilog="Example: turnlog backup copies/monday.db --log sqlite:///shop.db",
)
@click.argument("target", metavar="DEST", type=click.Path(path_type=Path))
@log_option
def backup(target: Path, log_url: str) -> None:
    """Copy a SQLite log to the file DEST, with all its pictures and files, while a server may write it.

    DEST is there only when the copy is whole. It comes with DEST.mark: keep both.
    """
    if not log_url.startswith("sqlite:"):
        raise click.UsageError("only a SQLite log is one file; write another one with `turnlog export`")
    check_log_exists(log_url)
    heads = back_up(sqlite_path(log_url), target)
    events = format_count(sum(head.last + 1 for head in heads), "event")
    click.echo(f"{format_count(len(heads), 'session')}, {events} copied to {target}")


@click.command(
    short_help="Check every event and blob of a log.",
    epilog="Example: turnlog verify --log sqlite:///shop.db",
)
@log_option
@click.option("--app", metavar="MODULE:APP", help="An application whose stored events must fit its classes.")
@click.pass_context
def verify(context: click.Context, log_url: str, app: str | None) -> None:
    """Check every event and every blob of a log, and that each blob an event names is there.

    With --app also that the stored events of the application still fit their classes: its state lacks those
    that do not. Exits with 1 if something is damaged, missing or does not fit.
    """
    heads, damages = run_command(verify_log(log_url))
    for damage in damages:
        click.echo(format_damage(damage))
    misfits = run_command(find_misfits(log_url, heads, load_app(app))) if app and not damages else []
    for head, misfit in misfits:
        events = f"{format_count(misfit.count, 'event')} {misfit.type}"
        click.echo(f"{head.session_id}: {events} of {app} do not fit the class: {misfit.problem}")
    if damages or misfits:
        context.exit(1)
    events = format_count(sum(head.last + 1 for head in heads), "event")
    click.echo(f"everything is whole: {format_count(len(heads), 'session')}, {events}")


async def find_misfits(
    log_url: str, records: Sequence[SessionRecord], app: "App"
) -> list[tuple[SessionRecord, Misfit]]:
    """The stored events of an application that its classes do not take, by session and type."""
    found: list[tuple[SessionRecord, Misfit]] = []
    async with open_cli_log(log_url) as log:
        for head in records:
            if head.app == app.name:
                stored = [pair async for pair in read_durable_payloads(log, head.session_id)]
                found += [(head, misfit) for misfit in app.catalog.find_misfits(stored)]
    return found


async def read_durable_payloads(log: Log, session_id: str) -> AsyncIterator[tuple[str, bytes]]:
    """The types and payloads of a session's durable events."""
    after = -1
    while page := await log.read(session_id, after, replay_from=-1):
        for envelope in page.envelopes():
            yield envelope.type, bytes(envelope.payload)
        after = page.last


async def verify_log(log_url: str) -> tuple[list[SessionRecord], list[Damage]]:
    """The sessions, and all that is lost of them: known before, and found now."""
    async with open_cli_log(log_url) as log:
        found = await log.verify()
        if found:  # what is damaged may not be asked for more
            return [], list(dict.fromkeys([*await read_known_damages(log), *found]))
        heads, lost = await log.sessions(), await log.damages()
        return heads, [*lost, *[damage async for damage in find_missing_blobs(log, heads)]]


async def read_known_damages(log: Log) -> list[Damage]:
    """What was lost before; a file that cannot be read has nothing to say."""
    try:
        return await log.damages()
    except StoreError:
        return []


@click.command(epilog="Example: turnlog prune --older-than 30d")
@click.argument("names", metavar="[SESSION]...", nargs=-1)
@log_option
@click.option(
    "--older-than",
    "age_ms",
    metavar="AGE",
    required=True,
    callback=lambda context, option, value: parse_age_ms(value),
    help="Such as 30d; the units are s, m, h, d, w.",
)
def prune(names: tuple[str, ...], log_url: str, age_ms: int) -> None:
    """Remove old live events of finished blocks and calls.

    Live events are what was streamed piece by piece. What was said, called and answered stays whole.
    """
    gone, touched = run_command(prune_sessions(log_url, names, max(0, now_ms() - age_ms)))
    place = f" from {format_count(touched, 'session')}" if gone else ""
    click.echo(f"{format_count(gone, 'live event')} removed{place}")


async def prune_sessions(log_url: str, names: tuple[str, ...], before_ms: int) -> tuple[int, int]:
    """Prune; how many events went, and from how many sessions. Nothing goes unless all names are there."""
    async with open_cli_log(log_url) as log:  # a log that is not there must not be made
        heads = await find_records(log, names)
    async with open_cli_log(log_url, writable=True) as log:
        gone = [await log.prune(head.session_id, before_ms) for head in heads]
    return sum(gone), sum(count > 0 for count in gone)


COMMANDS = (tail_command, export, import_command, backup, verify, prune)
