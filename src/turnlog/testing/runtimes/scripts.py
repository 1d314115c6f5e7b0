"""Scripts of models, in no framework's words: what a model reads goes in, what it says comes out.

A `RuntimeUnderTest` plays them. `ScriptRecord` has what was said and done: contracts compare the log with it.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

INPUT_TOKENS = 50  # of each completion
OUTPUT_TOKENS = 9
MODEL_NAME = "scripted"


class CallTool(NamedTuple):
    """A call of a tool, which has one argument, `value`."""

    tool: str
    value: str = ""
    call_id: str = "call_1"


class CallAgent(NamedTuple):
    """A call of a sub-agent."""

    agent: str
    prompt: str = "Go."
    call_id: str = "call_1"


class HandOff(NamedTuple):
    """A hand-off to another agent."""

    agent: str
    call_id: str = "call_1"


Call = CallTool | CallAgent | HandOff


class ScriptReply(NamedTuple):
    """What a model says in one completion, in pieces. `hangs` after the text, or fails with `error`.

    `output` are the fields of a structured output, in place of a text.
    """

    text: tuple[str, ...] = ()
    thinking: tuple[str, ...] = ()
    calls: tuple[Call, ...] = ()
    output: dict[str, Any] | None = None
    error: str | None = None
    hangs: bool = False


class HistoryItem(NamedTuple):
    """One item of what a model reads: a text of the user or of itself, a file, a call or a result.

    `text` of a call is the name of its tool. That of a file is its data URI, or the content of a text file.
    """

    kind: Literal["user", "file", "assistant", "call", "result"]
    text: str
    call_id: str = ""


@dataclass(frozen=True)
class ScriptInput:
    """What a model reads: the history, oldest first."""

    items: Sequence[HistoryItem]

    @property
    def user_texts(self) -> list[str]:
        return [item.text for item in self.items if item.kind == "user"]

    @property
    def files(self) -> list[str]:
        return [item.text for item in self.items if item.kind == "file"]

    @property
    def last_user_text(self) -> str:
        return self.user_texts[-1]

    @property
    def new_results(self) -> dict[str, str]:
        """Return the results since the last text of the user, by call."""
        results: dict[str, str] = {}
        for item in self.items:
            if item.kind == "user":
                results.clear()
            elif item.kind == "result":
                results[item.call_id] = item.text
        return results

    def check_lawful(self) -> None:
        """Raise AssertionError if a provider would refuse the history.

        Every call has one result, before the next text of the user or of the model.
        """
        open_calls: Counter[str] = Counter()
        for item in self.items:
            if item.kind == "call":
                open_calls[item.call_id] += 1
            elif item.kind == "result":
                assert open_calls[item.call_id] > 0, f"a result without a call: {item.call_id}"
                open_calls[item.call_id] -= 1
            else:
                assert not +open_calls, f"calls without a result before a {item.kind} text: {+open_calls}"
        assert not +open_calls, f"calls without a result at the end: {+open_calls}"


@dataclass(frozen=True)
class ScriptTool:
    """A tool with one argument, `value`. Without `run` it only says that it did something.

    A tool of the page is never run here.
    """

    name: str
    run: Callable[[str], Any] | None = None
    needs_approval: bool = False
    is_for_page: bool = False


@dataclass(frozen=True)
class AgentScript:
    """An agent: its model, its tools, its sub-agents, and those that it can hand over to.

    `output_fields` are the names of a structured output. `max_steps` limits the completions of a turn.
    """

    name: str
    reply: Callable[[ScriptInput], ScriptReply]
    tools: Sequence[ScriptTool] = ()
    agents: "Sequence[AgentScript]" = ()
    hand_offs: "Sequence[AgentScript]" = ()
    output_fields: tuple[str, ...] = ()
    max_steps: int | None = None


@dataclass
class ScriptRecord:
    """What models said and tools did: complete texts by agent, and effects in order."""

    texts: dict[str, list[str]] = field(default_factory=dict)
    thoughts: dict[str, list[str]] = field(default_factory=dict)
    completions: Counter[str] = field(default_factory=Counter)
    effects: list[str] = field(default_factory=list)
    inputs: dict[str, list[ScriptInput]] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def choose_reply(self, script: AgentScript, items: Iterable[HistoryItem]) -> ScriptReply:
        """Return what a model says, and note what it reads. An unlawful history is a problem."""
        script_input = ScriptInput(list(items))
        self.inputs.setdefault(script.name, []).append(script_input)
        try:
            script_input.check_lawful()
        except AssertionError as error:
            self.problems.append(f"{script.name} reads an unlawful history: {error}")
        return script.reply(script_input)

    def note_completion(self, script: AgentScript, reply: ScriptReply) -> None:
        """Note that a model has said a whole reply."""
        self.completions[script.name] += 1
        if "".join(reply.text).strip():
            self.texts.setdefault(script.name, []).append("".join(reply.text))
        if reply.thinking:
            self.thoughts.setdefault(script.name, []).append("".join(reply.thinking))

    async def play_text(self, reply: ScriptReply) -> AsyncIterator[str]:
        """Yield the pieces of a text. Then wait for ever, or raise, if the reply says so."""
        for piece in reply.text:
            yield piece
        if reply.hangs:
            await asyncio.get_running_loop().create_future()
        if reply.error is not None:
            raise RuntimeError(reply.error)

    def run_tool(self, tool: ScriptTool, value: str) -> Any:
        """Run a tool and note its effect."""
        self.effects.append(f"{tool.name} {value}".strip())
        return f"did {value}" if tool.run is None else tool.run(value)
