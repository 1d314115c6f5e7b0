"""`turnlog convert`: lines of an export in, frames of a dialect out, event by event.

The output is a stream like `GET /api/events`: frames have ids, which are bare seqs because an export has no
epoch, and no `[DONE]` follows. With `--turn` it is a response: the frames of one turn, then the frames that
end it (protocol section 4). Sessions follow each other, each in the order of its seqs. The frames before a
wrong line are written.
"""

import sys
from collections.abc import Callable, Iterator
from typing import Any, BinaryIO

import click

from turnlog.cli.log_access import INTERRUPT_EXIT_CODE
from turnlog.cli.serve import load_app
from turnlog.cli.terminal import escape_controls, escape_json
from turnlog.cli.transfer import read_bounded_lines
from turnlog.errors import InvalidEvent
from turnlog.events import Catalog, Envelope
from turnlog.log.blobs import BlobLine
from turnlog.log.transfer import SessionLine, decode_export_line, with_full_event_id
from turnlog.vocabularies import DIALECTS, FULL_CATALOG
from turnlog.wire import sse
from turnlog.wire.dialects.base import DEFAULT_OPTIONS, DONE, DialectOptions
from turnlog.wire.dialects.registry import DialectRegistry, DialectRequest, DialectWithHistory

file_argument = click.argument(
    "file", type=click.File("rb"), default="-", callback=lambda context, option, value: require_input(value)
)


def require_input(file: BinaryIO) -> BinaryIO:
    if file.isatty():  # without a FILE or a pipe the command would wait for typed lines
        raise click.UsageError("expected a FILE, or lines on stdin")
    return file


def enumerate_lines(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    return enumerate(read_bounded_lines(file), 1)


@click.command(
    short_help="Convert exported events to a dialect.",
    epilog="Example: turnlog export sess_96cf1 | turnlog convert --to blocks",
)
@file_argument
@click.option("--to", "name", metavar="DIALECT", required=True, help=f"One of {', '.join(DIALECTS.names)}.")
@click.option("--app", metavar="MODULE:APP", help="Include the events and dialects of this application.")
@click.option("--turn", metavar="TRACE", help="Convert only this turn, as a response with its end.")
@click.option(
    "--stream-meta-history-and-tool-results/--no-stream-meta-history-and-tool-results",
    default=DEFAULT_OPTIONS.stream_meta_history_and_tool_results,
    help="Include histories, and a summary at the end of each agent.",
)
@click.option(
    "--stream-tool-results/--no-stream-tool-results",
    default=DEFAULT_OPTIONS.stream_tool_results,
    show_default=True,
    help="Include the results of the provider's own tools.",
)
@click.option(
    "--citations",
    type=click.Choice(["chunks", "whole"]),
    default=DEFAULT_OPTIONS.citations,
    show_default=True,
    help="Cut large citations into messages of bounded size, or not.",
)
def convert_command(file: BinaryIO, name: str, app: str | None, turn: str | None, **options: Any) -> None:
    """Convert the events of FILE, or of stdin, to Server-Sent Events of a dialect.

    FILE has lines of JSON, as `turnlog export` and `turnlog tail --json` write them.
    """
    loaded_app = load_app(app) if app else None
    request = find_dialect(name, DialectOptions(**options), loaded_app.dialects if loaded_app else DIALECTS)
    converter = Converter(request, turn, loaded_app.catalog if loaded_app else FULL_CATALOG)
    output = sys.stdout.buffer
    try:
        for number, line in enumerate_lines(file):
            output.write(converter.convert_line(number, line))
            output.flush()
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPT_EXIT_CODE) from None
    output.write(converter.close())


def find_dialect(name: str, options: DialectOptions, dialects: DialectRegistry) -> DialectRequest:
    if name not in dialects.names:
        raise click.BadParameter(f"{name!r} is not one of {', '.join(dialects.names)}.", param_hint="--to")
    return dialects.request(name, options)


class Converter:
    """Converts lines of sessions to frames. Each session has its own dialect state."""

    def __init__(self, request: DialectRequest, turn: str | None, catalog: Catalog = FULL_CATALOG) -> None:
        self._request = request
        self._turn = turn
        self._catalog = catalog
        self._has_turn_events = False
        self._session = ""
        self._last = -1
        self._dialect: DialectWithHistory | None = None
        self._escape: Callable[[bytes], bytes] = escape_json if sys.stdout.isatty() else bytes

    def convert_line(self, number: int, text: bytes) -> bytes:
        """Return the frames of one line. Raise `InvalidEvent` with its number."""
        line = with_full_event_id(text.strip())
        if not line:
            return b""
        item = decode_export_line(line, number)
        if isinstance(item, BlobLine):
            return b""  # dialects refer to blobs by URL
        if isinstance(item, SessionLine):
            self._begin_session(item.session_id)
            return b""

        envelope = item
        if envelope.session_id != self._session:
            self._begin_session(envelope.session_id)
        if envelope.seq <= self._last:
            problem = f"expected a seq after {self._last}, got {envelope.seq}"
            raise InvalidEvent(f"line {number}: {problem}", "$.seq")
        self._last = envelope.seq
        messages = [self._escape(message) for message in self._messages(envelope, line)]
        return b"".join(self._request.framing.encode_frames(messages, envelope.seq, None))

    def close(self) -> bytes:
        if self._turn is None:
            return b""
        if not self._has_turn_events:
            raise click.ClickException(escape_controls(f"no event of turn {self._turn}"))
        messages = self._dialect.close() if self._dialect else [DONE]
        return b"".join(map(sse.encode, messages))

    def _begin_session(self, session_id: str) -> None:
        self._session = session_id
        self._last = -1
        # The dialect `turnlog` is the stored line itself.
        self._dialect = None if self._request.name == "turnlog" else DialectWithHistory(self._request)

    def _messages(self, envelope: Envelope, line: bytes) -> list[bytes]:
        is_in_turn = self._turn in (None, envelope.trace_id)
        self._has_turn_events |= is_in_turn
        if self._dialect is None:
            return [line] if is_in_turn else []

        payload = self._catalog.decode_payload(envelope)
        if is_in_turn:
            return self._dialect.convert(envelope, payload)
        self._dialect.history.apply(envelope, payload)
        return []
