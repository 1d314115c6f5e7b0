"""`turnlog parse`: what a model sent, as a log. A filter: each event is written as soon as it is decided.

Input is text with inline tags, the stream of the Messages API (its SSE body, or one raw event per line), or
the stdout of a Claude CLI process, whose texts may have markers too. Out come the lines that `turnlog import`
takes. A message that calls tools or pauses is a step, and the next one goes on with the same agent; any other
ends its agent, and the next one begins a turn; a CLI process says itself which agents and turns there are.
Ids follow from the session's, so the same input in the same session gives the same events, but for the time.
Input that breaks off or is wrong is closed with what there was, then the command fails. A conversation that
ended with an error is none of these: its error is an event like the others.
"""

import codecs
import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import chain, count
from typing import Any, BinaryIO

import click
import msgspec

import turnlog
from turnlog.cli.serve import load_app
from turnlog.cli.terminal import escape, write_json
from turnlog.errors import BadInput
from turnlog.events import (
    CORE,
    TEAM,
    AgentEnd,
    AgentStart,
    AgentUsage,
    Catalog,
    Event,
    Origin,
    ParseReject,
    Payload,
    Scope,
    SessionError,
    ToolCall,
    ToolResult,
    Unknown,
    Usage,
    stamp,
)
from turnlog.events.agent import StopReason
from turnlog.events.payload import SessionId
from turnlog.events.strict_json import decode
from turnlog.ids import new_id, now_ms
from turnlog.log.transfer import SessionLine
from turnlog.parse import AgentStreamParser, CliParser, MessagesParser, Reply, Said
from turnlog.parse.blocks import Found
from turnlog.parse.claude.lines import CLI
from turnlog.parse.claude.parser import EXITED
from turnlog.parse.inline.markers import TagsAndMarkers
from turnlog.parse.messages_api import CUT
from turnlog.parse.reply import Tags, backend, tags_and_markers_of, tags_of
from turnlog.state.tree import cancelled
from turnlog.wire.dialects.base import DONE
from turnlog.wire.sse import LIMIT_BYTES, Decoder

PIECE_BYTES = 1 << 16
NAME = "Assistant"
UNANSWERED = "The answer is not part of the input."
SYSTEM = frozenset({AgentStart, AgentEnd, AgentUsage, SessionError, ParseReject})


class Writer:
    """Writes events as the lines of one session."""

    def __init__(self, output: BinaryIO, session_id: str, app: "turnlog.App | None") -> None:
        self._output, self._session_id = output, session_id
        own = [app.vocabulary] if app and app.vocabulary else []
        self._app, self._catalog = app.name if app else "", Catalog(CORE, TEAM, *own, CLI)
        self._numbers, self._seq = count(), 0

    def new_id(self, prefix: str) -> str:
        """The next id: it follows from the session and its number."""
        text = f"{self._session_id}:{next(self._numbers)}"
        return prefix + hashlib.sha256(text.encode()).hexdigest()[:32]

    def write(self, payloads: Iterable[Payload], scope: Scope) -> None:
        """Append a batch."""
        self.append(self._event(payload, scope) for payload in payloads)

    def tell(self, saids: Iterable[Said]) -> None:
        """Append what a process said."""
        self.append(self._built(said.payload, said.scope, said.origin) for said in saids)

    def append(self, events: Iterable[Event]) -> None:
        """Write events as lines, after that of their session."""
        if self._seq == 0:
            session = SessionLine(self._session_id, self._app, created_ms=now_ms())
            write_json(self._output, msgspec.json.encode(session))
        for event in events:
            write_json(
                self._output,
                stamp(event, session_id=self._session_id, seq=self._seq, ts_ms=now_ms()),
            )
            self._seq += 1
        self._output.flush()

    def _event(self, payload: Payload, scope: Scope) -> Event:
        own = type(payload) in SYSTEM or (isinstance(payload, ToolResult) and payload.kind is None)
        return self._built(payload, scope, "system" if own else "model")

    def _built(self, payload: Payload, scope: Scope, origin: Origin) -> Event:
        event_id = self.new_id("evt_")
        if isinstance(payload, Found):  # under a name that no declared event has
            body = msgspec.json.encode(payload.data)
            unknown = Unknown(msgspec.Raw(body))
            kind = f"app.{payload.type}"
            return Event(type=kind, id=event_id, payload=unknown, body=body, origin="model", scope=scope)
        return self._catalog.event(payload, id=event_id, origin=origin, scope=scope)


class Telling:
    """The agents and turns of an input, in the order of its messages."""

    def __init__(self, writer: Writer, process_tags: Tags) -> None:
        self._writer, self._process_tags = writer, process_tags
        self._scope: Scope | None = None  # of the agent that is open
        self._calls: dict[str, ToolCall] = {}
        self._steps = 0
        self._usage = Usage(input_tokens=0, output_tokens=0)
        self.problems: list[str] = []

    def begin(self, model: str | None = None) -> None:
        """A message begins: of the agent that is open, or of a new one."""
        if self._scope is not None:
            self._answer(call for call in self._calls.values() if call.executor != "provider")
            return
        trace_id, agent_id = self._writer.new_id("tr_"), self._writer.new_id("agt_")
        self._scope = Scope(trace_id=trace_id, agent_id=agent_id, agent_name=NAME, depth=0)
        self._steps, self._usage = 0, Usage(input_tokens=0, output_tokens=0)
        self.say([AgentStart(name=NAME, via="prompt", model=model)])

    def say(self, payloads: list[Payload]) -> None:
        """Events of the agent that is open."""
        for payload in payloads:
            if isinstance(payload, ToolCall):
                self._calls[payload.call_id] = payload
            elif isinstance(payload, ToolResult):
                self._calls.pop(payload.call_id, None)
        if payloads:
            self._writer.write(payloads, self._scope or Scope())

    def process(self) -> CliParser:
        """A parser of what a process prints; it begins and ends agents itself."""
        return CliParser(self._writer.new_id, tags=self._process_tags)

    def told(self, saids: list[Said]) -> None:
        """What a process said; that it stopped in the middle of a turn is a problem of the input."""
        errors = [said.payload for said in saids if isinstance(said.payload, SessionError)]
        self.problems += [error.message for error in errors if error.code == EXITED.code]
        if saids:
            self._writer.tell(saids)

    def finish(self, reply: Reply) -> None:
        """A message is over: its agent goes on, or ends as the message did."""
        self._steps += 1
        self._usage = added(self._usage, reply.usage)
        if reply.model:
            self.say([AgentUsage(model=reply.model, usage=reply.usage)])
        if not reply.complete:
            problem = reply.error or CUT
            if problem is CUT:
                self.problems.append(problem.message)
            self.say([SessionError(code=problem.code, message=problem.message)])
            self.end("error")
        elif reply.stop_reason != "tool_use" and reply.stop_reason != "pause_turn":
            self.end(reply.stop_reason or "end_turn", reply.said)

    def end(self, reason: StopReason, result: str | None = None) -> None:
        """The agent is over; what it asked for and did not get is answered first."""
        if self._scope is not None:
            self._answer(self._calls.values())
            usage = self._usage if self._usage.input_tokens or self._usage.output_tokens else None
            self.say([AgentEnd(stop_reason=reason, steps=self._steps, usage=usage, result=result)])
            self._scope = None

    def _answer(self, calls: Iterable[ToolCall]) -> None:
        self.say([cancelled(call, UNANSWERED) for call in calls])


def added(one: Usage, other: Usage) -> Usage:
    """The usage of both."""
    names = Usage.__struct_fields__
    return Usage(**{name: getattr(one, name) + getattr(other, name) for name in names})


def tell_tags(pieces: Iterator[bytes], telling: Telling, reply: Callable[[], Reply]) -> None:
    """A text: one message of one agent."""
    decoder, said = codecs.getincrementaldecoder("utf-8")(errors="replace"), reply()
    telling.begin()
    for piece in pieces:
        telling.say(said.text(decoder.decode(piece)))
    telling.say([*said.text(decoder.decode(b"", final=True)), *said.done("end_turn")])
    telling.finish(said)


def tell_messages(pieces: Iterator[bytes], telling: Telling, reply: Callable[[], Reply]) -> None:
    """The stream of the Messages API: its messages one after the other."""
    parser: MessagesParser | None = None
    try:
        for event in raw_events(pieces):
            parser = tell_event(event, parser, telling, reply)
    finally:
        if parser is not None:
            close(parser, telling)
            telling.end("cancelled")
    if parser is None:
        raise BadInput("expected the events of a message, got none", "input")


def tell_event(
    event: Any, parser: MessagesParser | None, telling: Telling, reply: Callable[[], Reply]
) -> MessagesParser | None:
    """One raw event; the parser of the message it belongs to."""
    kind = event.get("type") if isinstance(event, dict) else None
    if parser is None and kind == "ping":
        return None
    if parser is None or kind == "message_start":
        if parser is not None:
            close(parser, telling)
        parser = MessagesParser(reply())
        batch = parser.feed(event)
        telling.begin(parser.reply.model)
        late = False
    else:
        late = parser.over
        batch = parser.feed(event)
    telling.say(batch)
    if parser.over and not late:
        telling.finish(parser.reply)
    return parser


def close(parser: MessagesParser, telling: Telling) -> None:
    """A message will not go on; if it was not over, it failed."""
    if not parser.over:
        telling.say(parser.flush())
        telling.finish(parser.reply)


def tell_process(pieces: Iterator[bytes], telling: Telling, _: Callable[[], Reply]) -> None:
    """The stdout of a Claude CLI process: it says itself who speaks."""
    parser = telling.process()
    try:
        for piece in pieces:
            telling.told(parser.feed(piece))
    finally:
        telling.told(parser.flush())


def raw_events(pieces: Iterator[bytes]) -> Iterator[Any]:
    """The events of an SSE body, or of lines of JSON: the first character says which."""
    head = b""
    for piece in pieces:
        head += piece
        if text := head.removeprefix(b"\xef\xbb\xbf").lstrip():
            texts = json_lines if text.startswith((b"{", b"[")) else sse_data
            for number, body in enumerate(texts(chain([head], pieces)), 1):
                yield raw_event(body, number)
            return
        head = head[-PIECE_BYTES:]


def raw_event(body: bytes, number: int) -> Any:
    """One event, or `BadInput` that says which was wrong."""
    try:
        return decode(body, object, LIMIT_BYTES)
    except BadInput as error:
        raise BadInput(f"event {number}: {error.problem}", error.path) from None


def sse_data(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The data of each message of an SSE body; the `[DONE]` that gateways add says nothing."""
    decoder = Decoder()
    for piece in pieces:
        bodies = (message.data.encode() for message in decoder.feed(piece))
        yield from (body for body in bodies if body != DONE)


def json_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The lines that are not blank; none is endless."""
    held: list[bytes] = []
    size = 0
    for piece in pieces:
        *ended, rest = piece.split(b"\n")
        for line in ended:
            yield from filter(None, [b"".join([*held, line]).strip()])
            held, size = [], 0
        held.append(rest)
        size += len(rest)
        if size > LIMIT_BYTES:
            raise BadInput(f"expected a line of at most {LIMIT_BYTES} bytes, got more", "input")
    yield from filter(None, [b"".join(held).strip()])


SOURCES: dict[str, Callable[[Iterator[bytes], Telling, Callable[[], Reply]], None]] = {
    "tags": tell_tags,
    "anthropic": tell_messages,
    "claude-cli": tell_process,
}


def session_name(_: click.Context, __: click.Parameter, value: str | None) -> str:
    """A session id, the given one or a new one."""
    try:
        return msgspec.convert(value or new_id("sess_"), SessionId)
    except msgspec.ValidationError:
        raise click.BadParameter("expected `sess_` and 1 to 64 of A-Z a-z 0-9 _ -") from None


@click.command(
    short_help="Turn the output of a model into events.",
    epilog="Example: turnlog parse --source claude-cli run.jsonl | turnlog import",
)
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--source", type=click.Choice(list(SOURCES)), required=True, help="What the input is.")
@click.option("--app", "app_name", metavar="MODULE:APP", help="Only the tags of this application are events.")
@click.option("--session", metavar="ID", callback=session_name, help="The session; a new one if not given.")
def parse(file: BinaryIO, source: str, app_name: str | None, session: str) -> None:
    """Write what a model sent, in FILE or stdin, as the events of a session.

    The output is what `turnlog import` takes. Without --app every well-formed tag is an event `app.NAME`.
    """
    if file.isatty():
        raise click.UsageError("expected a FILE, or input on stdin")
    app = load_app(app_name) if app_name else None
    tags: Tags = tags_of(app.vocabulary) if app else AgentStreamParser
    writer = Writer(sys.stdout.buffer, session, app)
    telling = Telling(writer, tags_and_markers_of(app.vocabulary) if app else TagsAndMarkers)
    reply = partial(Reply, writer.new_id, tags, app.agent.executor if app and not app.cli else backend)
    SOURCES[source](iter(partial(read_some, file), b""), telling, reply)
    if telling.problems:
        raise click.ClickException(escape(telling.problems[-1]))


def read_some(file: BinaryIO) -> bytes:
    """What is there, without waiting for more; nothing at the end."""
    read: Callable[[int], bytes] = getattr(file, "read1", file.read)
    return read(PIECE_BYTES)
