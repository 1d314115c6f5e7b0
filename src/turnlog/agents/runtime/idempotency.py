"""Results by idempotency key: a fold over a session's log.

A call has a key if its caller passed one, or if its arguments have an `idempotency_key`. The first successful
result of a tool for a key answers every later call with that key and the same arguments; other arguments are
refused. A call that failed may be repeated. The newest results are kept within the limits below; a repeat of
an older call runs again. A result is pending until its event is in the log. An open call is forgotten when
its agent ends.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

import msgspec
from msgspec import structs

from turnlog.events import AgentEnd, Envelope, ErrorInfo, Payload, ToolCall, ToolResult, UnknownPayload

MAX_ENTRIES = 1024  # keys are for retries within minutes
MAX_TOTAL_BYTES = 8 << 20  # of all results, as encoded in the log
HASH_DIGITS = 32  # 128 bits: no attacker can find two sets of arguments with one hash
KEY_ARGUMENT = "idempotency_key"

CacheKey = tuple[str, str]  # the name of the tool and the idempotency key


class CachedResult(NamedTuple):
    """The first successful result for a key."""

    args_hash: str
    result: ToolResult
    size_bytes: int = 0

    def replay(self, call: ToolCall) -> ToolResult:
        """Return the result of another call with this key, or an error if its arguments differ."""
        if call.args_hash == self.args_hash:
            return structs.replace(self.result, call_id=call.call_id)
        error = ErrorInfo(
            code="VALIDATION_ERROR",
            message="this idempotency key belongs to a call with other arguments",
            details={"path": [KEY_ARGUMENT]},
        )
        return ToolResult(call_id=call.call_id, tool=call.tool, ok=False, error=error)


@dataclass(slots=True)
class IdempotencyCache:
    """The results of one session by key."""

    results: dict[CacheKey, CachedResult] = field(default_factory=dict)
    _pending_results: dict[CacheKey, CachedResult] = field(default_factory=dict)
    _open_calls: dict[tuple[str | None, str], ToolCall] = field(default_factory=dict)

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
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
        key = idempotency_cache_key(call)
        cached = self.results.get(key) or self._pending_results.get(key)
        return cached.replay(call) if cached else None

    def add_pending(self, call: ToolCall, result: ToolResult) -> None:
        size_bytes = len(msgspec.json.encode(result))
        cached = CachedResult(call.args_hash, result, size_bytes)
        self._pending_results[idempotency_cache_key(call)] = cached
        trim_cache(self._pending_results)

    def _add(self, call: ToolCall, result: ToolResult, size_bytes: int) -> None:
        key = idempotency_cache_key(call)
        if key in self.results:
            return  # the first result counts
        self.results[key] = CachedResult(call.args_hash, result, size_bytes)
        trim_cache(self.results)


def trim_cache(results: dict[CacheKey, CachedResult]) -> None:
    size_bytes = sum(cached.size_bytes for cached in results.values())
    while len(results) > MAX_ENTRIES or size_bytes > MAX_TOTAL_BYTES:
        oldest_key = next(iter(results))
        size_bytes -= results.pop(oldest_key).size_bytes


def find_idempotency_key(call: ToolCall) -> str | None:
    key = call.idempotency_key or call.args.get(KEY_ARGUMENT)
    return key if isinstance(key, str) and key else None


def idempotency_cache_key(call: ToolCall) -> CacheKey:
    return call.tool, find_idempotency_key(call) or ""
