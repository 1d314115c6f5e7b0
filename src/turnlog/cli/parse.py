"""`turnlog parse`: output of a model in, lines for `turnlog import` out, event by event.

Input: text with inline tags; the stream of the Messages API (SSE, or one raw event per line); or the stdout
of a Claude CLI process, whose texts may have markers, too. A CLI process reports its agents and turns itself.
In the stream of the Messages API a message that calls tools or pauses is a step of its agent; any other
message ends its agent, and the next one begins a turn.
Ids are derived from the session id: the same input gives the same events, except for the time. If the input
breaks off or is wrong, open blocks and agents are closed, then the command fails. An error that the model
reported is not a failure of the command: it is an event like the others.
"""

import codecs
import hashlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
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
from turnlog.team.markers import TagAndMarkerParser, tag_and_marker_parser_factory
from turnlog.vocabularies import VOCABULARIES
from turnlog.wire.dialects.base import DONE
from turnlog.wire.sse import MAX_SSE_MESSAGE_BYTES, Decoder

READ_BYTES = 1 << 16
AGENT_NAME = "Assistant"
UNANSWERED_MESSAGE = "The answer is not part of the input."
SYSTEM_PAYLOADS = frozenset({AgentStart, AgentEnd, AgentUsage, SessionError, ParseReject})


class JsonlWriter:
    """Writes events as the lines of one session."""

    def __init__(self, output: BinaryIO, session_id: str, app: "turnlog.App | None") -> None:
        self._output = output
        self._session_id = session_id
        self._app = app.name if app else ""
        app_vocabularies = [app.vocabulary] if app and app.vocabulary else []
        self._catalog = Catalog(*VOCABULARIES, *app_vocabularies, CLAUDE_CLI)
        self._numbers = count()
        self._seq = 0

    def new_id(self, prefix: str) -> str:
        text = f"{self._session_id}:{next(self._numbers)}"
        return prefix + hashlib.sha256(text.encode()).hexdigest()[:32]

    def write_payloads(self, payloads: Iterable[Payload], scope: Scope) -> None:
        self.append(self._build_payload_event(payload, scope) for payload in payloads)

    def write_drafts(self, drafts: Iterable[EventDraft]) -> None:
        self.append(self._build_event(draft.payload, draft.scope, draft.origin) for draft in drafts)

    def append(self, events: Iterable[Event]) -> None:
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
        is_system = type(payload) in SYSTEM_PAYLOADS
        if isinstance(payload, ToolResult) and payload.kind is None:
            is_system = True  # not a result of the provider
        return self._build_event(payload, scope, "system" if is_system else "model")

    def _build_event(self, payload: Payload, scope: Scope, origin: Origin) -> Event:
        event_id = self.new_id("evt_")
        if isinstance(payload, UntypedEvent):  # a tag without a declared event: no declared name is app.*
            body = msgspec.json.encode(payload.data)
            return Event(
                type=f"app.{payload.type}",
                id=event_id,
                payload=UnknownPayload(msgspec.Raw(body)),
                body=body,
                origin="model",
                scope=scope,
            )
        return self._catalog.build_event(payload, id=event_id, origin=origin, scope=scope)


class TurnBuilder:
    """Writes the agents and turns of an input, message by message."""

    def __init__(self, writer: JsonlWriter, process_tags: TextParserFactory) -> None:
        self._writer = writer
        self._process_tags = process_tags
        self._scope: Scope | None = None  # of the open agent
        self._calls: dict[str, ToolCall] = {}
        self._steps = 0
        self._usage = Usage(input_tokens=0, output_tokens=0)
        self.problems: list[str] = []

    def begin_message(self, model: str | None = None) -> None:
        if self._scope is not None:
            self._cancel_calls([call for call in self._calls.values() if call.executor != "provider"])
            return

        trace_id = self._writer.new_id("tr_")
        agent_id = self._writer.new_id("agt_")
        self._scope = Scope(trace_id=trace_id, agent_id=agent_id, agent_name=AGENT_NAME, depth=0)
        self._steps = 0
        self._usage = Usage(input_tokens=0, output_tokens=0)
        self.add_events([AgentStart(name=AGENT_NAME, via="prompt", model=model)])

    def add_events(self, payloads: list[Payload]) -> None:
        for payload in payloads:
            if isinstance(payload, ToolCall):
                self._calls[payload.call_id] = payload
            elif isinstance(payload, ToolResult):
                self._calls.pop(payload.call_id, None)
        if payloads:
            self._writer.write_payloads(payloads, self._scope or Scope())

    def make_process_parser(self) -> CliParser:
        return CliParser(self._writer.new_id, make_text_parser=self._process_tags)

    def add_process_output(self, drafts: list[EventDraft]) -> None:
        """Write events of a process. If it stopped within a turn, add that to `problems`."""
        errors = [draft.payload for draft in drafts if isinstance(draft.payload, SessionError)]
        self.problems += [error.message for error in errors if error.code == PROCESS_EXITED.code]
        if drafts:
            self._writer.write_drafts(drafts)

    def finish_message(self, reply: ReplyBuilder) -> None:
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
        if self._scope is None:
            return
        self._cancel_calls(list(self._calls.values()))
        usage = self._usage if self._usage.input_tokens or self._usage.output_tokens else None
        self.add_events([AgentEnd(stop_reason=reason, steps=self._steps, usage=usage, result=result)])
        self._scope = None

    def _cancel_calls(self, calls: Sequence[ToolCall]) -> None:
        self.add_events([ToolResult.cancelled(call, UNANSWERED_MESSAGE) for call in calls])


def sum_usage(first: Usage, second: Usage) -> Usage:
    names = Usage.__struct_fields__
    return Usage(**{name: getattr(first, name) + getattr(second, name) for name in names})


def parse_tag_text(
    pieces: Iterator[bytes], builder: TurnBuilder, make_reply: Callable[[], ReplyBuilder]
) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    reply = make_reply()
    builder.begin_message()
    for piece in pieces:
        builder.add_events(reply.text(decoder.decode(piece)))
    builder.add_events([*reply.text(decoder.decode(b"", final=True)), *reply.done("end_turn")])
    builder.finish_message(reply)


def parse_messages_stream(
    pieces: Iterator[bytes], builder: TurnBuilder, make_reply: Callable[[], ReplyBuilder]
) -> None:
    """Parse the messages of a Messages API stream. Raise `BadInput` if there is none."""
    parser: MessagesParser | None = None
    try:
        for event in iter_raw_events(pieces):
            parser = parse_message_event(event, parser, builder, make_reply)
    finally:
        if parser is not None:
            close_message(parser, builder)
            builder.end_agent("cancelled")
    if parser is None:
        raise BadInput("expected the events of a message, got none", "input")


def parse_message_event(
    event: Any, parser: MessagesParser | None, builder: TurnBuilder, make_reply: Callable[[], ReplyBuilder]
) -> MessagesParser | None:
    """Parse one raw event. Return the parser of its message, None before the first message."""
    event_type = event.get("type") if isinstance(event, dict) else None
    if parser is None and event_type == "ping":
        return None

    if parser is None or event_type == "message_start":
        if parser is not None:
            close_message(parser, builder)
        parser = MessagesParser(make_reply())
        payloads = parser.feed(event)
        builder.begin_message(parser.reply.model)
        had_ended = False
    else:
        had_ended = parser.has_ended
        payloads = parser.feed(event)

    builder.add_events(payloads)
    if parser.has_ended and not had_ended:
        builder.finish_message(parser.reply)
    return parser


def close_message(parser: MessagesParser, builder: TurnBuilder) -> None:
    if not parser.has_ended:
        builder.add_events(parser.flush())
        builder.finish_message(parser.reply)


def parse_process_output(
    pieces: Iterator[bytes], builder: TurnBuilder, _: Callable[[], ReplyBuilder]
) -> None:
    parser = builder.make_process_parser()
    try:
        for piece in pieces:
            builder.add_process_output(parser.feed(piece))
    finally:
        builder.add_process_output(parser.flush())


def iter_raw_events(pieces: Iterator[bytes]) -> Iterator[Any]:
    """Yield the events of an SSE body, or of lines of JSON: the first character decides."""
    buffer = b""
    for piece in pieces:
        buffer += piece
        text = buffer.removeprefix(b"\xef\xbb\xbf").lstrip()
        if text:
            split = split_json_lines if text.startswith((b"{", b"[")) else iter_sse_data
            for number, body in enumerate(split(chain([buffer], pieces)), 1):
                yield decode_raw_event(body, number)
            return
        buffer = buffer[-READ_BYTES:]  # leading white space must not fill the memory


def decode_raw_event(body: bytes, number: int) -> Any:
    try:
        return decode_strict_json(body, object, MAX_SSE_MESSAGE_BYTES)
    except BadInput as error:
        raise BadInput(f"event {number}: {error.problem}", error.path) from None


def iter_sse_data(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the data of each message of an SSE body, without the `[DONE]` that gateways add."""
    decoder = Decoder()
    for piece in pieces:
        for message in decoder.feed(piece):
            body = message.data.encode()
            if body != DONE:
                yield body


def split_json_lines(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines that are not blank. Raise `BadInput` for one above `MAX_SSE_MESSAGE_BYTES`."""
    buffer: list[bytes] = []  # the pieces of the incomplete line
    size_bytes = 0
    for piece in pieces:
        *line_ends, rest = piece.split(b"\n")
        for line_end in line_ends:
            line = b"".join([*buffer, line_end]).strip()
            if line:
                yield line
            buffer = []
            size_bytes = 0

        buffer.append(rest)
        size_bytes += len(rest)
        if size_bytes > MAX_SSE_MESSAGE_BYTES:
            raise BadInput(f"expected a line of at most {MAX_SSE_MESSAGE_BYTES} bytes, got more", "input")

    last_line = b"".join(buffer).strip()
    if last_line:
        yield last_line


SOURCE_PARSERS: dict[str, Callable[[Iterator[bytes], TurnBuilder, Callable[[], ReplyBuilder]], None]] = {
    "tags": parse_tag_text,
    "anthropic": parse_messages_stream,
    "claude-cli": parse_process_output,
}


def session_id_or_new(_: click.Context, __: click.Parameter, value: str | None) -> str:
    """Return the session id of the option, or a new one. Raise `BadParameter` for a wrong one."""
    try:
        return msgspec.convert(value or new_id("sess_"), SessionId)
    except msgspec.ValidationError:
        raise click.BadParameter("expected `sess_` and 1 to 64 of A-Z a-z 0-9 _ -") from None


@click.command(
    short_help="Turn the output of a model into events.",
    epilog="Example: turnlog parse --source claude-cli run.jsonl | turnlog import",
)
@click.argument("file", type=click.File("rb"), default="-")
@click.option("--source", type=click.Choice(list(SOURCE_PARSERS)), required=True, help="The kind of input.")
@click.option(
    "--app", "app_name", metavar="MODULE:APP", help="Accept only tags of events of this application."
)
@click.option(
    "--session", metavar="ID", callback=session_id_or_new, help="The session id; default: a new one."
)
def parse_command(file: BinaryIO, source: str, app_name: str | None, session: str) -> None:
    """Parse the output of a model, in FILE or on stdin, and write the events of a session.

    Pipe the output to `turnlog import`. Without --app every well-formed tag is an event `app.NAME`.
    """
    if file.isatty():
        raise click.UsageError("expected a FILE, or input on stdin")
    app = load_app(app_name) if app_name else None
    make_tag_parser: TextParserFactory = AgentStreamParser
    make_process_tag_parser: TextParserFactory = TagAndMarkerParser
    if app:
        make_tag_parser = tag_parser_factory(app.vocabulary)
        make_process_tag_parser = tag_and_marker_parser_factory(app.vocabulary)
    executor_of = app.agent.executor_of if app and app.has_agents else always_backend

    writer = JsonlWriter(sys.stdout.buffer, session, app)
    builder = TurnBuilder(writer, make_process_tag_parser)
    make_reply = partial(ReplyBuilder, writer.new_id, make_tag_parser, executor_of)
    SOURCE_PARSERS[source](iter(partial(read_available, file), b""), builder, make_reply)
    if builder.problems:
        raise click.ClickException(escape_controls(builder.problems[-1]))


def read_available(file: BinaryIO) -> bytes:
    """Return the bytes that are available, without waiting for a full buffer; b"" at the end."""
    read: Callable[[int], bytes] = getattr(file, "read1", file.read)
    return read(READ_BYTES)
