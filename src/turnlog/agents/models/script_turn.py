"""What a script answers: the conversation so far, with the parts that scripts ask for. Pure.

Input: the messages that a model would get. Output: the last text of the user, the results of tools since
then, and the last action of the user, each read from the messages alone.
"""

import json
from typing import Any, NamedTuple

from turnlog.state.content_parts import ContentPart
from turnlog.state.history import Message

# `state/descriptions` writes an action, or an event of a page, between these.
ACTION_PREFIX = "[The user acted: "
ACTION_SUFFIX = "]"


class ScriptResult(NamedTuple):
    """The result of a call, as the model reads it."""

    tool: str
    text: str
    ok: bool


class ScriptTurn(list[Message]):
    """The messages of a conversation, and what a script asks of them."""

    @property
    def text(self) -> str:
        """Return the last text of the user, or the prompt of a call or a hand-off."""
        texts = [
            part["text"]
            for message in self
            if message.role == "user"
            for part in message.content
            if part["type"] == "text"
        ]
        return str(texts[-1]).strip() if texts else ""

    @property
    def results(self) -> list[ScriptResult]:
        """Return the results since the last text of the user, in the order of their calls."""
        tools: dict[str, str] = {}
        results: list[ScriptResult] = []
        for message in self:
            for part in message.content:
                if part["type"] == "tool_use":
                    tools[part["id"]] = part["name"]
                elif part["type"] == "tool_result":
                    tool = tools.get(part["tool_use_id"], "")
                    results.append(ScriptResult(tool, join_text(part["content"]), not part["is_error"]))
                elif part["type"] == "text" and message.role == "user":
                    results = []
        return results

    @property
    def action(self) -> dict[str, Any] | None:
        """Return what the user did if the last text says so: `action` and `view_id`, or `type` and `data`.

        The text that a person types can look the same. A script that must tell them apart has no way to.
        """
        text = self.text
        if not (text.startswith(ACTION_PREFIX) and text.endswith(ACTION_SUFFIX)):
            return None
        try:
            fields = json.loads(text.removeprefix(ACTION_PREFIX).removesuffix(ACTION_SUFFIX))
        except (ValueError, RecursionError):  # a person can type text that only looks like an action
            return None
        return fields if isinstance(fields, dict) else None


def join_text(content: str | list[ContentPart]) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content if part["type"] == "text")
