"""A framework of sixty lines under the contract of runtimes: the smallest runner that keeps it.

Its history is a list of items, and the items are its state. Calls of a message run at the same time; calls
that need an answer pause the part when the others have run.
"""

import asyncio
import inspect
import json
from typing import Any

from turnlog import adapters
from turnlog.adapters import Approved, Finished, Part, Paused, Question, Returned
from turnlog.adapters.part_files import PartFile
from turnlog.adapters.part_output import PartOutput
from turnlog.events import Usage
from turnlog.parse import AgentInfo, RuntimeAgent
from turnlog.testing.runtimes import (
    AgentScript,
    CallAgent,
    CallTool,
    Feature,
    HistoryItem,
    ScriptRecord,
    ScriptReply,
)
from turnlog.testing.runtimes.scripts import INPUT_TOKENS, MODEL_NAME, OUTPUT_TOKENS, Call

NOT_FINISHED = "It was not finished."


class FakeFramework:
    features: frozenset[Feature] = frozenset(
        {
            "thinking",
            "sub_agents",
            "structured_output",
            "step_limit",
            "completion_usage",
            "approvals",
            "page_calls",
            "files",
        }
    )

    def make_agent(self, script: AgentScript, record: ScriptRecord) -> adapters.ForeignAgent:
        return adapters.ForeignAgent(FakeRunner(script, record))


class StepLimit(Exception):
    """An agent has made as many completions as it may."""


class FakeRunner:
    source = "fake"
    version = "1.0"

    def __init__(self, script: AgentScript, record: ScriptRecord) -> None:
        self._script = script
        self._transcript = record
        self.name = script.name

    def can_read(self, version: str) -> bool:
        return version == self.version

    def describe_agent(self, state: bytes | None) -> AgentInfo:
        return AgentInfo(self.name, MODEL_NAME)

    async def run(self, part: Part, output: PartOutput) -> Finished | Paused:
        items = [HistoryItem(*fields) for fields in json.loads(part.state or b"[]")]
        root = output.root
        try:
            for call_id in find_open_calls(items):
                await self._answer(part, output, items, call_id)
            if part.message is not None:
                items.append(HistoryItem("user", part.message))
                items += [HistoryItem("file", render_file(file)) for file in part.files]
            result = await self._loop(self._script, items, root, output)
        except StepLimit:
            return Finished(json.dumps(items).encode(), reason="max_steps")
        except (Exception, asyncio.CancelledError):
            items += [HistoryItem("result", NOT_FINISHED, call_id) for call_id in find_open_calls(items)]
            output.save_state(json.dumps(items).encode())
            raise
        state = json.dumps(items).encode()
        open_calls = find_open_calls(items)
        if not open_calls:
            return Finished(state, result)
        tools = {tool.name: tool for tool in self._script.tools}
        names = {item.call_id: item.text.partition(" ")[0] for item in items if item.kind == "call"}
        return Paused(
            state, [Question(root, call_id, tools[names[call_id]].is_for_page) for call_id in open_calls]
        )

    async def _answer(self, part: Part, output: PartOutput, items: list[HistoryItem], call_id: str) -> None:
        key = (output.root.agent_id, call_id)
        answer = part.answers.get(key)
        text = part.denial_of(key)
        if part.message is None and isinstance(answer, Returned):
            text = str(answer.value)
        elif part.message is None and isinstance(answer, Approved):
            name, _, value = next(
                i.text for i in items if i.call_id == call_id and i.kind == "call"
            ).partition(" ")
            text = await self._run_tool(self._script, CallTool(name, value, call_id), output.root, output)
        items.append(HistoryItem("result", text, call_id))

    async def _loop(
        self, script: AgentScript, items: list[HistoryItem], agent: RuntimeAgent, output: PartOutput
    ) -> str | None:
        """Ask the model until it calls nothing, or a call waits. Return its last text."""
        builder = output.builder
        guarded = {tool.name for tool in script.tools if tool.needs_approval or tool.is_for_page}
        completions = 0
        while not find_open_calls(items):
            if completions == script.max_steps:
                raise StepLimit
            completions += 1
            reply = self._transcript.choose_reply(script, items)
            for piece in reply.thinking:
                await output.report(builder.think, agent, piece)
            async for piece in self._transcript.play_text(reply):
                await output.report(builder.text, agent, piece)
            for call in reply.calls:
                builder.reuse_call_id(agent, call.call_id)
                builder.call(agent, get_tool(call), get_args(call), call.call_id)
            self._transcript.note_completion(script, reply)
            usage = Usage(input_tokens=INPUT_TOKENS, output_tokens=OUTPUT_TOKENS)
            await output.report(builder.complete_message, agent, usage)
            text = "".join(reply.text)
            if text:
                items.append(HistoryItem("assistant", text))
            if not reply.calls:
                return text if reply.output is None else json.dumps(reply.output)
            await self._run_calls(script, reply, guarded, items, agent, output)
        return None

    async def _run_calls(
        self,
        script: AgentScript,
        reply: ScriptReply,
        guarded: set[str],
        items: list[HistoryItem],
        agent: RuntimeAgent,
        output: PartOutput,
    ) -> None:
        for call in reply.calls:
            value = call.value if isinstance(call, CallTool) else ""
            items.append(HistoryItem("call", f"{get_tool(call)} {value}", call.call_id))
        running = [call for call in reply.calls if get_tool(call) not in guarded]
        texts = await asyncio.gather(*[self._run_tool(script, call, agent, output) for call in running])
        for call, text in zip(running, texts, strict=True):
            items.append(HistoryItem("result", text, call.call_id))

    async def _run_tool(
        self, script: AgentScript, call: Call, agent: RuntimeAgent, output: PartOutput
    ) -> str:
        if isinstance(call, CallAgent):
            child_script = next(child for child in script.agents if child.name == call.agent)
            child = output.builder.start_child(agent, call.call_id, AgentInfo(call.agent, prompt=call.prompt))
            try:
                value: Any = await self._loop(child_script, [HistoryItem("user", call.prompt)], child, output)
            except Exception:
                await output.report(output.builder.end, child, "error")
                raise
        else:
            assert isinstance(call, CallTool)
            tool = next(tool for tool in script.tools if tool.name == call.tool)
            try:
                value = self._transcript.run_tool(tool, call.value)
                value = await value if inspect.isawaitable(value) else value
            except ValueError as error:
                await output.report(output.builder.fail, agent, call.call_id, "EXECUTION_ERROR", str(error))
                return f"error: {error}"
        await output.report(output.builder.result, agent, call.call_id, value)
        return str(value)


def render_file(file: PartFile) -> str:
    return file.describe_text() if file.is_text else file.to_data_uri()


def get_tool(call: Call) -> str:
    return call.tool if isinstance(call, CallTool) else call.agent


def get_args(call: Call) -> dict[str, str]:
    return {"value": call.value} if isinstance(call, CallTool) else {"prompt": getattr(call, "prompt", "")}


def find_open_calls(items: list[HistoryItem]) -> list[str]:
    open_calls: dict[str, None] = {}
    for item in items:
        if item.kind == "call":
            open_calls[item.call_id] = None
        elif item.kind == "result":
            open_calls.pop(item.call_id, None)
    return list(open_calls)
