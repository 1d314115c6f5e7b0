"""`turnlog assemble`: frames of `blocks` or `turnlog` in, what was said out, as text for people or as JSON.

What comes twice after a reconnect is left out, a `reset` begins anew. It is printed when the stream ends, or
with Ctrl+C. At a message of another dialect what was good before it is printed, then its line is named.
"""

import re
import sys
from typing import BinaryIO

import click
import msgspec
from rich.text import Text

from turnlog.cli.convert import file_argument, numbered
from turnlog.cli.log_access import INTERRUPTED
from turnlog.cli.terminal import console, counted, escape, write_json
from turnlog.client.assembler import KINDS, Assembler
from turnlog.client.blocks import Line, transcript
from turnlog.client.portable_json import Json, read_fields
from turnlog.errors import BadInput, InvalidEvent, TurnlogError, quote
from turnlog.events import CATALOG, Envelope, decode
from turnlog.wire import sse
from turnlog.wire.dialects.blocks import Blocks

SIGNS = frozenset({"[DONE]", "[PING]"})
CONTROL = frozenset({"heartbeat", "reset"})
RAW = re.compile(r"message_|content_block_")
FIELDS = frozenset({b"data", b"id", b"event", b"retry", b""})  # a comment has no name

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
TOOLS = "yellow"  # every other label
WHOLE = frozenset({"agent", "thinking", "error"})  # their text has the colour of their label


@click.command(epilog="Example: turnlog export sess_96cf1 | turnlog convert --to blocks | turnlog assemble")
@file_argument
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object with agents and blocks.")
def assemble(file: BinaryIO, as_json: bool) -> None:
    """Print what was said in FILE, or on stdin.

    FILE holds Server-Sent Events of the dialect `blocks` or `turnlog`, such as `turnlog convert` writes.
    """
    reader = Reader()
    try:
        for number, line in numbered(file):
            reader.take(number, line)
        reader.end()
    except KeyboardInterrupt:
        show(reader.assembler, as_json)
        raise SystemExit(INTERRUPTED) from None
    except (TurnlogError, click.ClickException):
        show(reader.assembler, as_json)
        raise
    show(reader.assembler, as_json)
    if reader.unknown:
        click.echo(f"note: {counted(reader.unknown, 'message')} of unknown types left out", err=True)


class Reader:
    """The lines of a stream in, an assembler with what they say."""

    def __init__(self) -> None:
        self.assembler = Assembler()
        self.unknown = 0
        self._decoder = sse.Decoder()
        self._begun = 0  # the line of the message that is not complete
        self._blocks = Blocks()
        self._place = ("", -1)

    def take(self, number: int, line: bytes) -> None:
        """One line of the stream, with its end."""
        name = line.rstrip(b"\r\n").partition(b":")[0]
        if name not in FIELDS and not (number == 1 and name.startswith(sse.BOM)):
            raise bad(number, "a line of a stream, such as `data: {...}`", line.decode(errors="replace"))
        if name == b"data":
            self._begun = self._begun or number
        try:
            messages = self._decoder.feed(line)
        except BadInput as error:
            raise BadInput(f"line {number}: {error.problem}", error.path) from None
        for message in messages:
            begun, self._begun = self._begun, 0
            self._message(begun, message)

    def end(self) -> None:
        """The stream is over."""
        if self._begun:
            raise click.ClickException(f"line {self._begun}: expected an empty line after it, got the end")
        self.assembler.flush()

    def _message(self, number: int, message: sse.Message) -> None:
        if message.data in SIGNS:
            return
        fields, dropped = read_fields(message.data), self.assembler.dropped
        if fields and "payload" in fields:
            self._envelope(number, message)
        else:
            self.assembler.feed(message.data, message.id)
            self._count(fields or {})
        foreign = fields and RAW.match(str(fields.get("type")))
        if not fields or foreign or self.assembler.dropped > dropped:
            raise bad(number, "a message of `blocks` or `turnlog`", message.data)

    def _count(self, fields: Json) -> None:
        kind = fields.get("type")
        self.unknown += kind not in KINDS and kind not in CONTROL
        if kind == "reset":
            self._blocks, self._place = Blocks(), ("", -1)

    def _envelope(self, number: int, message: sse.Message) -> None:
        """An event, said in blocks; one that came before is left out."""
        envelope = read_envelope(number, message.data)
        session_id, last = self._place
        if envelope.session_id == session_id and envelope.seq <= last:
            return
        if envelope.session_id != session_id:
            self._blocks = Blocks()
        self._place = (envelope.session_id, envelope.seq)
        for text in self._blocks.convert(envelope, CATALOG.payload(envelope)):
            self.assembler.feed(text)


def bad(number: int, wanted: str, text: str) -> click.ClickException:
    """What to say of a line that cannot be used."""
    return click.ClickException(escape(f"line {number}: expected {wanted}, got {quote(text)}"))


def read_envelope(number: int, text: str) -> Envelope:
    """An event of the dialect `turnlog`."""
    try:
        return decode(text.encode())
    except InvalidEvent as error:
        raise InvalidEvent(f"line {number}: {error.problem}", error.path) from None


def show(assembler: Assembler, as_json: bool) -> None:
    """Print everything."""
    assembler.flush()
    if as_json:
        write_json(sys.stdout.buffer, msgspec.json.encode(assembler.as_json()))
        return
    screen = console()
    for place, line in enumerate(transcript(assembler.agents)):
        if place and line.kind == "agent":
            screen.print()
        screen.print(coloured(line), soft_wrap=True)


def coloured(line: Line) -> Text:
    """A part of the transcript: its label in a colour, and its text too where that matters."""
    style = STYLES.get(line.kind, TOOLS)
    label, text = map(harmless, line.parts())
    return Text().append(label, style).append(text, style if line.kind in WHOLE else "")


def harmless(text: str) -> str:
    """Lines of text that cannot control a terminal."""
    return "\n".join(map(escape, text.split("\n")))
