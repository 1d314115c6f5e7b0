"""Calls that have been answered, remembered by their idempotency key: a fold over a session's log.

A call has a key if its caller gave one, or if its arguments have an `idempotency_key`. The first good answer
of a tool to a key answers every later call with that key and the same arguments; other arguments are refused.
A call that failed may be tried again. The newest are kept, as many and as much as the limits say: a repeat of
something older runs again. An answer that a tool has just given is remembered until its event is in the log;
a call that is open is forgotten when its agent ends.
"""

from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec
from msgspec import structs

from turnlog.events import AgentEnd, Envelope, ErrorInfo, Payload, ToolCall, ToolResult, UnknownPayload

MAX_ENTRIES = 1024  # answers; keys are for the retries of minutes, not for an archive
MAX_TOTAL_BYTES = 8 << 20  # of them all, as they stand in the log
HASH_DIGITS = 32  # 128 bits: nobody can make two sets of arguments with one hash
KEY_ARGUMENT = "idempotency_key"

CacheKey = tuple[str, str]  # the tool and the key


class CachedResult(NamedTuple):
    """The first answer to a key."""

    args_hash: str
    result: ToolResult
    size_bytes: int = 0

    def replay(self, call: ToolCall) -> ToolResult:
        """The answer to another call with this key."""
        if hash_call_args(call.args) == self.args_hash:
            return structs.replace(self.result, call_id=call.call_id)
        fault = ErrorInfo(
            code="VALIDATION_ERROR",
            message="this idempotency key belongs to a call with other arguments",
            details={"path": [KEY_ARGUMENT]},
        )
        return ToolResult(call_id=call.call_id, tool=call.tool, ok=False, error=fault)


@dataclass(slots=True)
class IdempotencyCache:
    """What was answered in a session, by key."""

    results: dict[CacheKey, CachedResult] = field(default_factory=dict)
    _pending_results: dict[CacheKey, CachedResult] = field(default_factory=dict)
    _open_calls: dict[tuple[str | None, str], ToolCall] = field(default_factory=dict)

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        """Take one event into account."""
        match payload:
            case ToolCall() if find_idempotency_key(payload):
                self._open_calls[envelope.agent_id, payload.call_id] = payload
            case ToolResult():
                call = self._open_calls.pop((envelope.agent_id, payload.call_id), None)
                if call is not None and payload.ok:
                    self._pending_results.pop(idempotency_cache_key(call), None)
                    self._add(call, payload, len(bytes(envelope.payload)))
            case AgentEnd():
                for key in [key for key in self._open_calls if key[0] == envelope.agent_id]:
                    del self._open_calls[key]
            case _:
                pass

    def find_result(self, call: ToolCall) -> ToolResult | None:
        """The answer to a call whose key has one."""
        answered = self.results.get(idempotency_cache_key(call)) or self._pending_results.get(
            idempotency_cache_key(call)
        )
        return answered.replay(call) if answered else None

    def add_pending(self, call: ToolCall, result: ToolResult) -> None:
        """Remember a good answer until it is in the log."""
        size_bytes = len(msgspec.json.encode(result))
        self._pending_results[idempotency_cache_key(call)] = CachedResult(
            hash_call_args(call.args), result, size_bytes
        )
        trim_cache(self._pending_results)

    def _add(self, call: ToolCall, result: ToolResult, size_bytes: int) -> None:
        if idempotency_cache_key(call) in self.results:
            return  # a repeat: the first answer stands
        self.results[idempotency_cache_key(call)] = CachedResult(
            hash_call_args(call.args), result, size_bytes
        )
        trim_cache(self.results)


def trim_cache(answers: dict[CacheKey, CachedResult]) -> None:
    """Drop the oldest answers until the rest is within the limits."""
    size_bytes = sum(answered.size_bytes for answered in answers.values())
    while len(answers) > MAX_ENTRIES or size_bytes > MAX_TOTAL_BYTES:
        size_bytes -= answers.pop(next(iter(answers))).size_bytes


def find_idempotency_key(call: ToolCall) -> str | None:
    """The idempotency key of a call, if it has one."""
    key = call.idempotency_key or call.args.get(KEY_ARGUMENT)
    return key if isinstance(key, str) and key else None


def idempotency_cache_key(call: ToolCall) -> CacheKey:
    """What a call is remembered by."""
    return call.tool, find_idempotency_key(call) or ""


def hash_call_args(args: dict[str, Any]) -> str:
    """The hash of a call's arguments: equal for equal JSON, whatever the order of its keys."""
    return sha256(msgspec.json.encode(args, order="deterministic")).hexdigest()[:HASH_DIGITS]
