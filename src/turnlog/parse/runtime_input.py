"""What a runtime reports about its agents, as values that events can carry. Pure, never raises.

Names, ids and texts of other frameworks go in. A value that no event can carry is left out, replaced by a
name that says so, or, if it identifies a call, by an id that is derived from it.
"""

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, NamedTuple

from turnlog.events import AgentStart, Payload
from turnlog.events.content import PromptPart
from turnlog.events.payload import ConversationId
from turnlog.events.surrogates import replace_lone_surrogates
from turnlog.parse.blocks import MAX_REPLY_CHARS, CallBlock
from turnlog.parse.json_values import as_name, as_opaque_id, convert_or_none, printable_name
from turnlog.parse.reply import MessageStop, ReplyBuilder

DERIVED_ID_DIGITS = 40  # of a hash: 160 bits, as in the ids of closing events


class AgentInfo(NamedTuple):
    """What a runtime reports about an agent that starts. `source_id` is its own id of the invocation."""

    name: str
    model: str | None = None
    tools: Sequence[str] = ()
    prompt: str | None = None
    source_id: str | None = None
    source_session: str | None = None
    conversation_id: str | None = None
    content: tuple[PromptPart, ...] = ()


class RuntimeMessage:
    """One message of an agent: its reply, and its calls whose arguments still stream."""

    def __init__(self, reply: ReplyBuilder) -> None:
        self.reply = reply
        self.is_open = True
        self.call_ids: list[str] = []
        self.call_blocks: dict[str, CallBlock] = {}

    def abort(self) -> list[Payload]:
        self.is_open = False
        return self.reply.abort()

    def complete(self, stop_reason: MessageStop) -> list[Payload]:
        self.is_open = False
        return self.reply.done(stop_reason)

    def end_blocks(self) -> list[Payload]:
        self.call_blocks.clear()
        return self.reply.end()


def get_agent_name(info: AgentInfo) -> str:
    return as_name(info.name) or printable_name(info.name) or "Agent"


def make_start(info: AgentInfo, **fields: Any) -> AgentStart:
    """Build the start of an agent. Values of the runtime that are not valid are left out."""
    tools = [as_name(tool) for tool in info.tools]
    return AgentStart(
        name=get_agent_name(info),
        model=as_name(info.model),
        tools=tuple(tool for tool in tools if tool),
        prompt=clean_text(info.prompt),
        content=info.content,
        source_session=as_opaque_id(info.source_session),
        conversation_id=convert_or_none(info.conversation_id, ConversationId),
        **fields,
    )


def clean_text(text: Any) -> str | None:
    """Return a text that one event can carry; None if it is no text."""
    if not isinstance(text, str):
        return None
    return replace_lone_surrogates(text)[:MAX_REPLY_CHARS]


def to_call_key(call_id: object) -> str:
    """Return the call id, or one that is derived from it if no event can carry it."""
    key = as_opaque_id(call_id)
    if key is not None:
        return key
    digest = sha256(str(call_id).encode(errors="surrogatepass")).hexdigest()
    return "call_" + digest[:DERIVED_ID_DIGITS]
