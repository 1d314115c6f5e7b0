"""Prints events for people: `AnswerPrinter` the words of the top level, `TreePrinter` a line per event.

Both take events one by one. `AnswerPrinter` writes words as they stream; only one agent at a time writes at
depth 0. `TreePrinter` writes a line when a message or a result is whole, indented by depth, because agents
that work in parallel would mix their words. Text from events cannot control the terminal.
"""

from collections import Counter
from collections.abc import Callable
from textwrap import indent
from typing import Any, ClassVar, Protocol

import msgspec
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from turnlog.cli.terminal import escape_controls, make_console
from turnlog.events import (
    AgentEnd,
    AgentHandoff,
    AgentStart,
    AssistantFiles,
    AssistantMessage,
    AssistantThinking,
    BlockDelta,
    BlockEnd,
    BlockRetract,
    BlockStart,
    Citation,
    Entry,
    SessionError,
    ToolAwait,
    ToolCall,
    ToolProgress,
    ToolResult,
)

COLOURS = ("bold cyan", "bold magenta", "bold yellow", "bold blue")  # by depth
SHORT_CHARS = 70  # of arguments and results: a compact line


class EventPrinter(Protocol):
    def print_event(self, entry: Entry) -> None: ...


def escape_text(text: str) -> str:
    """Return a text whose line ends stay. All other control characters become readable."""
    return "\n".join(map(escape_controls, text.split("\n")))


def shorten(value: object) -> str:
    text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    line = escape_controls(" ".join(text.split()))
    return line if len(line) <= SHORT_CHARS else line[: SHORT_CHARS - 1] + "…"


def format_call(tool: str, args: dict[str, Any]) -> str:
    arguments = ", ".join(f"{escape_controls(name)}={shorten(value)}" for name, value in args.items())
    return f"{escape_controls(tool)}({arguments})"


class AnswerPrinter:
    """What the agents at depth 0 say, word by word."""

    def __init__(self, screen: Console | None = None) -> None:
        self._screen = screen or make_console()
        self._open: set[str] = set()  # ids of text blocks that stream

    def print_event(self, entry: Entry) -> None:
        print_payload = self.PRINTERS.get(type(entry.payload))
        if print_payload is not None and entry.depth == 0:
            print_payload(self, entry, entry.payload)

    def _write(self, text: str, style: str = "") -> None:
        self._screen.print(Text(text, style), end="", soft_wrap=True)

    def _begin(self, entry: Entry, start: BlockStart) -> None:
        if start.kind == "text":
            self._open.add(start.block_id)
            self._write(f"{escape_controls(entry.agent_name or '')}  ", COLOURS[0])

    def _delta(self, _: Entry, delta: BlockDelta) -> None:
        if delta.block_id in self._open:
            self._write(escape_text(delta.text))

    def _end(self, _: Entry, end: BlockEnd) -> None:
        if end.block_id in self._open:
            self._open.remove(end.block_id)
            self._write("…\n" if end.status == "aborted" else "\n")

    def _retract(self, _: Entry, retract: BlockRetract) -> None:
        self._write(f"({escape_controls(retract.reason)}: that does not count, once more)\n", "yellow")

    def _wait(self, _: Entry, wait: ToolAwait) -> None:
        for call in wait.calls:
            self._write(f"?  {format_call(call.tool, call.args)}\n", "green")

    def _fail(self, _: Entry, error: SessionError) -> None:
        self._write(f"{escape_text(error.message)}\n", "red")

    PRINTERS: ClassVar[dict[type, Callable[["AnswerPrinter", Entry, Any], None]]] = {
        BlockStart: _begin,
        BlockDelta: _delta,
        BlockEnd: _end,
        BlockRetract: _retract,
        ToolAwait: _wait,
        SessionError: _fail,
    }


class TreePrinter:
    """What agents of every level do, a line for each thing that happened."""

    def __init__(self, screen: Console | None = None) -> None:
        self._screen = screen or make_console()
        self._numbers: Counter[str] = Counter()
        self._labels: dict[str, str] = {}  # by agent
        self._calls: dict[tuple[str | None, str | None], ToolCall] = {}

    def print_event(self, entry: Entry) -> None:
        print_payload = self.PRINTERS.get(type(entry.payload))
        if print_payload is not None:
            print_payload(self, entry, entry.payload)

    def _line(self, entry: Entry, sign: str, text: str, style: str = "") -> None:
        label = self._labels.get(entry.agent_id or "", entry.agent_name or "")
        line = Text().append(escape_controls(label), COLOURS[entry.depth % len(COLOURS)])
        line.append(f" {sign} ", "dim").append(indent(text, "  ").lstrip(" "), style)
        if self._screen.is_terminal:
            self._screen.print(Padding(line, (0, 0, 0, 2 * entry.depth)))
        else:
            self._screen.print(Text(indent(line.plain, "  " * entry.depth)), soft_wrap=True)

    def _start(self, entry: Entry, start: AgentStart) -> None:
        self._numbers[start.name] += 1
        number = self._numbers[start.name]
        self._calls.pop((start.parent_id, start.call_id), None)  # what comes of it, the agent says itself
        self._labels[entry.agent_id or ""] = start.name if number == 1 else f"{start.name} {number}"
        self._line(entry, "◂", shorten(start.prompt or ""), "italic")

    def _end(self, entry: Entry, end: AgentEnd) -> None:
        facts: list[str] = [end.stop_reason]
        if end.usage and end.usage.output_tokens:
            facts.append(f"{end.usage.input_tokens}+{end.usage.output_tokens} tokens")
        if end.cost:
            facts.append(f"${end.cost.total_cost:.4f}")
        self._line(entry, "■", ", ".join(facts), "dim")

    def _handoff(self, entry: Entry, handoff: AgentHandoff) -> None:
        self._line(entry, "⇢", f"hands over to {escape_controls(handoff.to)}", "green")

    def _message(self, entry: Entry, message: AssistantMessage) -> None:
        self._line(entry, "│", escape_text(message.text) + "".join(map(format_source, message.citations)))

    def _thinking(self, entry: Entry, thinking: AssistantThinking) -> None:
        self._line(entry, "…", escape_text(thinking.text), "dim italic")

    def _call(self, entry: Entry, call: ToolCall) -> None:
        self._calls[entry.agent_id, call.call_id] = call

    def _progress(self, entry: Entry, progress: ToolProgress) -> None:
        self._line(entry, "·", shorten(progress.text), "dim")

    def _result(self, entry: Entry, result: ToolResult) -> None:
        call = self._calls.pop((entry.agent_id, result.call_id), None)
        if call is None or call.tool.startswith("handoff_to_"):
            return
        line = format_call(call.tool, call.args)
        if result.error is not None:
            self._line(
                entry,
                "✗",
                f"{line} → {escape_controls(result.error.code)}, {shorten(result.error.message)}",
                "red",
            )
        else:
            images = "".join(f" [{image.media_type}]" for image in result.images)
            self._line(entry, "→", f"{line} → {shorten(result.result)}{images}")

    def _wait(self, entry: Entry, wait: ToolAwait) -> None:
        for call in wait.calls:
            self._line(entry, "?", format_call(call.tool, call.args), "green")

    def _files(self, entry: Entry, files: AssistantFiles) -> None:
        names = ", ".join(escape_controls(file.filename) for file in files.files)
        self._line(entry, "→", f"files: {names}")

    def _retract(self, entry: Entry, retract: BlockRetract) -> None:
        self._line(entry, "↶", f"{escape_controls(retract.reason)}: begins again", "yellow")

    def _fail(self, entry: Entry, error: SessionError) -> None:
        self._line(entry, "✗", f"{escape_controls(error.code)}: {shorten(error.message)}", "red")

    PRINTERS: ClassVar[dict[type, Callable[["TreePrinter", Entry, Any], None]]] = {
        AgentStart: _start,
        AgentEnd: _end,
        AgentHandoff: _handoff,
        AssistantMessage: _message,
        AssistantThinking: _thinking,
        AssistantFiles: _files,
        BlockRetract: _retract,
        ToolCall: _call,
        ToolProgress: _progress,
        ToolResult: _result,
        ToolAwait: _wait,
        SessionError: _fail,
    }


def format_source(citation: Citation) -> str:
    place = citation.url or citation.document_title or citation.title or citation.type
    return f"\n[{shorten(place)}: {shorten(citation.cited_text)}]"
