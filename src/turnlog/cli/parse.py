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
from turnlog.cli.terminal import escape_controls, write_json
from turnlog.errors import BadInput
from turnlog.events import (
    CORE,
    TEAM,
    AgentEnd,
    AgentStart,
    AgentUsage,
    Catalog,
    Event,
    EventDraft,
    Origin,
    ParseReject,
    Payload,
    Scope,
    SessionError,
    ToolCall,
    ToolResult,
    UnknownPayload,
    Usage,
    encode_envelope,
)
from turnlog.events.agent import StopReason
from turnlog.events.payload import SessionId
from turnlog.events.strict_json import decode_strict_json
from turnlog.ids import new_id, now_ms
from turnlog.log.transfer import SessionLine
from turnlog.parse import AgentStreamParser, CliParser, MessagesParser, ReplyBuilder
from turnlog.parse.blocks import UntypedEvent
from turnlog.parse.claude.lines import CLAUDE_CLI
from turnlog.parse.claude.parser import PROCESS_EXITED
from turnlog.parse.messages_api import INCOMPLETE
from turnlog.parse.reply import (
    TextParserFactory,
    always_backend,
    tag_parser_factory,
)
from turnlog.state.closing import build_cancelled_result
from turnlog.team.markers import TagAndMarkerParser, tag_and_marker_parser_factory
from turnlog.wire.dialects.base import DONE
from turnlog.wire.sse import MAX_SSE_MESSAGE_BYTES, Decoder

READ_BYTES = 1 << 16
AGENT_NAME = "Assistant"
UNANSWERED_MESSAGE = "The answer is not part of the input."
SYSTEM_PAYLOADS = frozenset({AgentStart, AgentEnd, AgentUsage, SessionError, ParseReject})


class JsonlWriter:
    """Writes events as the lines of one session."""

    def __init__(self, output: BinaryIO, session_id: str, app: "turnlog.App | None") -> None:
        self._output, self._session_id = output, session_id
        own = [app.vocabulary] if app and app.vocabulary else []
        self._app, self._catalog = app.name if app else "", Catalog(CORE, TEAM, *own, CLAUDE_CLI)
        self._numbers, self._seq = count(), 0

    def new_id(self, prefix: str) -> str:
        """The next id: it follows from the session and its number."""
        text = f"{self._session_id}:{next(self._numbers)}"
        return prefix + hashlib.sha256(text.encode()).hexdigest()[:32]

    def write_payloads(self, payloads: Iterable[Payload], scope: Scope) -> None:
        """Append a batch."""
        self.append(self._build_payload_event(payload, scope) for payload in payloads)

    def write_drafts(self, drafts: Iterable[EventDraft]) -> None:
        """Append what a process said."""
        self.append(self._build_event(said.payload, said.scope, said.origin) for said in drafts)

    def append(self, events: Iterable[Event]) -> None:
        """Write events as lines, after that of their session."""
        if self._seq == 0:
            session = SessionLine(self._session_id, self._app, created_ms=now_ms())
            write_json(self._output, msgspec.json.encode(session))
        for event in events:
            write_json(
                self._output,
                encode_envelope(event, session_id=self._session_id, seq=self._seq, ts_ms=now_ms()),
            )
            self._seq += 1
        self._output.flush()

    def _build_payload_event(self, payload: Payload, scope: Scope) -> Event:
        own = type(payload) in SYSTEM_PAYLOADS or (isinstance(payload, ToolResult) and payload.kind is None)
        return self._build_event(payload, scope, "system" if own else "model")

    def _build_event(self, payload: Payload, scope: Scope, origin: Origin) -> Event:
        event_id = self.new_id("evt_")
        if isinstance(payload, UntypedEvent):  # under a name that no declared event has
            body = msgspec.json.encode(payload.data)
            unknown = UnknownPayload(msgspec.Raw(body))
            kind = f"app.{payload.type}"
            return Event(type=kind, id=event_id, payload=unknown, body=body, origin="model", scope=scope)
        return self._catalog.build_event(payload, id=event_id, origin=origin, scope=scope)


class TurnBuilder:
    """The agents and turns of an input, in the order of its messages."""

    def __init__(self, writer: JsonlWriter, process_tags: TextParserFactory) -> None:
        self._writer, self._process_tags = writer, process_tags
        self._scope: Scope | None = None  # of the agent that is open
        self._calls: dict[str, ToolCall] = {}
        self._steps = 0
        self._usage = Usage(input_tokens=0, output_tokens=0)
        self.problems: list[str] = []

    def begin_message(self, model: str | None = None) -> None:
        """A message begins: of the agent that is open, or of a new one."""
        if self._scope is not None:
            self._cancel_calls(call for call in self._calls.values() if call.executor != "provider")
            return
        trace_id, agent_id = self._writer.new_id("tr_"), self._writer.new_id("agt_")
        self._scope = Scope(trace_id=trace_id, agent_id=agent_id, agent_name=AGENT_NAME, depth=0)
        self._steps, self._usage = 0, Usage(input_tokens=0, output_tokens=0)
        self.add_events([AgentStart(name=AGENT_NAME, via="prompt", model=model)])

    def add_events(self, payloads: list[Payload]) -> None:
        """Events of the agent that is open."""
        for payload in payloads:
            if isinstance(payload, ToolCall):
                self._calls[payload.call_id] = payload
            elif isinstance(payload, ToolResult):
                self._calls.pop(payload.call_id, None)
        if payloads:
            self._writer.write_payloads(payloads, self._scope or Scope())

    def make_process_parser(self) -> CliParser:
        """A parser of what a process prints; it begins and ends agents itself."""
        return CliParser(self._writer.new_id, make_text_parser=self._process_tags)

    def add_process_output(self, drafts: list[EventDraft]) -> None:
        """What a process said; that it stopped in the middle of a turn is a problem of the input."""
        errors = [said.payload for said in drafts if isinstance(said.payload, SessionError)]
        self.problems += [error.message for error in errors if error.code == PROCESS_EXITED.code]
        if drafts:
            self._writer.write_drafts(drafts)

    def finish_message(self, reply: ReplyBuilder) -> None:
        """A message is over: its agent goes on, or ends as the message did."""
        self._steps += 1
        self._usage = sum_usage(self._usage, reply.usage)
        if reply.model:
            self.add_events([AgentUsage(model=reply.model, usage=reply.usage)])
        if not reply.complete:
            problem = reply.error or INCOMPLETE
            if problem is INCOMPLETE:
                self.problems.append(problem.message)
            self.add_events([SessionError(code=problem.code, message=problem.message)])
            self.end_agent("error")
        elif reply.stop_reason != "tool_use" and reply.stop_reason != "pause_turn":
            self.end_agent(reply.stop_reason or "end_turn", reply.text_so_far)

    def end_agent(self, reason: StopReason, result: str | None = None) -> None:
        """The agent is over; what it asked for and did not get is answered first."""
        if self._scope is not None:
            self._cancel_calls(self._calls.values())
            usage = self._usage if self._usage.input_tokens or self._usage.output_tokens else None
            self.add_events([AgentEnd(stop_reason=reason, steps=self._steps, usage=usage, result=result)])
            self._scope = None

    def _cancel_calls(self, calls: Iterable[ToolCall]) -> None:
        self.add_events([build_cancelled_result(call, UNANSWERED_MESSAGE) for call in calls])


def sum_usage(one: Usage, other: Usage) -> Usage:
    """The usage of both."""
    names = Usage.__struct_fields__
    return Usage(**{name: getattr(one, name) + getattr(other, name) for name in names})


def parse_tag_text(pieces: Iterator[bytes], builder: TurnBuilder, reply: Callable[[], ReplyBuilder]) -> None:
    """A text: one message of one agent."""
    decoder, said = codecs.getincrementaldecoder("utf-8")(errors="replace"), reply()
    builder.begin_message()
    for piece in pieces:
        builder.add_events(said.text(decoder.decode(piece)))
    builder.add_events([*said.text(decoder.decode(b"", final=True)), *said.done("end_turn")])
    builder.finish_message(said)


def parse_messages_stream(
    pieces: Iterator[bytes], builder: TurnBuilder, reply: Callable[[], ReplyBuilder]
) -> None:
    """The stream of the Messages API: its messages one after the other."""
    parser: MessagesParser | None = None
    try:
        for event in iter_raw_events(pieces):
            parser = parse_message_event(event, parser, builder, reply)
    finally:
        if parser is not None:
            close_message(parser, builder)
            builder.end_agent("cancelled")
    if parser is None:
        raise BadInput("expected the events of a message, got none", "input")


def parse_message_event(
    event: Any, parser: MessagesParser | None, builder: TurnBuilder, reply: Callable[[], ReplyBuilder]
) -> MessagesParser | None:
    """One raw event; the parser of the message it belongs to."""
    kind = event.get("type") if isinstance(event, dict) else None
    if parser is None and kind == "ping":
        return None
    if parser is None or kind == "message_start":
        if parser is not None:
            close_message(parser, builder)
        parser = MessagesParser(reply())
        batch = parser.feed(event)
        builder.begin_message(parser.reply.model)
        late = False
    else:
        late = parser.has_ended
        batch = parser.feed(event)
    builder.add_events(batch)
    if parser.has_ended and not late:
        builder.finish_message(parser.reply)
    return parser


def close_message(parser: MessagesParser, builder: TurnBuilder) -> None:
    """A message will not go on; if it was not over, it failed."""
    if not parser.has_ended:
        builder.add_events(parser.flush())
        builder.finish_message(parser.reply)


def parse_process_output(
    pieces: Iterator[bytes], builder: TurnBuilder, _: Callable[[], ReplyBuilder]
) -> None:
    """The stdout of a Claude CLI process: it says itself who speaks."""
    parser = builder.make_process_parser()
    try:
        for piece in pieces:
            builder.add_process_output(parser.feed(piece))
    finally:
        builder.add_process_output(parser.flush())


def iter_raw_events(pieces: Iterator[bytes]) -> Iterator[Any]:
    """The events of an SSE body, or of lines of JSON: the first character says which."""
    head = b""
    for piece in pieces:
        head += piece
        if text := head.removeprefix(b"\xef\xbb\xbf").lstrip():
            texts = split_json_lines if text.startswith((b"{", b"[")) else iter_sse_data
            for number, body in enumerate(texts(chain([head], pieces)), 1):
                yield decode_raw_event(body, number)
            return
        head = head[-READ_BYTES:]


def decode_raw_event(body: bytes, number: int) -> Any:
    """One event, or `BadInput` that says which was wrong."""
    try:
        return decode_strict_json(body, object, MAX_SSE_MESSAGE_BYTES)
    except BadInput as error:
        raise BadInput(f"event {number}: {error.problem}", error.path) from None


def iter_sse_data(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The data of each message of an SSE body; the `[DONE]` that gateways add says nothing."""
    decoder = Decoder()
    for piece in pieces:
        bodies = (message.data.encode() for message in decoder.feed(piece))
        yield from (body for body in bodies if body != DONE)


def split_json_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
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
        if size > MAX_SSE_MESSAGE_BYTES:
            raise BadInput(f"expected a line of at most {MAX_SSE_MESSAGE_BYTES} bytes, got more", "input")
    yield from filter(None, [b"".join(held).strip()])


SOURCE_PARSERS: dict[str, Callable[[Iterator[bytes], TurnBuilder, Callable[[], ReplyBuilder]], None]] = {
    "tags": parse_tag_text,
    "anthropic": parse_messages_stream,
    "claude-cli": parse_process_output,
}


def session_id_or_new(_: click.Context, __: click.Parameter, value: str | None) -> str:
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
@click.option("--source", type=click.Choice(list(SOURCE_PARSERS)), required=True, help="What the input is.")
@click.option("--app", "app_name", metavar="MODULE:APP", help="Only the tags of this application are events.")
@click.option(
    "--session", metavar="ID", callback=session_id_or_new, help="The session; a new one if not given."
)
def parse_command(file: BinaryIO, source: str, app_name: str | None, session: str) -> None:
    """Write what a model sent, in FILE or stdin, as the events of a session.

    The output is what `turnlog import` takes. Without --app every well-formed tag is an event `app.NAME`.
    """
    if file.isatty():
        raise click.UsageError("expected a FILE, or input on stdin")
    app = load_app(app_name) if app_name else None
    tags: TextParserFactory = tag_parser_factory(app.vocabulary) if app else AgentStreamParser
    writer = JsonlWriter(sys.stdout.buffer, session, app)
    telling = TurnBuilder(
        writer, tag_and_marker_parser_factory(app.vocabulary) if app else TagAndMarkerParser
    )
    reply = partial(
        ReplyBuilder,
        writer.new_id,
        tags,
        app.agent.executor_of if app and not app.claude_code else always_backend,
    )
    SOURCE_PARSERS[source](iter(partial(read_available, file), b""), telling, reply)
    if telling.problems:
        raise click.ClickException(escape_controls(telling.problems[-1]))


def read_available(file: BinaryIO) -> bytes:
    """What is there, without waiting for more; nothing at the end."""
    read: Callable[[int], bytes] = getattr(file, "read1", file.read)
    return read(READ_BYTES)
