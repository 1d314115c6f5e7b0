"""Readers of `blocks-xml` and `blocks-raw` as they were written before `blocks`, from their description.

The reader of tags appends the messages to one text and looks for tags that it knows; all others are text. It
decodes entities in attributes only, and in text turns a backslash and `n` into a line break. CDATA is taken
out first, as it is. The reader of `blocks-raw` reads JSON of the provider, and tags where a line begins with
`<`.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from html import unescape
from typing import Any

KNOWN_TAGS = {
    *(f"content-block-{name}" for name in ("text", "thinking", "tool_call", "tool_result")),
    *(f"content-block-{name}" for name in ("server_tool_call", "server_tool_result", "error", "meta_files")),
    *("meta_init", "meta_final", "awaiting_frontend_tools", "citations", "citation"),
}
TAG = re.compile(r"<(/?)([a-zA-Z][a-zA-Z0-9_:-]*)([^>]*)>")
ATTRIBUTE = re.compile(r"""([a-zA-Z0-9_:-]+)=(?:"([^"]*)"|'([^']*)'|([^ \t\n\r\f/>]+))""")
CDATA = re.compile(r"<!\[CDATA\[([\s\S]*?)\]\]>")
OPEN_CDATA = re.compile(r"<!\[CDATA\[(?:(?!\]\]>)[\s\S])*$")


@dataclass
class Node:
    """An element, or a text without a tag."""

    tag: str
    attributes: dict[str, str] = field(default_factory=dict)
    children: list["Node"] = field(default_factory=list)
    content: str = ""

    @property
    def text(self) -> str:
        return self.content + "".join(child.text for child in self.children)


def is_known(name: str, stack: list[Node]) -> bool:
    if name in ("text", "image"):
        return any(node.tag == "content-block-tool_result" for node in stack)
    if name == "rollback":
        return len(stack) == 1
    return name in KNOWN_TAGS or name.endswith("_tool_result")


def read_tags(chunks: Iterable[str]) -> list[Node]:
    """The outer nodes of a stream of tags; an incomplete CDATA at its end is left out."""
    text = OPEN_CDATA.sub("", "".join(chunks))
    sections: list[str] = []

    def take_out(match: re.Match[str]) -> str:
        sections.append(match[1])
        return f"\ue000{len(sections) - 1}\ue001"

    text = CDATA.sub(take_out, text)

    def shown(piece: str) -> Node:
        piece = re.sub("\ue000(\\d+)\ue001", lambda match: sections[int(match[1])], piece)
        return Node("", content=piece.replace("\\n", "\n"))

    stack = [Node("root")]
    at = 0
    for match in TAG.finditer(text):
        slash, name, attributes = match.groups()
        if not is_known(name, stack):
            continue
        if match.start() > at:
            stack[-1].children.append(shown(text[at : match.start()]))
        at = match.end()
        if slash:
            opened = [place for place, node in enumerate(stack) if node.tag == name]
            if opened:
                del stack[opened[-1] :]
            else:
                stack[-1].children.append(shown(match[0]))
            continue
        found = {key: unescape(a or b or c) for key, a, b, c in ATTRIBUTE.findall(attributes)}
        node = Node(name, found)
        stack[-1].children.append(node)
        if not attributes.endswith("/"):
            stack.append(node)
    if at < len(text):
        stack[-1].children.append(shown(text[at:]))
    return stack[0].children


def read_raw(messages: Iterable[str]) -> tuple[list[dict[str, Any]], list[Node]]:
    """The events of the provider, and the tags between them."""
    events: list[dict[str, Any]] = []
    tags: list[str] = []
    for message in messages:
        if message.lstrip().startswith("<"):
            tags.append(message)
        else:
            events.append(json.loads(message))
    return events, read_tags(tags)
