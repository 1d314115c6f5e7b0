"""The vocabulary of Turnlog: one payload class for each type of event.

Every payload class can be imported from here. `CORE` declares the package's own types, and `CATALOG` has no
others. An application adds its own: `Catalog(CORE, Vocabulary("broker", [...]))`; `turnlog.vocabularies` adds
the optional ones of the package. Each family module lists its classes once, in `EVENTS`. The reference
`docs/events.md` is generated from the classes; the rules are in `docs/protocol.md` 2 and 3.
"""

from turnlog.events import agent, assistant, block, parse, process, tool, ui
from turnlog.events.agent import (
    AgentCheckpoint,
    AgentEnd,
    AgentHandoff,
    AgentStart,
    AgentUsage,
    ContextCompact,
    Cost,
    Usage,
)
from turnlog.events.assistant import (
    AssistantBlock,
    AssistantFiles,
    AssistantMessage,
    AssistantThinking,
    AssistantView,
    Citation,
    File,
    View,
)
from turnlog.events.block import BlockDelta, BlockEnd, BlockRetract, BlockStart
from turnlog.events.catalog import Catalog, EventType, Vocabulary
from turnlog.events.envelope import (
    Entry,
    Envelope,
    EnvelopeDraft,
    Event,
    EventDraft,
    Scope,
    UnknownPayload,
    decode_any_envelope,
    decode_envelope,
    encode_envelope,
    encode_sse_frame,
    is_session_id,
)
from turnlog.events.parse import ParseReject
from turnlog.events.payload import Origin, Payload, Record
from turnlog.events.process import (
    ProcessAuth,
    ProcessEnd,
    ProcessStart,
    SessionClose,
    SessionError,
    SessionInvite,
    SessionInviteEnd,
    SessionMember,
    SessionTitle,
)
from turnlog.events.tool import (
    ApprovalDecision,
    ApprovalRequest,
    AwaitedCall,
    ErrorInfo,
    Image,
    ToolAwait,
    ToolCall,
    ToolProgress,
    ToolResult,
)
from turnlog.events.ui import Action, UiAction, UiCommand, UiMessage

CORE = Vocabulary(
    "turnlog",
    [
        *process.EVENTS,
        *ui.EVENTS,
        *agent.EVENTS,
        *block.EVENTS,
        *assistant.EVENTS,
        *tool.EVENTS,
        *parse.EVENTS,
    ],
)
CATALOG = Catalog(CORE)

__all__ = [
    "CATALOG",
    "CORE",
    "Action",
    "AgentCheckpoint",
    "AgentEnd",
    "AgentHandoff",
    "AgentStart",
    "AgentUsage",
    "ApprovalDecision",
    "ApprovalRequest",
    "AssistantBlock",
    "AssistantFiles",
    "AssistantMessage",
    "AssistantThinking",
    "AssistantView",
    "AwaitedCall",
    "BlockDelta",
    "BlockEnd",
    "BlockRetract",
    "BlockStart",
    "Catalog",
    "Citation",
    "ContextCompact",
    "Cost",
    "Entry",
    "Envelope",
    "EnvelopeDraft",
    "ErrorInfo",
    "Event",
    "EventDraft",
    "EventType",
    "File",
    "Image",
    "Origin",
    "ParseReject",
    "Payload",
    "ProcessAuth",
    "ProcessEnd",
    "ProcessStart",
    "Record",
    "Scope",
    "SessionClose",
    "SessionError",
    "SessionInvite",
    "SessionInviteEnd",
    "SessionMember",
    "SessionTitle",
    "ToolAwait",
    "ToolCall",
    "ToolProgress",
    "ToolResult",
    "UiAction",
    "UiCommand",
    "UiMessage",
    "UnknownPayload",
    "Usage",
    "View",
    "Vocabulary",
    "decode_any_envelope",
    "decode_envelope",
    "encode_envelope",
    "encode_sse_frame",
    "is_session_id",
]
