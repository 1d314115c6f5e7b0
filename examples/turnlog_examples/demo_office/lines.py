"""The lines that the stand-in writes: one place for every shape of stream-json.

Ids follow from the session, the number of the turn and a count, so the same messages give the same lines.
With partial messages a block comes twice, as the original's do: in pieces, and whole before it stops.
"""

from collections.abc import Callable
from hashlib import sha256
from typing import Any
from uuid import NAMESPACE_OID, uuid5

import msgspec

Data = dict[str, Any]

TOOLS = ["Task", "Bash", "Read", "Write"]
TOKEN_CHARS = 4
PRICES = {"input": 3e-6, "output": 15e-6}  # dollars for a token; they only have to be positive


class Lines:
    """Stdout, line by line."""

    def __init__(self, session_id: str, write: Callable[[bytes], None], partials: bool, model: str) -> None:
        self.session_id, self.partials, self.model = session_id, partials, model
        self._write = write
        self._turn = self._count = 0

    def begin(self, turn: int) -> None:
        """Another turn: ids begin anew."""
        self._turn, self._count = turn, 0

    def new_id(self, prefix: str) -> str:
        """An id that no other turn has."""
        self._count += 1
        return prefix + sha256(f"{self.session_id}:{self._turn}:{self._count}".encode()).hexdigest()[:24]

    def raw(self, data: bytes) -> None:
        """Bytes as they are."""
        self._write(data)

    def line(self, type: str, **fields: Any) -> None:
        """One line."""
        uuid = str(uuid5(NAMESPACE_OID, self.new_id("line_")))
        line = {"type": type, **fields, "session_id": self.session_id, "uuid": uuid}
        self._write(msgspec.json.encode(line) + b"\n")

    def system(self, subtype: str, **fields: Any) -> None:
        self.line("system", subtype=subtype, **fields)

    def init(self, cwd: str) -> None:
        self.system(
            "init",
            cwd=cwd,
            tools=TOOLS,
            mcp_servers=[],
            model=self.model,
            permissionMode="default",
            slash_commands=["compact"],
            agents=["newcomer"],
            apiKeySource="none",
            claude_code_version="standin",
            output_style="default",
        )

    def event(self, **event: Any) -> None:
        """An event of the main agent's message while it streams."""
        if self.partials:
            self.line("stream_event", event=event, parent_tool_use_id=None)

    def message_start(self, message_id: str, **about: Any) -> None:
        if not about:
            self.event(type="message_start", message=message_of(message_id, [], self.model))

    def block(self, message_id: str, block: Data, **about: Any) -> None:
        """A whole block."""
        message = message_of(message_id, [block], self.model)
        self.line("assistant", message=message, **({"parent_tool_use_id": None} | about))

    def user(self, content: Any, **about: Any) -> None:
        """What the model is told."""
        message = {"role": "user", "content": content}
        self.line("user", message=message, **({"parent_tool_use_id": None} | about))

    def tool_result(self, call_id: str, text: str, ok: bool, account: Any, **about: Any) -> None:
        block = {"type": "tool_result", "tool_use_id": call_id, "content": text, "is_error": not ok}
        self.user([block], tool_use_result=account, **about)

    def control(self, request_id: str, response: Data | None, error: str = "") -> None:
        """The answer to something the host asked."""
        good, bad = {"subtype": "success", "response": response}, {"subtype": "error", "error": error}
        self.line("control_response", response={"request_id": request_id, **(bad if error else good)})


def message_of(message_id: str, content: list[Data], model: str) -> Data:
    """A message of the provider, while it is not finished."""
    return {
        "id": message_id,
        "type": "message",
        "role": "assistant",
        "model": model,
        "content": content,
        "stop_reason": None,
        "usage": {"input_tokens": 10, "output_tokens": 1},
    }


class Meter:
    """What the process has taken so far, in tokens of about four characters."""

    def __init__(self) -> None:
        self.read = self.said = 0
        self._turn = (0, 0)

    def begin(self, words: str) -> None:
        """A turn: what was told is read."""
        self._turn = (self.read, self.said)
        self.heard(words)

    def heard(self, words: str) -> None:
        self.read += len(words) // TOKEN_CHARS + 1

    def spoke(self, words: str) -> None:
        self.said += len(words) // TOKEN_CHARS + 1

    def report(self, name: str) -> Data:
        """What a result says of it: the turn's own tokens, and the sums of the process."""
        cost = round(self.read * PRICES["input"] + self.said * PRICES["output"], 9)
        usage = {"input_tokens": self.read - self._turn[0], "output_tokens": self.said - self._turn[1]}
        model = {"inputTokens": self.read, "outputTokens": self.said, "costUSD": cost}
        return {"total_cost_usd": cost, "usage": usage, "modelUsage": {name: model}}
