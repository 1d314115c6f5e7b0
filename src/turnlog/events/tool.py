"""Calls of tools, their progress and results, and the approvals that guard them."""

from hashlib import sha256
from typing import Annotated, Any, ClassVar, Literal

from msgspec import Meta, field, json

from turnlog.events.content import Address, SizeBytes
from turnlog.events.payload import (
    ANY_ORIGIN,
    SYSTEM_ORIGINS,
    ClientMessageId,
    Name,
    OpaqueId,
    Origins,
    Payload,
    Record,
    Timestamp,
    explicit_null,
)

ARGS_HASH_DIGITS = 32  # 128 bits: an approval holds for these arguments only

ExecutorKind = Literal["backend", "frontend", "provider", "remote", "runtime"]
Extra = Annotated[
    dict[str, Any] | None,
    Meta(description="Other fields of the provider's block; they are sent back unchanged."),
]


def hash_args(args: dict[str, Any]) -> str:
    """Hash the arguments of a call. Equal JSON has equal hashes, whatever the order of its keys."""
    return sha256(json.encode(args, order="deterministic")).hexdigest()[:ARGS_HASH_DIGITS]


class ToolCall(Payload, frozen=True, kw_only=True):
    """The model called a tool. `executor` is where it runs: in this process, in the page, at the provider, in
    a remote process that follows the session and appends the result, or in the runtime of the agent itself,
    such as another framework."""

    TYPE: ClassVar = "tool.call"
    ORIGINS: ClassVar[Origins] = frozenset({"model", "app", "system"})
    EXAMPLE: ClassVar = {
        "call_id": "toolu_01",
        "tool": "weight_entry_save_batch",
        "args": {"rows": [{"measured_at": "2026-01-08T12:00:00-05:00", "weight_lbs": 187.6, "notes": ""}]},
    }

    call_id: OpaqueId
    tool: Name
    args: dict[str, Any]
    executor: ExecutorKind = "backend"
    block_id: OpaqueId | None = None
    message_id: OpaqueId | None = None
    incomplete: Annotated[str | None, Meta(description="Arguments that are not valid JSON, unchanged.")] = (
        None
    )
    extra: Extra = None
    idempotency_key: Annotated[
        OpaqueId | None,
        Meta(description="Another call of this tool with the same key gets the same result and is not run."),
    ] = None

    @property
    def args_hash(self) -> str:
        """Return the hash that binds an approval, or an idempotency key, to these arguments."""
        return hash_args(self.args)


class ToolProgress(Payload, frozen=True, kw_only=True):
    """A running tool reported progress."""

    TYPE: ClassVar = "tool.progress"
    ORIGINS: ClassVar[Origins] = frozenset({"tool", "app"})
    LIVE: ClassVar = True
    EXAMPLE: ClassVar = {"call_id": "toolu_01", "text": "120 of 400 files"}

    call_id: OpaqueId
    text: str


class ErrorInfo(Record, frozen=True, kw_only=True):
    """Why a call failed, without stack traces."""

    code: Name
    message: str
    details: dict[str, Any] | None = None


class Image(Record, frozen=True, kw_only=True):
    """An image by its address: a blob's, or a short data URI. It must fit into one SSE message."""

    src: Address
    media_type: Name
    size_bytes: SizeBytes = None


class ToolResult(Payload, frozen=True, kw_only=True):
    """A call has its result. `ok`, `result` and `error` are always written, also if they are null."""

    TYPE: ClassVar = "tool.result"
    ORIGINS: ClassVar[Origins] = ANY_ORIGIN
    EXAMPLE: ClassVar = {
        "call_id": "toolu_01",
        "tool": "weight_entry_save_batch",
        "ok": False,
        "result": None,
        "error": {
            "code": "VALIDATION_ERROR",
            "message": "weight_lbs must be > 0",
            "details": {"path": ["rows", 0, "weight_lbs"]},
        },
    }

    call_id: OpaqueId
    tool: Name
    ok: bool
    result: Any = field(default_factory=explicit_null)
    error: ErrorInfo | None = field(default_factory=explicit_null)
    kind: Annotated[Name | None, Meta(description="The provider's name of the result.")] = None
    images: tuple[Image, ...] = ()
    extra: Extra = None
    client_message_id: Annotated[
        ClientMessageId | None,
        Meta(description="The id of the message in which a client of AG-UI sent the result."),
    ] = None

    @classmethod
    def cancelled(cls, call: ToolCall, message: str) -> "ToolResult":
        error = ErrorInfo(code="CANCELLED", message=message)
        return cls(call_id=call.call_id, tool=call.tool, ok=False, error=error)


def find_contradiction(result: ToolResult) -> str | None:
    """Return the problem of a result that reports success and failure at once; None if it has none."""
    if result.ok and result.error is not None:
        return "expected no error in a result that is ok"
    if not result.ok and result.error is None:
        return "expected an error in a result that is not ok"
    if not result.ok and result.result is not None:
        return "expected no result beside an error"
    return None


class AwaitedCall(Record, frozen=True, kw_only=True):
    call_id: OpaqueId
    tool: Name
    args: dict[str, Any]
    roles: Annotated[
        tuple[Name, ...], Meta(description="Who may answer: one of these; empty is any member.")
    ] = ()


class ToolAwait(Payload, frozen=True, kw_only=True):
    """The agent waits until the page answers these calls. Its backend calls are done."""

    TYPE: ClassVar = "tool.await"
    ORIGINS: ClassVar[Origins] = SYSTEM_ORIGINS
    EXAMPLE: ClassVar = {
        "calls": [{"call_id": "toolu_01", "tool": "user_confirm", "args": {"question": "Continue?"}}]
    }

    calls: tuple[AwaitedCall, ...]


class ApprovalRequest(Payload, frozen=True, kw_only=True):
    """A call needs a person's approval, valid once for this call and its arguments, until it expires."""

    TYPE: ClassVar = "approval.request"
    ORIGINS: ClassVar[Origins] = SYSTEM_ORIGINS
    EXAMPLE: ClassVar = {
        "call_id": "toolu_01",
        "tool": "weight_entry_delete_batch",
        "args_hash": "9f86d081884c7d65",
        "risk": "db_write",
    }

    call_id: OpaqueId
    tool: Name
    args_hash: OpaqueId
    risk: Name
    reason: str | None = None
    expires_at: Timestamp | None = None
    args: Annotated[
        dict[str, Any] | None,
        Meta(description="The arguments, for a reader whose view has no calls; the log does not have them."),
    ] = None
    roles: Annotated[
        tuple[Name, ...], Meta(description="Who may decide: one of these; empty is anyone.")
    ] = ()


class ApprovalDecision(Payload, frozen=True, kw_only=True):
    """A person decided, or the request expired."""

    TYPE: ClassVar = "approval.decision"
    ORIGINS: ClassVar[Origins] = frozenset({"ui", "app", "system"})
    EXAMPLE: ClassVar = {"call_id": "toolu_01", "args_hash": "9f86d081884c7d65", "decision": "approve"}

    call_id: OpaqueId
    args_hash: OpaqueId
    decision: Literal["approve", "deny", "expired"]
    notes: str | None = None


EVENTS = (ToolCall, ToolProgress, ToolResult, ToolAwait, ApprovalRequest, ApprovalDecision)
