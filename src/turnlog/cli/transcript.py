"""The transcript of an `Assembler` for a terminal: lines with a kind, so that they can be coloured.

Input: the agents of an assembler. Output: the lines of one agent after the other. The JavaScript client
builds the same text.
"""

from collections.abc import Mapping
from typing import NamedTuple

from turnlog.client.blocks import AssembledAgent, AssembledBlock, AssembledCitation, get_text_field

TITLE_KEYS = ("document_title", "title", "url")

LABELS = {
    "text": "text",
    "thinking": "thinking",
    "tool_call": "call",
    "server_tool_call": "provider call",
    "tool_result": "result",
    "server_tool_result": "provider result",
    "awaiting_frontend_tools": "waiting for",
    "meta_files": "files",
    "error": "error",
}
ITEM_NAME_KEYS = {"awaiting_frontend_tools": "name", "meta_files": "filename"}  # in values that are lists


class TranscriptLine(NamedTuple):
    """A part of a transcript. `kind` is a block's type, or one of agent, user, cited, image, end."""

    kind: str
    label: str
    text: str
    indent: str = ""

    def __str__(self) -> str:
        return "".join(self.parts())

    def parts(self) -> tuple[str, str]:
        label = self.indent + self.label
        if self.kind != "agent":
            label += ":"
        text = f" {self.text}" if self.text else ""
        margin = f"\n{self.indent}  "
        return label.replace("\n", margin), text.replace("\n", margin)


def build_transcript(agents: Mapping[str, AssembledAgent]) -> list[TranscriptLine]:
    lines: list[TranscriptLine] = []
    for agent in agents.values():
        lines += format_agent_lines(agent, agents)
    return lines


def format_agent_lines(agent: AssembledAgent, agents: Mapping[str, AssembledAgent]) -> list[TranscriptLine]:
    lines = [format_agent_heading(agent, agents)]
    query = get_text_field(agent.meta_init, "user_query")
    if query:
        lines.append(TranscriptLine("user", "user", query))

    finished_waits = agent.finished_waits()
    for block in agent.blocks:
        if block.call is None:  # results are below their call
            label = "waited for" if block in finished_waits else LABELS[block.type]
            lines += format_block_lines(block, label)

    reason = get_text_field(agent.meta_final, "stop_reason")
    if reason:
        lines.append(TranscriptLine("end", "end", reason))
    return lines


def format_agent_heading(agent: AssembledAgent, agents: Mapping[str, AssembledAgent]) -> TranscriptLine:
    details = [f"[{agent.id}]"]
    model = get_text_field(agent.meta_init, "model")
    if model:
        details.append(model)
    parent_id = get_text_field(agent.meta_init, "parent_agent_uuid")
    if parent_id:
        parent = agents.get(parent_id)
        parent_name = parent.name if parent else ""
        details.append(f"called by {parent_name or parent_id}")

    text = " ".join(details)
    if not agent.name:
        return TranscriptLine("agent", text, "")
    return TranscriptLine("agent", agent.name, text)


def format_block_lines(block: AssembledBlock, label: str, indent: str = "") -> list[TranscriptLine]:
    if block.name and block.call is None:  # a result has the name of its call
        label += f" {block.name}"
    if not block.complete:
        label += " (incomplete)"
    lines = [TranscriptLine(block.type, label, block_text(block), indent)]

    deeper = indent + "  "
    for citation in block.citations:
        lines.append(TranscriptLine("cited", "cited", format_citation_line(citation), deeper))
    for image in block.images:
        lines.append(TranscriptLine("image", "image", image["src"], deeper))
    for result in block.results:
        lines += format_block_lines(result, LABELS[result.type], deeper)
    return lines


def block_text(block: AssembledBlock) -> str:
    name_key = ITEM_NAME_KEYS.get(block.type)
    if name_key is None or not isinstance(block.value, list):
        return block.text
    names = ", ".join(get_text_field(item, name_key) or "?" for item in block.value)
    return names or block.text


def format_citation_line(citation: AssembledCitation) -> str:
    for key in TITLE_KEYS:
        title = get_text_field(citation.fields, key)
        if title:
            return f"{citation.cited_text} ({title})"
    return citation.cited_text
