"""The vocabulary of Turnlog: one name for each thing that can happen.

Every payload class is importable from here. `CORE` declares the package's own types, `TEAM` the team's;
`CATALOG` joins both. An application adds its own: `Catalog(CORE, TEAM, Vocabulary("broker", [...]))`.
The reference `docs/events.md` is generated from the classes; the rules are in `docs/protocol.md` 2 and 3.
"""

from turnlog.events.agent import AgentEnd, AgentHandoff, AgentStart, AgentUsage, ContextCompact, Cost, Usage
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
from turnlog.events.base import Origin, Payload, Record
from turnlog.events.block import BlockDelta, BlockEnd, BlockRetract, BlockStart
from turnlog.events.catalog import Catalog, Kind, Vocabulary
from turnlog.events.envelope import (
    Entry,
    Envelope,
    Event,
    Scope,
    Unknown,
    decode,
    frame,
    is_session_id,
    stamp,
)
from turnlog.events.parse import ParseReject
from turnlog.events.process import ProcessAuth, ProcessEnd, ProcessStart, SessionError
from turnlog.events.team import (
    TEAM,
    ArtifactWrite,
    JobSuggest,
    RosterJoin,
    RosterOffer,
    RosterStatus,
    ScreenCommand,
)
from turnlog.events.tool import (
    ApprovalDecision,
    ApprovalRequest,
    AwaitedCall,
    Fault,
    Image,
    ToolAwait,
    ToolCall,
    ToolProgress,
    ToolResult,
)
from turnlog.events.ui import UiAction, UiCommand, UiMessage

CORE = Vocabulary(
    "turnlog",
    [
        ProcessStart,
        ProcessEnd,
        ProcessAuth,
        SessionError,
        UiMessage,
        UiAction,
        UiCommand,
        AgentStart,
        AgentEnd,
        AgentHandoff,
        AgentUsage,
        ContextCompact,
        BlockStart,
        BlockDelta,
        BlockEnd,
        BlockRetract,
        AssistantMessage,
        AssistantThinking,
        AssistantBlock,
        AssistantView,
        AssistantFiles,
        ToolCall,
        ToolProgress,
        ToolResult,
        ToolAwait,
        ApprovalRequest,
        ApprovalDecision,
        ParseReject,
    ],
)

CATALOG = Catalog(CORE, TEAM)

__all__ = [
    "CATALOG",
    "CORE",
    "TEAM",
    "AgentEnd",
    "AgentHandoff",
    "AgentStart",
    "AgentUsage",
    "ApprovalDecision",
    "ApprovalRequest",
    "ArtifactWrite",
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
    "Event",
    "Fault",
    "File",
    "Image",
    "JobSuggest",
    "Kind",
    "Origin",
    "ParseReject",
    "Payload",
    "ProcessAuth",
    "ProcessEnd",
    "ProcessStart",
    "Record",
    "RosterJoin",
    "RosterOffer",
    "RosterStatus",
    "Scope",
    "ScreenCommand",
    "SessionError",
    "ToolAwait",
    "ToolCall",
    "ToolProgress",
    "ToolResult",
    "UiAction",
    "UiCommand",
    "UiMessage",
    "Unknown",
    "Usage",
    "View",
    "Vocabulary",
    "decode",
    "frame",
    "is_session_id",
    "stamp",
]
