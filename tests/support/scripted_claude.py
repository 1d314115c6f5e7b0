"""A stand-in of the Claude Code program for the Claude Agent SDK, inside this process.

It is a `Transport` of the SDK: lines of stream-json in both directions, as the program reads and writes them.
Its models and tools are those of an `AgentScript`. Sub-agents are not streamed, as those of the program. It
stores conversations as the program does: another transport resumes them, with its totals and the call that a
hook has deferred. As Claude Code 2.1.325 it asks hooks as soon as the block of a call is complete. Other than
it, it adds no text of its own ("Continue from where you left off.") to what a model reads.
"""

import asyncio
import inspect
import json
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import msgspec
from claude_agent_sdk import ClaudeAgentOptions, CLIConnectionError, ProcessError, Transport

from turnlog.testing.runtimes import (
    AgentScript,
    CallAgent,
    CallTool,
    HistoryItem,
    ScriptRecord,
    ScriptReply,
)
from turnlog.testing.runtimes.scripts import INPUT_TOKENS, MODEL_NAME, OUTPUT_TOKENS, Call

AGENT_TOOL = "Agent"
INTERRUPTED = "[Request interrupted by user]"
MISSING_RESULT = "[Tool result missing due to internal error]"
Line = dict[str, Any]


class ModelFailed(Exception):
    """The model of an agent failed, or was asked too often: the subtype of a result says which."""

    def __init__(self, subtype: str, message: str) -> None:
        super().__init__(message)
        self.subtype = subtype


class Conversation(NamedTuple):
    """What a program stores: the history and a deferred call, and at its exit how much it has counted."""

    items: list[HistoryItem]
    completions: int = 0
    deferred: CallTool | None = None


class MemoryTranscripts:
    """The conversations of a program, by session id, as long as this process lives."""

    def __init__(self) -> None:
        self._conversations: dict[str, bytes] = {}

    def load(self, session_id: str) -> Conversation | None:
        """Return a conversation; None if there is none."""
        stored = self._conversations.get(session_id)
        return None if stored is None else msgspec.json.decode(stored, type=Conversation)

    def store(self, session_id: str, conversation: Conversation) -> None:
        self._conversations[session_id] = msgspec.json.encode(conversation)


class FileTranscripts:
    """The conversations of a program in a folder, by session id."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, session_id: str) -> Conversation | None:
        path = self._path(session_id)
        return msgspec.json.decode(path.read_bytes(), type=Conversation) if path.exists() else None

    def store(self, session_id: str, conversation: Conversation) -> None:
        whole = self._path(session_id).with_suffix(".new")
        whole.write_bytes(msgspec.json.encode(conversation))
        whole.replace(self._path(session_id))

    def _path(self, session_id: str) -> Path:
        return self._folder / f"{session_id}.json"


Transcripts = MemoryTranscripts | FileTranscripts


def close_calls(items: list[HistoryItem], result: str = INTERRUPTED) -> list[HistoryItem]:
    """Add a result behind the last message for each of its calls that has none."""
    answered = [item.call_id for item in items if item.kind == "result"]
    cut_off = [item.call_id for item in items if item.kind == "call" and item.call_id not in answered]
    return items + [HistoryItem("result", result, call_id) for call_id in cut_off]


class LineClaude(Transport):
    """A program whose turns are a function: it writes lines, and asks the SDK."""

    def __init__(self, session_id: str) -> None:
        self.session_id = session_id
        self._lines: asyncio.Queue[Line | Exception | None] = asyncio.Queue()
        self._answers: dict[str, asyncio.Future[Line]] = {}
        self._hook_ids: list[str] = []  # of the PreToolUse callbacks
        self._turn: asyncio.Task[None] | None = None
        self._is_ready = False

    async def play_turn(self, content: Any) -> None:
        """Play a turn. `content` is the text of the message, or its blocks."""
        raise NotImplementedError

    async def connect(self) -> None:
        self._is_ready = True

    def is_ready(self) -> bool:
        return self._is_ready

    async def end_input(self) -> None:
        """End as the program does: after the turn that it plays."""
        if self._turn is not None:
            await asyncio.gather(self._turn, return_exceptions=True)
        self._lines.put_nowait(None)

    async def close(self) -> None:
        self._is_ready = False
        await self._cancel_turn()
        self._lines.put_nowait(None)

    async def _cancel_turn(self) -> None:
        if self._turn is not None:
            self._turn.cancel()
            await asyncio.gather(self._turn, return_exceptions=True)

    async def read_messages(self) -> AsyncIterator[Line]:
        while (line := await self._lines.get()) is not None:
            if isinstance(line, Exception):
                raise line
            yield line

    async def write(self, data: str) -> None:
        if not self._is_ready:
            raise CLIConnectionError("the process has ended")
        line = json.loads(data)
        if line["type"] == "user":
            self._start(self.play_turn(line["message"]["content"]))
        elif line["type"] == "control_response":
            response = line["response"]
            answer = self._answers.pop(response["request_id"], None)
            if answer is not None and not answer.done():
                refused = {"behavior": "deny", "message": str(response.get("error"))}
                answer.set_result(response.get("response", refused))
        elif line["type"] == "control_request":
            await self._control(line)

    def _start(self, turn: Awaitable[None]) -> None:
        """Play a turn after the one that is played."""
        earlier = self._turn

        async def play() -> None:
            if earlier is not None:
                await asyncio.gather(earlier, return_exceptions=True)
            await turn

        self._turn = asyncio.create_task(play())

    async def _control(self, line: Line) -> None:
        request = line["request"]
        if request["subtype"] == "interrupt":
            await self._cancel_turn()
        if request["subtype"] == "initialize":
            matchers = (request["hooks"] or {}).get("PreToolUse", [])
            self._hook_ids = [hook_id for matcher in matchers for hook_id in matcher["hookCallbackIds"]]
        answer = {"hook_on_failure_supported": True, "hooks_applied": True}
        response = {"subtype": "success", "request_id": line["request_id"], "response": answer}
        self._lines.put_nowait({"type": "control_response", "response": response})
        if request["subtype"] == "initialize":
            self.begin_work()

    def begin_work(self) -> None:
        """Begin what is to do before the first message."""

    def write_line(self, kind: str, **fields: Any) -> None:
        identity = {"uuid": str(uuid4()), "session_id": self.session_id}
        self._lines.put_nowait({"type": kind, **identity, **fields})

    def write_init(self) -> None:
        self.write_line("system", subtype="init", tools=[], model=MODEL_NAME, apiKeySource="none")

    def write_result(self, *, is_error: bool = False, **fields: Any) -> None:
        numbers = {"duration_ms": 1, "duration_api_ms": 1, "num_turns": 1}
        self.write_line("result", **{"subtype": "success", "is_error": is_error, **numbers, **fields})

    def die(self, error: Exception) -> None:
        """End as a process that failed."""
        self._is_ready = False
        self._lines.put_nowait(error)

    async def ask(self, tool: str, args: Line, call_id: str | None, **fields: Any) -> Line:
        """Ask for a permission, and wait for it."""
        call = {"tool_name": tool, "input": args, "tool_use_id": call_id}
        return await self._request({"subtype": "can_use_tool", **call, **fields})

    async def ask_hooks(self, tool: str, args: Line, call_id: str, **fields: Any) -> Line:
        """Ask the hooks about a call. Return the decision of the first that has one, or nothing."""
        call = {"tool_name": tool, "tool_input": args, "tool_use_id": call_id}
        hook_input = {"hook_event_name": "PreToolUse", **call, **fields}
        for hook_id in self._hook_ids:
            request = {"subtype": "hook_callback", "callback_id": hook_id, "tool_use_id": call_id}
            output = await self._request({**request, "input": hook_input})
            if "hookSpecificOutput" in output:
                decision: Line = output["hookSpecificOutput"]
                return decision
        return {}

    async def _request(self, request: Line) -> Line:
        request_id = str(uuid4())
        answer: asyncio.Future[Line] = asyncio.get_running_loop().create_future()
        self._answers[request_id] = answer
        self.write_line("control_request", request_id=request_id, request=request)
        try:
            return await answer
        except asyncio.CancelledError:
            self.write_line("control_cancel_request", request_id=request_id)
            raise


class ScriptedClaude(LineClaude):
    """One process: it plays one script, one turn after the other."""

    def __init__(
        self,
        script: AgentScript,
        record: ScriptRecord,
        transcripts: Transcripts,
        options: ClaudeAgentOptions,
    ) -> None:
        super().__init__(options.resume or str(uuid4()))
        self._script = script
        self._record = record
        self._transcripts = transcripts
        self._options = options
        self._history: list[HistoryItem] = []
        self._call_ids: set[str] = set()
        self._completions = 0
        self._counted = 0  # of the completions: those of processes that have ended in order
        self._deferred: CallTool | None = None
        self._decisions: dict[str, asyncio.Task[Line]] = {}  # of hooks, by call

    @property
    def is_streaming(self) -> bool:
        return self._options.include_partial_messages

    async def connect(self) -> None:
        if self._options.resume is not None:
            stored = self._transcripts.load(self.session_id)
            if stored is None:
                problem = f"No conversation found with session ID: {self.session_id}"
                raise ProcessError(problem, exit_code=1)
            self._deferred = stored.deferred
            self._completions = self._counted = stored.completions
            self._history = stored.items if stored.deferred else close_calls(stored.items)
            self._call_ids = {item.call_id for item in stored.items}
        await super().connect()

    async def close(self) -> None:
        await super().close()
        self._counted = self._completions
        if self._transcripts.load(self.session_id) is not None:
            self._store()

    def begin_work(self) -> None:
        if self._deferred is not None:
            self._start(self._resume_call(self._deferred))

    # turns

    async def play_turn(self, content: Any) -> None:
        # a call that no hook has decided about has no result
        self._history = close_calls(self._history, MISSING_RESULT)
        self._deferred = None
        self._add(*read_content(content))
        self.write_init()
        await self._answer()

    async def _resume_call(self, call: CallTool) -> None:
        """Run the call that was deferred, and go on with its result."""
        decision = await self.ask_hooks(call.tool, get_args(call), call.call_id)
        if decision["permissionDecision"] == "defer":
            self._write_deferred(call)
            return
        self._deferred = None
        self._decisions[call.call_id] = asyncio.ensure_future(pass_on(decision))
        await self._run_call(self._script, self._history, None, call)
        self.write_init()
        await self._answer()

    async def _answer(self) -> None:
        try:
            reply = await self._run_agent(self._script, self._history, None)
        except CallDeferred as error:
            self._deferred = error.call
            self._store()
            self._write_deferred(error.call, terminal_reason="tool_deferred")
        except ModelFailed as error:
            self._write_end(subtype=error.subtype, is_error=True, errors=[str(error)])
        except asyncio.CancelledError:
            self._history = close_calls(self._history)
            self._store()
            reasons = {"subtype": "error_during_execution", "terminal_reason": "aborted_tools"}
            self._write_end(**reasons, is_error=True)
        else:
            text = "".join(reply.text)
            self._write_end(subtype="success", result=text, structured_output=reply.output)

    def _write_deferred(self, call: CallTool, **fields: Any) -> None:
        deferred = {"id": call.call_id, "name": call.tool, "input": get_args(call)}
        self._write_end(stop_reason="tool_deferred", result="", deferred_tool_use=deferred, **fields)

    def _write_end(self, **fields: Any) -> None:
        usage = {
            "inputTokens": INPUT_TOKENS * self._completions,
            "outputTokens": OUTPUT_TOKENS * self._completions,
        }
        self.write_result(modelUsage={MODEL_NAME: usage}, **fields)

    def _add(self, *items: HistoryItem) -> None:
        self._history += items
        self._store()

    def _store(self) -> None:
        conversation = Conversation(self._history, self._counted, self._deferred)
        self._transcripts.store(self.session_id, conversation)

    async def _run_agent(
        self, script: AgentScript, history: list[HistoryItem], parent: str | None
    ) -> ScriptReply:
        """Ask the model until it calls nothing more. Return its last reply."""
        steps = 0
        while True:
            if parent is None and steps == self._options.max_turns:
                raise ModelFailed("error_max_turns", f"Reached maximum number of turns ({steps})")
            steps += 1
            chosen = self._record.choose_reply(script, history)
            reply = chosen._replace(calls=tuple(self._make_unique(call) for call in chosen.calls))
            await self._say(script, reply, parent)
            self._completions += 1
            self._record.note_completion(script, reply)
            text = "".join(reply.text)
            history += [HistoryItem("assistant", text)] if text else []
            history += [HistoryItem("call", get_tool(call), call.call_id) for call in reply.calls]
            self._store()
            if not reply.calls:
                return reply
            if len(reply.calls) == 1 and isinstance(reply.calls[0], CallTool):
                await self._defer_if_told(reply.calls[0], parent)
            async with asyncio.TaskGroup() as group:
                for call in reply.calls:
                    group.create_task(self._run_call(script, history, parent, call))

    async def _defer_if_told(self, call: CallTool, parent: str | None) -> None:
        decision = await self._decisions[call.call_id]
        if decision.get("permissionDecision") == "defer":
            assert parent is None, "the program would end the sub-agent"
            raise CallDeferred(call)

    def _make_unique(self, call: Call) -> Call:
        """Return a call with an id that no other call of the conversation has: so are those of providers."""
        number = 1
        call_id = call.call_id
        while call_id in self._call_ids:
            number += 1
            call_id = f"{call.call_id}-{number}"
        self._call_ids.add(call_id)
        return call._replace(call_id=call_id)

    # messages

    async def _say(self, script: AgentScript, reply: ScriptReply, parent: str | None) -> None:
        message_id = f"msg_{uuid4()}"
        speaker = Speaker(self, message_id, parent)
        speaker.event(type="message_start", message=speaker.message([]))
        if reply.thinking:
            block: Line = {"type": "thinking", "thinking": "".join(reply.thinking), "signature": "signed"}
            deltas = [{"type": "thinking_delta", "thinking": piece} for piece in reply.thinking]
            speaker.block(block, {"thinking": ""}, deltas)
        await self._say_text(speaker, reply)
        for call in reply.calls:
            args = get_args(call)
            block = {"type": "tool_use", "id": call.call_id, "name": get_tool(call), "input": args}
            text = json.dumps(args)
            deltas = [{"type": "input_json_delta", "partial_json": piece} for piece in (text[:3], text[3:])]
            speaker.block(block, {"input": {}}, deltas)
            agent = {} if parent is None else {"agent_id": parent, "agent_type": script.name}
            asking = self.ask_hooks(get_tool(call), args, call.call_id, **agent)
            self._decisions[call.call_id] = asyncio.create_task(asking)
            await asyncio.sleep(0)  # it asks before it has read the rest of the message
        reason = "tool_use" if reply.calls else "end_turn"
        usage = {"output_tokens": OUTPUT_TOKENS}
        speaker.event(type="message_delta", delta={"stop_reason": reason}, usage=usage)
        speaker.event(type="message_stop")

    async def _say_text(self, speaker: "Speaker", reply: ScriptReply) -> None:
        pieces: list[str] = []
        try:
            async for piece in self._record.play_text(reply):
                if not pieces:
                    speaker.start({"type": "text", "text": ""})
                pieces.append(piece)
                speaker.delta({"type": "text_delta", "text": piece})
        except RuntimeError as error:
            raise ModelFailed("error_during_execution", str(error)) from error
        if pieces:
            speaker.stop({"type": "text", "text": "".join(pieces)})

    # tools

    async def _run_call(
        self, script: AgentScript, history: list[HistoryItem], parent: str | None, call: Call
    ) -> None:
        try:
            content = await self._get_result(script, call)
            is_error = False
        except (ModelFailed, ToolRefused, ToolRaised) as error:
            content = str(error)
            is_error = True
        history.append(HistoryItem("result", content, call.call_id))
        self._store()
        block = {
            "type": "tool_result",
            "tool_use_id": call.call_id,
            "content": content,
            "is_error": is_error,
        }
        self.write_line("user", message={"role": "user", "content": [block]}, parent_tool_use_id=parent)

    async def _get_result(self, script: AgentScript, call: Call) -> str:
        if isinstance(call, CallAgent):
            return await self._run_sub_agent(script, call)
        assert isinstance(call, CallTool)
        tool = next(item for item in script.tools if item.name == call.tool)
        decision = await self._decisions[call.call_id]
        chosen = decision.get("permissionDecision")
        assert chosen != "defer", "the program would lose the other calls"
        if chosen == "deny":
            reason = decision["permissionDecisionReason"]
            raise ToolRefused(f"PreToolUse:{call.tool} hook error: {reason}")
        if chosen == "ask" or (tool.needs_approval and chosen != "allow"):
            await self._ask_permission(call)
        try:
            result = self._record.run_tool(tool, call.value)
            return str(await result if inspect.isawaitable(result) else result)
        except Exception as error:  # a tool may raise anything
            raise ToolRaised(f"Error: {error}") from error

    async def _run_sub_agent(self, script: AgentScript, call: CallAgent) -> str:
        child = next(item for item in script.agents if item.name == call.agent)
        task = {"task_id": f"task_{call.call_id}", "description": call.prompt, "task_type": "local_agent"}
        fields = {"tool_use_id": call.call_id, "subagent_type": call.agent, "prompt": call.prompt}
        self.write_line("system", subtype="task_started", **task, **fields)
        reply = await self._run_agent(child, [HistoryItem("user", call.prompt)], call.call_id)
        return "".join(reply.text)

    async def _ask_permission(self, call: CallTool) -> None:
        decision = await self.ask(call.tool, get_args(call), call.call_id)
        if decision["behavior"] != "allow":
            raise ToolRefused(decision["message"])
        assert decision["updatedInput"] == get_args(call)


class CallDeferred(Exception):
    """A hook has deferred a call: the turn ends without its result."""

    def __init__(self, call: CallTool) -> None:
        super().__init__(call.call_id)
        self.call = call


def read_content(content: Any) -> Iterator[HistoryItem]:
    """Yield a message of the user: its text, then its files. A note before the text is left out."""
    blocks: list[Line] = [{"type": "text", "text": content}] if isinstance(content, str) else content
    texts = [block["text"] for block in blocks if block["type"] == "text"]
    yield HistoryItem("user", texts[-1])
    for block in blocks:
        if block["type"] != "text":
            source = block["source"]
            uri = f"data:{source['media_type']};base64,{source['data']}"
            yield HistoryItem("file", source["data"] if source["type"] == "text" else uri)


async def pass_on(decision: Line) -> Line:
    return decision


class ToolRefused(Exception):
    """A person denied a call; the text is for the model."""


class ToolRaised(Exception):
    """A tool failed; the text is for the model."""


class Speaker:
    """Writes one message: streamed and whole for the main agent, only whole for a sub-agent."""

    def __init__(self, program: ScriptedClaude, message_id: str, parent: str | None) -> None:
        self._program = program
        self._message_id = message_id
        self._parent = parent
        self._index = -1

    def message(self, content: list[Line]) -> Line:
        output_tokens = 1 if self._parent is None else OUTPUT_TOKENS
        usage = {"input_tokens": INPUT_TOKENS, "output_tokens": output_tokens}
        return {"id": self._message_id, "model": MODEL_NAME, "content": content, "usage": usage}

    def event(self, **event: Any) -> None:
        if self._parent is None and self._program.is_streaming:
            self._program.write_line("stream_event", event=event, parent_tool_use_id=None)

    def block(self, block: Line, empty: Line, deltas: Sequence[Line]) -> None:
        self.start(block | empty)
        for delta in deltas:
            self.delta(delta)
        self.stop(block)

    def start(self, block: Line) -> None:
        self._index += 1
        self.event(type="content_block_start", index=self._index, content_block=block)

    def delta(self, delta: Line) -> None:
        self.event(type="content_block_delta", index=self._index, delta=delta)

    def stop(self, block: Line) -> None:
        self._program.write_line("assistant", message=self.message([block]), parent_tool_use_id=self._parent)
        self.event(type="content_block_stop", index=self._index)


def get_tool(call: Call) -> str:
    return call.tool if isinstance(call, CallTool) else AGENT_TOOL


def get_args(call: Call) -> dict[str, Any]:
    if isinstance(call, CallTool):
        return {"value": call.value}
    assert isinstance(call, CallAgent)
    return {"subagent_type": call.agent, "prompt": call.prompt, "description": call.prompt}
