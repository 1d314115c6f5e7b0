"""`turnlog export` and `turnlog import`: sessions and their blobs as lines of JSON.

The data goes to its file or to stdout alone; everything that is said about it goes to stderr.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from typing import BinaryIO

import click

from turnlog.cli.log_access import broken_line, damage_line, named_heads, opened
from turnlog.cli.terminal import Meter, counted, escape, write_json
from turnlog.errors import InvalidEvent, StoreError, TurnlogError
from turnlog.log import Head, Log
from turnlog.log.blobs import blob_lines
from turnlog.log.transfer import export_session, import_lines

LINE_BYTES = 64 << 20  # no event is that long; a file without line ends must not fill the memory


async def export_sessions(log_url: str, names: Sequence[str], output: BinaryIO) -> None:
    """Write sessions, all if none is named. Nothing is written unless all of them are there."""
    async with opened(log_url) as log:
        heads = await named_heads(log, names)
        for name in [] if names else await log.broken():
            click.echo(f"warning: not in the export: {broken_line(name)}", err=True)
        await warn_of_losses(log, heads)
        with Meter("exporting", sum(head.last - head.first + 1 for head in heads), output) as meter:
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
            click.echo(escape(f"warning: lost, and not in the export: {session_id}: {error}"), err=True)
            continue
        for line in blob_lines(name, blob):
            write_json(output, line)


async def warn_of_losses(log: Log, heads: Sequence[Head]) -> None:
    """Say what the export cannot hold."""
    names = {head.session_id for head in heads}
    for damage in await log.damages():
        if damage.session_id in names:
            click.echo(f"warning: lost, and not in the export: {damage_line(damage)}", err=True)


async def import_sessions(log_url: str, source: BinaryIO) -> str:
    """Take lines in; how much of them was new, in words."""
    added = known = blobs = 0
    async with opened(log_url, writable=True) as log:
        with Meter("importing", size_bytes(source)) as meter:
            try:
                async for batch in import_lines(log, bounded_lines(source, meter)):
                    added, known, blobs = added + batch.added, known + batch.known, blobs + batch.blobs
            except TurnlogError as error:
                if not added:
                    raise
                text = f"{error}; {counted(added, 'event')} before it stay added"
                raise click.ClickException(escape(text)) from error
    stored = f", {counted(blobs, 'blob')} stored" if blobs else ""
    return f"{counted(added, 'event')} added, {known} known already{stored}"


def bounded_lines(source: BinaryIO, meter: Meter | None = None) -> Iterator[bytes]:
    """The lines of a file, none of them endless."""
    number = 1
    while line := source.readline(LINE_BYTES):
        if len(line) == LINE_BYTES:
            raise InvalidEvent(f"line {number}: expected a line of less than {LINE_BYTES >> 20} MiB")
        yield line
        if meter:
            meter.advance(len(line))
        number += 1


def size_bytes(source: BinaryIO) -> int | None:
    """How long a file is; of a pipe nobody knows."""
    try:
        status = os.fstat(source.fileno())
    except OSError:
        return None
    return status.st_size if stat.S_ISREG(status.st_mode) else None
