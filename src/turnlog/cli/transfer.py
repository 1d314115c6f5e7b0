"""`turnlog export` and `turnlog import`: sessions and their blobs as lines of JSON.

Data is written to a file or to stdout, messages to stderr.
"""

import os
import stat
from collections.abc import Awaitable, Iterator, Sequence
from typing import BinaryIO

import click

from turnlog.cli.log_access import damaged_record_message, find_records, format_damage, open_cli_log
from turnlog.cli.terminal import ProgressBar, escape_controls, format_count, write_json
from turnlog.errors import InvalidEvent, StoreError, TurnlogError
from turnlog.log import Blob, Log, SessionRecord
from turnlog.log.blobs import encode_blob_lines
from turnlog.log.transfer import export_session, import_lines

MAX_LINE_BYTES = 64 << 20  # longer than any event; a file without line ends must not fill the memory


async def export_sessions(
    log_url: str, names: Sequence[str], output: BinaryIO, *, private: bool = False
) -> None:
    """Write sessions, all if there are no names. Nothing is written if one of them does not exist.

    With `private` their private blobs are written too.
    """
    async with open_cli_log(log_url) as log:
        records = await find_records(log, names)
        if not names:
            for session_id in await log.damaged_sessions():
                click.echo(f"warning: not in the export: {damaged_record_message(session_id)}", err=True)
        await warn_of_damage(log, records)

        event_count = sum(record.last - record.first + 1 for record in records)
        with ProgressBar("exporting", event_count, output) as progress:
            for record in records:
                async for line in export_session(log, record.session_id):
                    write_json(output, line)
                    progress.advance(1)
                await export_blobs(log, record.session_id, output)
                if private:
                    await export_private_blobs(log, record.session_id, output)
        output.flush()


async def export_blobs(log: Log, session_id: str, output: BinaryIO) -> None:
    """Write the blobs of a session, one at a time. Damaged blobs are left out and reported on stderr."""
    for name in await log.blob_names(session_id):
        await write_blob(name, log.get_blob(name), output)


async def export_private_blobs(log: Log, session_id: str, output: BinaryIO) -> None:
    for name in await log.private_blob_names(session_id):
        await write_blob(name, log.get_private_blob(session_id, name), output)


async def write_blob(name: str, reading: Awaitable[Blob], output: BinaryIO) -> None:
    try:
        blob = await reading
    except StoreError as error:
        session_id = name.partition("/")[0]
        warning = f"warning: lost, and not in the export: {session_id}: {error}"
        click.echo(escape_controls(warning), err=True)
        return
    for line in encode_blob_lines(name, blob):
        write_json(output, line)


async def warn_of_damage(log: Log, records: Sequence[SessionRecord]) -> None:
    session_ids = {record.session_id for record in records}
    for damage in await log.damages():
        if damage.session_id in session_ids:
            click.echo(f"warning: lost, and not in the export: {format_damage(damage)}", err=True)


async def import_sessions(log_url: str, source: BinaryIO) -> str:
    """Import lines. Return a summary. Events before a wrong line stay imported."""
    added = known = blobs = 0
    async with open_cli_log(log_url, writable=True) as log:
        with ProgressBar("importing", file_size_bytes(source)) as progress:
            try:
                async for counts in import_lines(log, read_bounded_lines(source, progress)):
                    added += counts.new_events
                    known += counts.known_events
                    blobs += counts.new_blobs
            except TurnlogError as error:
                if not added:
                    raise
                text = f"{error}; {format_count(added, 'event')} before it were added"
                raise click.ClickException(escape_controls(text)) from error
    summary = f"{format_count(added, 'event')} added, {known} known already"
    if blobs:
        summary += f", {format_count(blobs, 'blob')} stored"
    return summary


def read_bounded_lines(source: BinaryIO, progress: ProgressBar | None = None) -> Iterator[bytes]:
    """Yield the lines of a file. Raise `InvalidEvent` for one above `MAX_LINE_BYTES`."""
    number = 1
    while line := source.readline(MAX_LINE_BYTES):
        if len(line) == MAX_LINE_BYTES:
            raise InvalidEvent(f"line {number}: expected a line of less than {MAX_LINE_BYTES >> 20} MiB")
        yield line
        if progress:
            progress.advance(len(line))
        number += 1


def file_size_bytes(source: BinaryIO) -> int | None:
    """Return the size of a file; None for a pipe."""
    try:
        status = os.fstat(source.fileno())
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
