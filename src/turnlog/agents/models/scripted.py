"""The offline model: plays a script, which is a Python function from the conversation to parts.

`turnlog.agents.models.script` reads such a function from a JSON file. Texts and thinking are streamed word by
word. The model is deterministic, needs no network and reports no usage unless the script does;
`word_delay_s` and `initial_delay_s` are for people who watch. A message ends with "tool_use" if it has calls,
else with "end_turn", unless the script has an `EndMessage`.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import field

from turnlog.agents.models.model import ModelError, Request
from turnlog.agents.models.script_turn import ScriptTurn
from turnlog.events import Citation, ErrorInfo, File, Payload, ToolResult, Usage
from turnlog.events.catalog import tag_name
from turnlog.parse import reply as replies
from turnlog.parse.reply import ReplyBuilder

NO_USAGE = Usage(input_tokens=0, output_tokens=0)


class ScriptStruct(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A part of a script; a JSON script has the same fields under their encoded names."""


class ToolUse(ScriptStruct, frozen=True):
    """Call a tool."""

    tool: str
    args: dict[str, Any] = {}
    call_id: str | None = None


class Emit(ScriptStruct, frozen=True):
    """Emit an event of the application, as an inline tag."""

    event: Payload


class Thinking(ScriptStruct, frozen=True):
    """Think. Only signed thinking stays in the conversation."""

    text: str = field(name="think")
    signature: str | None = None


class Cite(ScriptStruct, frozen=True):
    """Cite a source of the text before it."""

    citation: Citation = field(name="cite")


class ProviderCall(ScriptStruct, frozen=True):
    """Call a tool that runs at the provider, and its outcome: a result, or the code of an error."""

    tool: str = field(name="provider")
    args: dict[str, Any] = {}
    result: Any = None
    kind: str | None = None  # the provider's name of the result
    error: str | None = None


class Files(ScriptStruct, frozen=True):
    """Report files that the provider's tools created."""

    files: tuple[File, ...]


class Fail(ScriptStruct, frozen=True):
    """Fail after the parts before it.

    `times` is for JSON scripts: it limits the failures in one state of the conversation.
    """

    code: str = field(name="fail", default="overloaded_error")
    retriable: bool = True
    message: str = "The script says that the model fails."
    retry_after_s: float | None = None
    times: int | None = None


class EndMessage(ScriptStruct, frozen=True):
    """End the message here, with this stop reason."""

    reason: replies.MessageStop = field(name="stop")


class UsageReport(ScriptStruct, frozen=True):
    """Report the usage of the message; the last report counts."""

    usage: Usage = field(name="spend")


ScriptPart = str | ToolUse | Emit | Thinking | Cite | ProviderCall | Files | Fail | EndMessage | UsageReport
Script = Callable[[ScriptTurn], Iterable[ScriptPart]]


@dataclass(frozen=True, slots=True)
class Scripted:
    """A model that plays a script."""

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
        if stop is None:
            stop = "tool_use" if reply.has_deferred_calls else "end_turn"
        yield reply.done(stop, usage)


def split_words(text: str) -> list[str]:
    """Return a text in the pieces that a model would stream. White space alone is one piece."""
    if not text.strip():
        return [text] if text else []
    # only the start of the text may begin with white space: looking for it elsewhere takes quadratic time
    return re.findall(r"(?:^\s*)?\S+\s*", text)


def _text(reply: ReplyBuilder, part: str) -> Iterator[list[Payload]]:
    return map(reply.text, split_words(part))


def _emit(reply: ReplyBuilder, part: Emit) -> Iterator[list[Payload]]:
    yield reply.text(format_tag(part.event))


def format_tag(event: Payload) -> str:
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

    error = None
    if part.error:
        error = ErrorInfo(code=part.error, message=part.error, details={"content": part.result})
    result = ToolResult(
        call_id=getattr(start, "call_id", ""),
        tool=part.tool,
        ok=error is None,
        result=None if error else part.result,
        error=error,
        kind=part.kind or f"{part.tool}_tool_result",
    )
    yield reply.result(result)


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
