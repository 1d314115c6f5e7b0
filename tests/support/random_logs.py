"""Logs drawn from the legal grammar (docs/protocol.md, section 4), with every kind of event a dialect meets.

A log is turns one after the other; a message for the next turn may come in the middle of one. A turn is an
agent, the agents it calls (several at once, interleaved in any way) and those it hands off to. An agent makes
steps: a completion that may be retracted and tried again, its calls, what the page is asked, and the results.
"""

import json
from collections.abc import Iterator
from itertools import count
from typing import Any, NamedTuple

from hypothesis import strategies as st

from tests.support.written_logs import Item, log, scope
from turnlog import events as ev
from turnlog.events.agent import strip_agent_prefix

Script = list[ev.Payload]
Placed = list[tuple[ev.Payload, ev.Scope]]
Said = dict[str, list[tuple[str, Any]]]  # by agent: the kind and content of what stands

FORGING = [
    "<", ">", "&", '"', "'", "\\", "\\u00", "]]>", "<![CDATA[", "&#10;", "&lt;", "[DONE]", "{", "[", "\r",
    "\n", "\t", "\r\n", "</content-block-text>", '<rollback blocks="9" agent="1"/>', "<content-block-text>",
    "</log>", "<!--", "<?x?>", ' agent="2"', "\0", "\x1b", "\x85", "\u2028", "\ufeff", "\ufffe", "é", "😀",
    " ", "word", "data: x\n\n",
]  # fmt: skip
hostile = st.lists(st.sampled_from(FORGING), min_size=1, max_size=12).map("".join)
anything = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)
big = st.builds(str.__mul__, st.sampled_from(FORGING), st.integers(400, 3_000))
texts = st.one_of(hostile, anything, st.just("plain words "), big)
reasons: st.SearchStrategy[Any] = st.sampled_from(["end_turn", "max_tokens", "error", "cancelled", "handoff"])
USAGE = ev.AgentUsage(model="m", usage=ev.Usage(input_tokens=1, output_tokens=2))
DEEPEST = 2  # levels of agents below the first

SILENT: Script = [  # what the block dialects have no word for
    ev.ContextCompact(tokens_before=9, tokens_after=1),
    ev.AssistantView(view=ev.View(kind="a2ui.v1", view_id="view_1", tree={})),
    ev.ParseReject(reason="malformed", length=3, sha256="0" * 64),
]


class Legal(NamedTuple):
    """A log, and the seqs where the agents of its turns begin and end."""

    items: list[Item]
    turns: list[tuple[int, int]]

    def turn_start(self, at: int) -> int:
        """Where the oldest turn that was open at a seq began, as a log says it."""
        return min([first for first, last in self.turns if first <= at < last] + [at + 1])


class Writer:
    """Draws the parts of a legal log; ids are numbers."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.draw = draw
        self.ids: Iterator[int] = count(1)

    def maybe(self) -> bool:
        return self.draw(st.booleans())

    def block(self) -> tuple[str, Script]:
        """A text or thinking: complete with its twin, or aborted, perhaps before its first delta."""
        key, pieces = f"blk_{next(self.ids)}", self.draw(st.lists(texts, max_size=3))
        text, thinking = "".join(pieces), self.maybe()
        opened: Script = [ev.BlockStart(block_id=key, kind="thinking" if thinking else "text")]
        opened += [ev.BlockDelta(block_id=key, text=piece) for piece in pieces]
        if not text or self.maybe():
            return key, [*opened, ev.BlockEnd(block_id=key, status="aborted", text=text)]
        twin = self.thought(key, text) if thinking else self.message(key, text)
        return key, [*opened, ev.BlockEnd(block_id=key, status="complete"), twin]

    def message(self, key: str, text: str) -> ev.Payload:
        cited = [
            ev.Citation(type="char_location", cited_text=text, document_index=0, document_title=text),
            ev.Citation(type="web_search_result_location", cited_text="x", url=text, title=text),
        ][: len(text) % 3]
        return ev.AssistantMessage(text=text, block_id=key, citations=tuple(cited))

    def thought(self, key: str, text: str) -> ev.Payload:
        return ev.AssistantThinking(text=text, block_id=key, signature="c2ln" if self.maybe() else None)

    def search(self) -> tuple[str, Script]:
        """A call that the provider answers itself."""
        key, text, found = f"blk_{next(self.ids)}", self.draw(texts), "x_tool_result"
        call = ev.ToolCall(call_id=key, tool="x", args={"q": text}, executor="provider", block_id=key)
        return key, [call, ev.ToolResult(call_id=key, tool="x", ok=True, result=text, kind=found)]

    def other(self) -> tuple[str, Script]:
        """A block of a kind that has no event of its own."""
        key, text = f"blk_{next(self.ids)}", self.draw(texts)
        opened: Script = [ev.BlockStart(block_id=key, kind="other"), ev.BlockDelta(block_id=key, text=text)]
        if self.maybe():
            return key, [*opened, ev.BlockEnd(block_id=key, status="aborted", text=text)]
        data = {"type": "compaction", "content": text}
        twin = ev.AssistantBlock(kind="compaction", data=data, block_id=key)
        return key, [*opened, ev.BlockEnd(block_id=key, status="complete"), twin]

    def call_block(self, call: ev.ToolCall) -> Script:
        """The arguments of a call as they came, in pieces; then the call."""
        text, key = json.dumps(call.args), str(call.block_id)
        cut = self.draw(st.integers(0, len(text)))
        start = ev.BlockStart(block_id=key, kind="tool_call", call_id=call.call_id, tool=call.tool)
        deltas = [ev.BlockDelta(block_id=key, text=piece) for piece in (text[:cut], text[cut:]) if piece]
        return [start, *deltas, ev.BlockEnd(block_id=key, status="complete"), call]

    def cut_call(self) -> tuple[str, Script]:
        """A call that never came whole."""
        key = f"blk_{next(self.ids)}"
        script: Script = [ev.BlockStart(block_id=key, kind="tool_call", call_id=key, tool="t")]
        script += [ev.BlockDelta(block_id=key, text='{"a":')]
        return key, [*script, ev.BlockEnd(block_id=key, status="aborted", text='{"a":')]

    def attempt(self) -> tuple[tuple[str, ...], Script]:
        kinds = [self.block, self.block, self.search, self.other, self.cut_call]
        parts = [self.draw(st.sampled_from(kinds))() for _ in range(self.draw(st.integers(0, 3)))]
        return tuple(key for key, _ in parts), [payload for _, script in parts for payload in script]

    def failed(self) -> Script:
        """An attempt that is retracted, before or after its last block is ended; calls wait for its end."""
        void, script = self.attempt()
        last = [script.pop()] if script and isinstance(script[-1], ev.BlockEnd) and self.maybe() else []
        return [*script, ev.BlockRetract(block_ids=void, reason="overloaded_error"), *last]

    def call(self, executor: Any = "backend") -> ev.ToolCall:
        number, incomplete = next(self.ids), '{"a' if self.draw(st.integers(0, 7)) == 0 else None
        args = {} if incomplete else {"a": self.draw(texts)}
        return ev.ToolCall(
            call_id=f"c{number}",
            tool="t",
            args=args,
            executor=executor,
            block_id=f"blk_c{number}",
            incomplete=incomplete,
        )

    def result(self, call: ev.ToolCall) -> ev.ToolResult:
        text = self.draw(texts)
        if self.draw(st.integers(0, 3)) == 0:
            fault = ev.ErrorInfo(code="CANCELLED", message=text, details={"path": [text]})
            return ev.ToolResult(call_id=call.call_id, tool=call.tool, ok=False, error=fault)
        images = (ev.Image(src="api/blobs/1", media_type="image/png"),) * (len(text) % 3)
        value = text if len(text) % 2 else {"text": text}
        return ev.ToolResult(call_id=call.call_id, tool=call.tool, ok=True, result=value, images=images)

    def step(self, at: ev.Scope) -> Placed:
        """One completion with its retries, its calls, the agents they start, what the page is asked."""
        script = [*(self.failed() if self.maybe() else []), *self.attempt()[1]]
        drawn = self.draw(st.lists(st.sampled_from(["backend", "frontend", "agent"]), max_size=2))
        called = [(kind, self.call("frontend" if kind == "frontend" else "backend")) for kind in drawn]
        for _, call in called:
            script += self.call_block(call) if self.maybe() else [call]
        placed = [(payload, at) for payload in [*script, *([USAGE] if self.maybe() else [])]]
        children = [self.called(call, at) for kind, call in called if kind == "agent"]
        placed += self.merged(children)
        placed += [(payload, at) for payload in self.answers([c for c in called if c[0] != "agent"])]
        return placed + [(payload, at) for payload in self.aside()]

    def answers(self, called: list[tuple[str, ev.ToolCall]]) -> Script:
        asked = [call for kind, call in called if kind == "frontend"]
        waits = [ev.AwaitedCall(call_id=call.call_id, tool=call.tool, args=call.args) for call in asked]
        script: Script = []
        for _, call in sorted(called, key=lambda one: one[0]):  # what the page is asked comes last
            if call in asked and waits:
                script.append(ev.ToolAwait(calls=tuple(waits)))
                waits = []
            script += [ev.ToolProgress(call_id=call.call_id, text="half")] if self.maybe() else []
            script.append(self.result(call))
        return script

    def aside(self) -> Script:
        """What may stand between two steps."""
        file = ev.File(file_id="f", filename=self.draw(texts), storage_location="api/blobs/1")
        error = ev.SessionError(code="api_error", message=self.draw(texts))
        said = ev.AssistantMessage(text=self.draw(texts))
        blank = ev.AssistantMessage(text="", citations=(ev.Citation(type="char_location", cited_text="c"),))
        choices: list[Script] = [[], SILENT, [ev.AssistantFiles(files=(file,))], [error], [said], [blank]]
        return self.draw(st.sampled_from(choices))

    def called(self, call: ev.ToolCall, at: ev.Scope) -> Placed:
        """An agent that a call started, and the result of the call."""
        result: Placed = [(self.result(call), at)]
        depth = (at.depth or 0) + 1
        if depth > DEEPEST:
            return result
        start = ev.AgentStart(
            name="Scout", via="call", parent_id=at.agent_id, call_id=call.call_id, prompt=self.draw(texts)
        )
        return self.agent(start, depth, str(at.trace_id)) + result

    def agent(self, start: ev.AgentStart, depth: int, trace_id: str) -> Placed:
        """All of an agent, and of the one it hands off to."""
        at = scope(f"agt_{next(self.ids)}", depth, trace_id)
        placed: Placed = [(start, at)]
        for _ in range(self.draw(st.integers(0, 2))):
            placed += self.step(at)
        reason = self.draw(reasons)
        if reason != "handoff":
            return [*placed, (ev.AgentEnd(stop_reason=reason, steps=1), at)]
        call, heir = self.call(), f"agt_{next(self.ids)}"
        ends: Script = [
            ev.ToolResult(call_id=call.call_id, tool="handoff", ok=True, result="ok"),
            ev.AgentHandoff(to="Heir", to_agent_id=heir),
            ev.AgentEnd(stop_reason="handoff"),
        ]
        handed = ev.AgentStart(name="Heir", via="handoff", parent_id=start.parent_id, call_id=start.call_id)
        return [*placed, (call, at), *((end, at) for end in ends), *self.agent(handed, depth, trace_id)]

    def merged(self, scripts: list[Placed]) -> Placed:
        """Several agents at once; each is in its own order."""
        order = self.draw(st.lists(st.integers(0, 5), min_size=1, max_size=40))
        merged: Placed = []
        for place in range(sum(map(len, scripts))):
            speaking = [script for script in scripts if script]
            merged.append(speaking[order[place % len(order)] % len(speaking)].pop(0))
        return merged


@st.composite
def logs(draw: st.DrawFn) -> Legal:
    """A log of one to three turns."""
    writer, entries, turns = Writer(draw), Placed(), list[tuple[int, int]]()
    for number in range(draw(st.integers(1, 3))):
        trace_id = f"tr_{number}"
        message = (ev.UiMessage(text="Hello"), ev.Scope(trace_id=trace_id))
        at = (
            len(entries)
            if not turns or draw(st.booleans())
            else draw(st.integers(turns[-1][0] + 1, len(entries)))
        )
        entries.insert(at, message)  # a message may wait for its turn
        turns = [(first, last + (at <= last)) for first, last in turns]
        start = ev.AgentStart(name="Guide", via="prompt", model="m", prompt=draw(texts))
        begun = len(entries)
        entries += writer.agent(start, 0, trace_id)
        turns.append((begun, len(entries) - 1))
    return Legal(log(*entries), turns)


def pruned(items: list[Item]) -> list[Item]:
    """A log after its live events are gone."""
    return [item for item in items if not isinstance(item[1], ev.BlockDelta | ev.ToolProgress)]


def expected(items: list[Item]) -> Said:
    """What stands of each agent's output, by the log alone."""
    blocks: dict[str, dict[str, tuple[str, Any]]] = {}
    for envelope, payload in items:
        mine = blocks.setdefault(strip_agent_prefix(envelope.agent_id or ""), {})
        key = getattr(payload, "block_id", None) or envelope.id
        match payload:
            case ev.BlockStart(kind="text" | "thinking" as kind):
                mine[key] = (kind, "")
            case ev.BlockDelta(text=text) if key in mine:
                mine[key] = (mine[key][0], mine[key][1] + text)
            case ev.BlockEnd(status="aborted", text=text) if key in mine:
                mine[key] = (mine[key][0], text)
            case ev.AssistantMessage(text=text) | ev.AssistantThinking(text=text):
                mine[key] = ("text" if isinstance(payload, ev.AssistantMessage) else "thinking", text)
            case ev.ToolCall(args=args, incomplete=incomplete):
                mine[key] = ("call", args if incomplete is None else incomplete)
            case ev.AssistantBlock(data=data):
                mine[key] = ("other", data)
            case ev.ToolResult(kind="x_tool_result"):
                mine[f"{list(mine)[-1]} result"] = ("result", payload.result)
            case ev.BlockRetract(block_ids=void):
                blocks[strip_agent_prefix(envelope.agent_id or "")] = {
                    at: it for at, it in mine.items() if at.split()[0] not in void
                }
    return standing(
        {agent: [item for item in mine.values() if item[1] != ""] for agent, mine in blocks.items()}
    )


def standing(said: Said) -> Said:
    """Without what says nothing."""
    kept = {agent: [item for item in stands if item[1] != ""] for agent, stands in said.items()}
    return {agent: stands for agent, stands in kept.items() if stands}
