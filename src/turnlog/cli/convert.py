"""`turnlog convert`: the lines of a log in, frames of a dialect out, event by event.

A file is a stream, like `GET /api/events`: its frames have ids, which are bare seqs because an export has no
epoch, and no `[DONE]` follows. With `--turn` it is a response: the frames of one turn, and what ends it
(protocol section 4). Sessions come one after the other, each in the order of its seqs. What was good before a
bad line is written.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import BinaryIO

import click

from turnlog.cli.log_access import INTERRUPT_EXIT_CODE
from turnlog.cli.serve import load_app
from turnlog.cli.terminal import escape_controls, escape_json
from turnlog.cli.transfer import read_bounded_lines
from turnlog.errors import InvalidEvent
from turnlog.events import CATALOG, Catalog, Envelope
from turnlog.log.blobs import BlobLine
from turnlog.log.transfer import SessionLine, decode_export_line
from turnlog.wire import sse
from turnlog.wire.dialects.base import DEFAULT_OPTIONS, DONE, BlocksOptions, DialectFactory
from turnlog.wire.dialects.registry import DIALECT_NAMES, DialectRequest, DialectWithHistory, encode_frames

file_argument = click.argument(
    "file", type=click.File("rb"), default="-", callback=lambda context, option, value: require_input(value)
)


def require_input(file: BinaryIO) -> BinaryIO:
    """Refuse to wait for somebody to type it."""
    if file.isatty():
        raise click.UsageError("expected a FILE, or lines on stdin")
    return file


def enumerate_lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """The lines of a file and their numbers."""
    return enumerate(read_bounded_lines(file), 1)


@click.command(epilog="Example: turnlog export sess_96cf1 | turnlog convert --to blocks")
@file_argument
@click.option("--to", "name", metavar="DIALECT", required=True, help=f"One of {', '.join(DIALECT_NAMES)}.")
@click.option("--app", metavar="MODULE:APP", help="An application, for its own events and dialects too.")
@click.option("--turn", metavar="TRACE", help="Only this turn, as a response: with what ends it.")
@click.option(
    "--stream-meta-history-and-tool-results/--no-stream-meta-history-and-tool-results",
    default=DEFAULT_OPTIONS.stream_meta_history_and_tool_results,
    help="Tell histories, and a summary at the end of each agent.",
)
@click.option(
    "--stream-tool-results/--no-stream-tool-results",
    default=DEFAULT_OPTIONS.stream_tool_results,
    show_default=True,
    help="Tell the results of the provider's own tools.",
)
def convert_command(file: BinaryIO, name: str, app: str | None, turn: str | None, **options: bool) -> None:
    """Write the events of FILE, or of stdin, as Server-Sent Events.

    FILE holds lines of JSON, as `turnlog export` and `turnlog tail --json` write them.
    """
    loaded = load_app(app) if app else None
    wanted = find_dialect(name, BlocksOptions(**options), loaded.dialects if loaded else {})
    converter = Converter(wanted, turn, loaded.catalog if loaded else CATALOG)
    output = sys.stdout.buffer
    try:
        for number, line in enumerate_lines(file):
            output.write(converter.convert_line(number, line))
            output.flush()
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPT_EXIT_CODE) from None
    output.write(converter.close())


def find_dialect(name: str, options: BlocksOptions, own: Mapping[str, DialectFactory]) -> DialectRequest:
    """A dialect of Turnlog, or an application's own."""
    names = (*DIALECT_NAMES, *own)
    if name not in names:
        raise click.BadParameter(f"{name!r} is not one of {', '.join(names)}.", param_hint="--to")
    return DialectRequest(name, options, own.get(name))


class Converter:
    """Lines of sessions in, frames out; every session begins anew."""

    def __init__(self, request: DialectRequest, turn: str | None, catalog: Catalog = CATALOG) -> None:
        self._request = request
        self._turn = turn
        self._catalog = catalog
        self._has_turn_events = False
        self._session = ""
        self._last = -1
        self._dialect: DialectWithHistory | None = None
        self._escape: Callable[[bytes], bytes] = escape_json if sys.stdout.isatty() else bytes

    def convert_line(self, number: int, text: bytes) -> bytes:
        """The frames of one line."""
        line = text.strip()
        item = decode_export_line(line, number) if line else None
        if isinstance(item, BlobLine):
            return b""  # a dialect names blobs by their address
        if item and (isinstance(item, SessionLine) or item.session_id != self._session):
            self._begin_session(item.session_id)
        if not isinstance(item, Envelope):
            return b""
        if item.seq <= self._last:
            raise InvalidEvent(f"line {number}: expected a seq after {self._last}, got {item.seq}", "$.seq")
        self._last = item.seq
        messages = [self._escape(message) for message in self._messages(item, line)]
        return b"".join(encode_frames(messages, item.seq))

    def close(self) -> bytes:
        """What ends a response; a stream has no end."""
        if self._turn is None:
            return b""
        if not self._has_turn_events:
            raise click.ClickException(escape_controls(f"no event of turn {self._turn}"))
        return b"".join(map(sse.encode, self._dialect.close() if self._dialect else [DONE]))

    def _begin_session(self, session_id: str) -> None:
        self._session, self._last = session_id, -1
        self._dialect = None if self._request.name == "turnlog" else DialectWithHistory(self._request)

    def _messages(self, envelope: Envelope, line: bytes) -> list[bytes]:
        """What one event becomes; one of another turn is only remembered."""
        wanted = self._turn in (None, envelope.trace_id)
        self._has_turn_events |= wanted
        if self._dialect is None:
            return [line] if wanted else []
        payload = self._catalog.decode_payload(envelope)
        if wanted:
            return self._dialect.convert(envelope, payload)
        self._dialect.history.apply(envelope, payload)
        return []
