"""Commands on a log: `tail`, `export`, `import`, `backup`, `verify`, `prune`.

All but `import` and `prune` only read, and work beside a running server. Each command is its options and one
piece of work; what it prints about the work is here, what takes longer is in a module of its own.
"""

import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from turnlog.cli.log_access import LOG, check_exists, damage_line, named_heads, opened, run
from turnlog.cli.serve import load_app
from turnlog.cli.tail import Show, Source, followed, json_lines, readable_lines, stored, tail
from turnlog.cli.terminal import counted
from turnlog.cli.transfer import export_sessions, import_sessions
from turnlog.errors import StoreError
from turnlog.events.catalog import Misfit
from turnlog.ids import now_ms
from turnlog.log import Damage, Head, Log, sqlite_path
from turnlog.log.blobs import missing_blobs
from turnlog.log.filter import Choice
from turnlog.log.sqlite.backup import back_up

if TYPE_CHECKING:
    from turnlog import App

SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
LAST_SEQ = (1 << 53) - 1  # no event has a higher one

log_option = click.option("--log", "log_url", callback=lambda context, option, value: lasting(value), **LOG)


def lasting(log_url: str) -> str:
    """Refuse a log that no other process can see."""
    if log_url.startswith("memory:"):
        raise click.BadParameter("a log in memory is seen by its own process only")
    return log_url


def milliseconds(age: str) -> int:
    """A length of time such as `30d`."""
    found = re.fullmatch(r"(\d{1,12})([smhdw])", age, re.ASCII)
    if found is None:
        raise click.BadParameter(f"expected a number and one of s, m, h, d, w, such as 30d; got {age!r}")
    return int(found[1]) * SECONDS[found[2]] * 1000


@click.command("tail", epilog="Example: turnlog tail sess_96cf1 --follow --type tool")
@click.argument("session", required=False)
@log_option
@click.option("--after", type=click.IntRange(-1, LAST_SEQ), default=-1, help="Begin after this seq.")
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
    source: Source = followed if follow else stored
    show: Show = json_lines() if as_json else readable_lines()
    if not run(tail(log_url, session, after, source, Choice(types, depth), show)):
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
    run(export_sessions(log_url, names, output))


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
    click.echo(run(import_sessions(log_url, file)))


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
    check_exists(log_url)
    heads = back_up(sqlite_path(log_url), target)
    events = counted(sum(head.last + 1 for head in heads), "event")
    click.echo(f"{counted(len(heads), 'session')}, {events} copied to {target}")


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
    heads, damages = run(check(log_url))
    for damage in damages:
        click.echo(damage_line(damage))
    misfits = run(misfits_of(log_url, heads, load_app(app))) if app and not damages else []
    for head, misfit in misfits:
        events = f"{counted(misfit.count, 'event')} {misfit.type}"
        click.echo(f"{head.session_id}: {events} of {app} do not fit the class: {misfit.problem}")
    if damages or misfits:
        context.exit(1)
    events = counted(sum(head.last + 1 for head in heads), "event")
    click.echo(f"everything is whole: {counted(len(heads), 'session')}, {events}")


async def misfits_of(log_url: str, heads: Sequence[Head], app: "App") -> list[tuple[Head, Misfit]]:
    """The stored events of an application that its classes do not take, by session and type."""
    found: list[tuple[Head, Misfit]] = []
    async with opened(log_url) as log:
        for head in heads:
            if head.app == app.name:
                stored = [pair async for pair in stored_events(log, head.session_id)]
                found += [(head, misfit) for misfit in app.catalog.misfits(stored)]
    return found


async def stored_events(log: Log, session_id: str) -> AsyncIterator[tuple[str, bytes]]:
    """The types and payloads of a session's durable events."""
    after = -1
    while page := await log.read(session_id, after, origin=-1):
        for envelope in page.envelopes():
            yield envelope.type, bytes(envelope.payload)
        after = page.last


async def check(log_url: str) -> tuple[list[Head], list[Damage]]:
    """The sessions, and all that is lost of them: known before, and found now."""
    async with opened(log_url) as log:
        found = await log.verify()
        if found:  # what is damaged may not be asked for more
            return [], list(dict.fromkeys([*await known_damages(log), *found]))
        heads, lost = await log.sessions(), await log.damages()
        return heads, [*lost, *[damage async for damage in missing_blobs(log, heads)]]


async def known_damages(log: Log) -> list[Damage]:
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
    callback=lambda context, option, value: milliseconds(value),
    help="Such as 30d; the units are s, m, h, d, w.",
)
def prune(names: tuple[str, ...], log_url: str, age_ms: int) -> None:
    """Remove old live events of finished blocks and calls.

    Live events are what was streamed piece by piece. What was said, called and answered stays whole.
    """
    gone, touched = run(prune_sessions(log_url, names, max(0, now_ms() - age_ms)))
    place = f" from {counted(touched, 'session')}" if gone else ""
    click.echo(f"{counted(gone, 'live event')} removed{place}")


async def prune_sessions(log_url: str, names: tuple[str, ...], before_ms: int) -> tuple[int, int]:
    """Prune; how many events went, and from how many sessions. Nothing goes unless all names are there."""
    async with opened(log_url) as log:  # a log that is not there must not be made
        heads = await named_heads(log, names)
    async with opened(log_url, writable=True) as log:
        gone = [await log.prune(head.session_id, before_ms) for head in heads]
    return sum(gone), sum(count > 0 for count in gone)


COMMANDS = (tail_command, export, import_command, backup, verify, prune)
