"""`turnlog assemble`: frames of `blocks` or `turnlog` in, a transcript out, as text or as JSON.

Duplicates after a reconnect are left out, and a `reset` starts over. The transcript is printed when the
stream ends, or at Ctrl+C. At a message of another dialect the transcript so far is printed, then the error.
"""

import re
import sys
from typing import BinaryIO

import click
import msgspec
from rich.text import Text

from turnlog.cli.convert import enumerate_lines, file_argument
from turnlog.cli.log_access import INTERRUPT_EXIT_CODE
from turnlog.cli.terminal import escape_controls, format_count, make_console, write_json
from turnlog.cli.transcript import TranscriptLine, build_transcript
from turnlog.client.assembler import BLOCK_HANDLERS, Assembler
from turnlog.client.portable_json import JsonObject, read_fields
from turnlog.errors import BadInput, InvalidEvent, TurnlogError, quote
from turnlog.events import Envelope, decode_envelope
from turnlog.vocabularies import FULL_CATALOG
from turnlog.wire import sse
from turnlog.wire.dialects.blocks import Blocks

CONTROL_DATA = frozenset({"[DONE]", "[PING]"})
CONTROL_TYPES = frozenset({"caught-up", "heartbeat", "reset"})
RAW_TYPE_PATTERN = re.compile(r"message_|content_block_")
SSE_FIELDS = frozenset({b"data", b"id", b"event", b"retry", b""})  # a comment has no name

STYLES = {
    "agent": "bold magenta",
    "user": "green",
    "text": "cyan",
    "thinking": "dim",
    "cited": "blue",
    "image": "blue",
    "meta_files": "cyan",
    "error": "red",
    "end": "magenta",
}
TOOL_STYLE = "yellow"  # of every other kind
FULLY_STYLED_KINDS = frozenset({"agent", "thinking", "error"})  # label and text have the same style


@click.command(
    short_help="Print the transcript of a stream.",
    epilog="Example: turnlog export sess_96cf1 | turnlog convert --to blocks | turnlog assemble",
)
@file_argument
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with agents and blocks.")
def assemble(file: BinaryIO, as_json: bool) -> None:
    """Print the transcript of the stream in FILE, or on stdin.

    FILE has Server-Sent Events of the dialect `blocks` or `turnlog`, as `turnlog convert` writes them.
    """
    reader = StreamLineReader()
    try:
        for number, line in enumerate_lines(file):
            reader.feed_line(number, line)
        reader.finish()
    except KeyboardInterrupt:
        print_transcript(reader.assembler, as_json)
        raise SystemExit(INTERRUPT_EXIT_CODE) from None
    except (TurnlogError, click.ClickException):
        print_transcript(reader.assembler, as_json)
        raise
    print_transcript(reader.assembler, as_json)
    if reader.unknown_count:
        click.echo(
            f"note: {format_count(reader.unknown_count, 'message')} of unknown types left out", err=True
        )


class StreamLineReader:
    """Feeds the lines of a stream to an assembler."""

    def __init__(self) -> None:
        self.assembler = Assembler()
        self.unknown_count = 0
        self._decoder = sse.Decoder()
        self._message_start_line = 0  # the first line of the incomplete message; 0: none
        self._blocks = Blocks()
        self._position = ("", -1)

    def feed_line(self, number: int, line: bytes) -> None:
        """Feed one line, with its line end. Raise `ClickException` or `BadInput` with its number."""
        name = line.rstrip(b"\r\n").partition(b":")[0]
        if name not in SSE_FIELDS and not (number == 1 and name.startswith(sse.BOM)):
            raise line_error(
                number, "a line of a stream, such as `data: {...}`", line.decode(errors="replace")
            )
        if name == b"data":
            self._message_start_line = self._message_start_line or number
        try:
            messages = self._decoder.feed(line)
        except BadInput as error:
            raise BadInput(f"line {number}: {error.problem}", error.path) from None
        for message in messages:
            start_line = self._message_start_line
            self._message_start_line = 0
            self._feed_message(start_line, message)

    def finish(self) -> None:
        """End the stream. Raise `ClickException` if a message is incomplete."""
        if self._message_start_line:
            raise click.ClickException(
                f"line {self._message_start_line}: expected an empty line after it, got the end"
            )
        self.assembler.flush()

    def _feed_message(self, number: int, message: sse.ServerSentEvent) -> None:
        if message.data in CONTROL_DATA:
            return
        fields = read_fields(message.data)
        dropped_before = self.assembler.dropped
        if fields and "payload" in fields:
            self._feed_envelope(number, message)
        else:
            self.assembler.feed(message.data, message.id)
            self._count_unknown(fields or {})

        is_raw_dialect = fields and RAW_TYPE_PATTERN.match(str(fields.get("type")))
        if not fields or is_raw_dialect or self.assembler.dropped > dropped_before:
            raise line_error(number, "a message of `blocks` or `turnlog`", message.data)

    def _count_unknown(self, fields: JsonObject) -> None:
        message_type = fields.get("type")
        if message_type not in BLOCK_HANDLERS and message_type not in CONTROL_TYPES:
            self.unknown_count += 1
        if message_type == "reset":
            self._blocks = Blocks()
            self._position = ("", -1)

    def _feed_envelope(self, number: int, message: sse.ServerSentEvent) -> None:
        envelope = read_envelope(number, message.data)
        session_id, last = self._position
        if envelope.session_id == session_id and envelope.seq <= last:
            return
        if envelope.session_id != session_id:
            self._blocks = Blocks()
        self._position = (envelope.session_id, envelope.seq)
        for text in self._blocks.convert(envelope, FULL_CATALOG.decode_payload(envelope)):
            self.assembler.feed(text)


def line_error(number: int, expected: str, text: str) -> click.ClickException:
    return click.ClickException(escape_controls(f"line {number}: expected {expected}, got {quote(text)}"))


def read_envelope(number: int, text: str) -> Envelope:
    """Decode an event of the dialect `turnlog`. Raise `InvalidEvent` with the number of its line."""
    try:
        return decode_envelope(text.encode())
    except InvalidEvent as error:
        raise InvalidEvent(f"line {number}: {error.problem}", error.path) from None


def print_transcript(assembler: Assembler, as_json: bool) -> None:
    assembler.flush()
    if as_json:
        write_json(sys.stdout.buffer, msgspec.json.encode(assembler.as_json()))
        return
    console = make_console()
    for index, line in enumerate(build_transcript(assembler.agents)):
        if index and line.kind == "agent":
            console.print()
        console.print(style_line(line), soft_wrap=True)


def style_line(line: TranscriptLine) -> Text:
    style = STYLES.get(line.kind, TOOL_STYLE)
    text_style = style if line.kind in FULLY_STYLED_KINDS else ""
    label, text = map(escape_lines, line.parts())
    return Text().append(label, style).append(text, text_style)


def escape_lines(text: str) -> str:
    return "\n".join(map(escape_controls, text.split("\n")))
