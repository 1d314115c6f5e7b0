"""The offline model: its words are written beforehand.

`Scripted` plays a Python function from the conversation to parts; `turnlog.agents.models.script` reads such a
function from a JSON file. Texts and thinking are spoken word by word. It is deterministic, needs no network
and uses no tokens unless the script says so; `pace_s` per word and `first_s` before the first one are for
people who watch. Its messages end with "tool_use" if they call, else with "end_turn", unless a `Stop` says
otherwise.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from turnlog.agents.models.model import ModelError, Request
from turnlog.agents.models.script_turn import ScriptTurn
from turnlog.events import Citation, ErrorInfo, File, Payload, ToolResult, Usage
from turnlog.events.catalog import tag_name
from turnlog.parse import reply as replies
from turnlog.parse.reply import ReplyBuilder

NO_USAGE = Usage(input_tokens=0, output_tokens=0)


@dataclass(frozen=True, slots=True)
class ToolUse:
    """A script asks for a tool."""

    tool: str
    args: dict[str, Any] = field(default_factory=dict)
    call_id: str | None = None


@dataclass(frozen=True, slots=True)
class Emit:
    """A script emits an event of the application, as an inline tag."""

    event: Payload


@dataclass(frozen=True, slots=True)
class Thinking:
    """A script thinks. Only what is signed stays in the conversation."""

    text: str
    signature: str | None = None


@dataclass(frozen=True, slots=True)
class Cite:
    """A source of the text that was just said."""

    citation: Citation


@dataclass(frozen=True, slots=True)
class ProviderCall:
    """A tool that runs at the provider, with what it answers: a result, or the code of an error."""

    tool: str
    args: dict[str, Any] = field(default_factory=dict)
    result: Any = None
    kind: str | None = None  # the provider's name of the result
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Files:
    """Files that were made on the way."""

    files: tuple[File, ...]


@dataclass(frozen=True, slots=True)
class Fail:
    """The model fails here, after what it has said."""

    code: str = "overloaded_error"
    retriable: bool = True
    message: str = "The script says that the model fails."
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True)
class EndMessage:
    """The message ends here, for a reason of its own."""

    reason: replies.MessageStop


@dataclass(frozen=True, slots=True)
class UsageReport:
    """What the message costs; the last one counts."""

    usage: Usage


ScriptPart = str | ToolUse | Emit | Thinking | Cite | ProviderCall | Files | Fail | EndMessage | UsageReport
Script = Callable[[ScriptTurn], Iterable[ScriptPart]]


@dataclass(frozen=True, slots=True)
class Scripted:
    """A model whose words are written beforehand."""

    script: Script
    word_delay_s: float = 0.0
    name: str = "scripted"
    initial_delay_s: float = 0.0

    async def stream(self, request: Request, reply: ReplyBuilder) -> AsyncIterator[list[Payload]]:
        reply.begin(self.name)
        await asyncio.sleep(self.initial_delay_s)
        stop: replies.MessageStop | None = None
        usage = NO_USAGE
        for part in self.script(ScriptTurn(request.messages)):
            if isinstance(part, EndMessage):
                stop = part.reason
                break
            if isinstance(part, UsageReport):
                usage = part.usage
                continue
            if isinstance(part, Fail):
                reply.usage = usage
                raise ModelError(
                    part.code, part.message, retriable=part.retriable, retry_after_s=part.retry_after_s
                )
            for batch in PART_WRITERS[type(part)](reply, part):
                if isinstance(part, str | Thinking):
                    await asyncio.sleep(self.word_delay_s)
                yield batch
        yield reply.done(stop or ("tool_use" if reply.has_deferred_calls else "end_turn"), usage)


def split_words(text: str) -> list[str]:
    """A text in the pieces a model would send; white space alone is one."""
    # white space in front of a word can only begin the text: looked for elsewhere it costs a square of time
    return re.findall(r"(?:^\s*)?\S+\s*", text) if text.strip() else [text] * bool(text)


def _text(reply: ReplyBuilder, part: str) -> Iterator[list[Payload]]:
    return map(reply.text, split_words(part))


def _emit(reply: ReplyBuilder, part: Emit) -> Iterator[list[Payload]]:
    yield reply.text(format_tag(part.event))


def format_tag(event: Payload) -> str:
    """Return the tag that a model would write for an event, on a line of its own."""
    data = msgspec.json.encode(event).decode().replace("'", "\\u0027")
    return f"\n<agent-event type=\"{tag_name(type(event))}\" data='{data}' />"


def _thinking(reply: ReplyBuilder, part: Thinking) -> Iterator[list[Payload]]:
    yield from map(reply.think, split_words(part.text))
    if part.signature is not None:
        yield reply.sign(part.signature)


def _call(reply: ReplyBuilder, part: ToolUse) -> Iterator[list[Payload]]:
    yield reply.call(part.tool, part.args, part.call_id)


def _cite(reply: ReplyBuilder, part: Cite) -> Iterator[list[Payload]]:
    yield reply.cite(part.citation)


def _provider_call(reply: ReplyBuilder, part: ProviderCall) -> Iterator[list[Payload]]:
    yield reply.end()
    block = reply.open_call(part.tool, None, "provider", part.args)
    if block is None:
        return
    [start] = block.start()
    yield [start, *reply.close(block)]
    error = (
        ErrorInfo(code=part.error, message=part.error, details={"content": part.result})
        if part.error
        else None
    )
    yield reply.result(
        ToolResult(
            call_id=getattr(start, "call_id", ""),
            tool=part.tool,
            ok=error is None,
            result=None if error else part.result,
            error=error,
            kind=part.kind or f"{part.tool}_tool_result",
        )
    )


def _files(reply: ReplyBuilder, part: Files) -> Iterator[list[Payload]]:
    yield [*reply.end(), *replies.file_events(part.files)]


PART_WRITERS: dict[type, Callable[[ReplyBuilder, Any], Iterator[list[Payload]]]] = {
    str: _text,
    Thinking: _thinking,
    ToolUse: _call,
    Emit: _emit,
    Cite: _cite,
    ProviderCall: _provider_call,
    Files: _files,
}
