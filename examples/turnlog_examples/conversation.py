"""What the scripts of the examples ask of a conversation: the words that count, and what calls brought."""

import re
from typing import NamedTuple

from turnlog.state.content_parts import ContentPart
from turnlog.state.history import Message

HELLO = r"hi|hello|hey|hallo|good (?:morning|day|evening)|thanks|thank you|help|what can you do"
GREETING = re.compile(rf"\W*(?:{HELLO})(?:,? (?:there|all|everyone|me|you))?\W*", re.I)


class Result(NamedTuple):
    """The answer to a call, as the model reads it."""

    tool: str
    text: str
    ok: bool


def last_text(messages: list[Message]) -> str:
    """What was asked last: the user's words, or the prompt of a call or a hand-off."""
    texts = [
        part["text"]
        for message in messages
        if message.role == "user"
        for part in message.content
        if part["type"] == "text"
    ]
    return str(texts[-1]).strip() if texts else ""


def is_greeting(text: str) -> bool:
    """Whether a person only says hello, or asks what there is to do: no place and no subject to work on."""
    return GREETING.fullmatch(text) is not None


def results(messages: list[Message]) -> list[Result]:
    """The results since then, in the order of their calls."""
    names: dict[str, str] = {}
    found: list[Result] = []
    for message in messages:
        for part in message.content:
            if part["type"] == "tool_use":
                names[part["id"]] = part["name"]
            elif part["type"] == "tool_result":
                found.append(
                    Result(names.get(part["tool_use_id"], ""), words(part["content"]), not part["is_error"])
                )
            elif part["type"] == "text" and message.role == "user":
                found = []
    return found


def words(content: str | list[ContentPart]) -> str:
    """The words of a result, without its pictures."""
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return "\n".join(part["text"] for part in parts if part["type"] == "text")
