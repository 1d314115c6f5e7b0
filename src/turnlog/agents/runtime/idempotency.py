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

from turnlog.events import AgentEnd, Envelope, Fault, Payload, ToolCall, ToolResult, Unknown

KEPT = 1024  # answers; keys are for the retries of minutes, not for an archive
KEPT_BYTES = 8 << 20  # of them all, as they stand in the log
HASH_DIGITS = 32  # 128 bits: nobody can make two sets of arguments with one hash
KEY = "idempotency_key"

Known = tuple[str, str]  # the tool and the key


class Answered(NamedTuple):
    """The first answer to a key."""

    args_hash: str
    result: ToolResult
    size_bytes: int = 0

    def repeat(self, call: ToolCall) -> ToolResult:
        """The answer to another call with this key."""
        if args_hash(call.args) == self.args_hash:
            return structs.replace(self.result, call_id=call.call_id)
        fault = Fault(
            code="VALIDATION_ERROR",
            message="this idempotency key belongs to a call with other arguments",
            details={"path": [KEY]},
        )
        return ToolResult(call_id=call.call_id, tool=call.tool, ok=False, error=fault)


@dataclass(slots=True)
class Calls:
    """What was answered in a session, by key."""

    done: dict[Known, Answered] = field(default_factory=dict)
    _unwritten: dict[Known, Answered] = field(default_factory=dict)
    _open: dict[tuple[str | None, str], ToolCall] = field(default_factory=dict)

    def apply(self, envelope: Envelope, payload: Payload | Unknown) -> None:
        """Take one event into account."""
        match payload:
            case ToolCall() if key_of(payload):
                self._open[envelope.agent_id, payload.call_id] = payload
            case ToolResult():
                call = self._open.pop((envelope.agent_id, payload.call_id), None)
                if call is not None and payload.ok:
                    self._unwritten.pop(known(call), None)
                    self._keep(call, payload, len(bytes(envelope.payload)))
            case AgentEnd():
                for key in [key for key in self._open if key[0] == envelope.agent_id]:
                    del self._open[key]
            case _:
                pass

    def answer(self, call: ToolCall) -> ToolResult | None:
        """The answer to a call whose key has one."""
        answered = self.done.get(known(call)) or self._unwritten.get(known(call))
        return answered.repeat(call) if answered else None

    def remember(self, call: ToolCall, result: ToolResult) -> None:
        """Remember a good answer until it is in the log."""
        size_bytes = len(msgspec.json.encode(result))
        self._unwritten[known(call)] = Answered(args_hash(call.args), result, size_bytes)
        trim(self._unwritten)

    def _keep(self, call: ToolCall, result: ToolResult, size_bytes: int) -> None:
        if known(call) in self.done:
            return  # a repeat: the first answer stands
        self.done[known(call)] = Answered(args_hash(call.args), result, size_bytes)
        trim(self.done)


def trim(answers: dict[Known, Answered]) -> None:
    """Drop the oldest answers until the rest is within the limits."""
    size_bytes = sum(answered.size_bytes for answered in answers.values())
    while len(answers) > KEPT or size_bytes > KEPT_BYTES:
        size_bytes -= answers.pop(next(iter(answers))).size_bytes


def key_of(call: ToolCall) -> str | None:
    """The idempotency key of a call, if it has one."""
    key = call.idempotency_key or call.args.get(KEY)
    return key if isinstance(key, str) and key else None


def known(call: ToolCall) -> Known:
    """What a call is remembered by."""
    return call.tool, key_of(call) or ""


def args_hash(args: dict[str, Any]) -> str:
    """The hash of a call's arguments: equal for equal JSON, whatever the order of its keys."""
    return sha256(msgspec.json.encode(args, order="deterministic")).hexdigest()[:HASH_DIGITS]
