"""`turnlog export` and `turnlog import`: sessions and their blobs as lines of JSON.

The data goes to its file or to stdout alone; everything that is said about it goes to stderr.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import click

from turnlog.cli.log_access import damaged_record_message, find_records, format_damage, open_cli_log
from turnlog.cli.terminal import ProgressBar, escape_controls, format_count, write_json
from turnlog.errors import InvalidEvent, StoreError, TurnlogError
from turnlog.log import Log, SessionRecord
from turnlog.log.blobs import encode_blob_lines
from turnlog.log.transfer import export_session, import_lines

MAX_LINE_BYTES = 64 << 20  # no event is that long; a file without line ends must not fill the memory


async def export_sessions(log_url: str, names: Sequence[str], output: BinaryIO) -> None:
    """Write sessions, all if none is named. Nothing is written unless all of them are there."""
    async with open_cli_log(log_url) as log:
        heads = await find_records(log, names)
        for name in [] if names else await log.damaged_sessions():
            click.echo(f"warning: not in the export: {damaged_record_message(name)}", err=True)
        await warn_of_damage(log, heads)
        with ProgressBar("exporting", sum(head.last - head.first + 1 for head in heads), output) as meter:
            for head in heads:
                async for line in export_session(log, head.session_id):
                    write_json(output, line)
                    meter.advance(1)
                await export_blobs(log, head.session_id, output)
        output.flush()


async def export_blobs(log: Log, session_id: str, output: BinaryIO) -> None:
    """Write the blobs of a session, one at a time; one that is damaged is left out, and named on stderr."""
    for name in await log.blob_names(session_id):
        try:
            blob = await log.get_blob(name)
        except StoreError as error:
            click.echo(
                escape_controls(f"warning: lost, and not in the export: {session_id}: {error}"), err=True
            )
            continue
        for line in encode_blob_lines(name, blob):
            write_json(output, line)


async def warn_of_damage(log: Log, records: Sequence[SessionRecord]) -> None:
    """Say what the export cannot hold."""
    names = {head.session_id for head in records}
    for damage in await log.damages():
        if damage.session_id in names:
            click.echo(f"warning: lost, and not in the export: {format_damage(damage)}", err=True)


async def import_sessions(log_url: str, source: BinaryIO) -> str:
    """Take lines in; how much of them was new, in words."""
    added = known = blobs = 0
    async with open_cli_log(log_url, writable=True) as log:
        with ProgressBar("importing", file_size_bytes(source)) as meter:
            try:
                async for batch in import_lines(log, read_bounded_lines(source, meter)):
                    added, known, blobs = (
                        added + batch.new_events,
                        known + batch.known_events,
                        blobs + batch.new_blobs,
                    )
            except TurnlogError as error:
                if not added:
                    raise
                text = f"{error}; {format_count(added, 'event')} before it stay added"
                raise click.ClickException(escape_controls(text)) from error
    stored = f", {format_count(blobs, 'blob')} stored" if blobs else ""
    return f"{format_count(added, 'event')} added, {known} known already{stored}"


def read_bounded_lines(source: BinaryIO, progress: ProgressBar | None = None) -> Iterator[bytes]:
    """The lines of a file, none of them endless."""
    number = 1
    while line := source.readline(MAX_LINE_BYTES):
        if len(line) == MAX_LINE_BYTES:
            raise InvalidEvent(f"line {number}: expected a line of less than {MAX_LINE_BYTES >> 20} MiB")
        yield line
        if progress:
            progress.advance(len(line))
        number += 1


def file_size_bytes(source: BinaryIO) -> int | None:
    """How long a file is; of a pipe nobody knows."""
    try:
        status = os.fstat(source.fileno())
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
