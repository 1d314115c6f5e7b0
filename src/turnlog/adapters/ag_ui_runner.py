"""Run an agent that speaks AG-UI over HTTP: `turnlog.adapters.ag_ui(url)`.

A session's channel is a thread, and each part is one run of it. The state of a checkpoint is what the client
of a thread keeps (`ag_ui_thread`). With `history="messages"` every run has the whole history, and calls that
a person did not answer get a result in it before the next message. With `history="thread"` the server keeps
the history: a run has only what is new, and questions without an answer are denied in a run of their own.
"""

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import aclosing
from hashlib import sha256
from typing import Any, Literal

from turnlog.adapters.ag_ui_files import FileParts, make_user_content
from turnlog.adapters.ag_ui_request import AgUiEndpoint
from turnlog.adapters.ag_ui_thread import ClientThread, StoredThread, ThreadQuestion, decode_thread
from turnlog.adapters.answers import to_decision, to_value
from turnlog.adapters.part_output import PartOutput
from turnlog.adapters.runner import (
    Answer,
    Approved,
    Denied,
    Finished,
    Part,
    Paused,
    Question,
)
from turnlog.agents.tools import Tool
from turnlog.errors import CallerError, PeerError
from turnlog.ids import new_id
from turnlog.parse import AgentInfo
from turnlog.parse.foreign.ag_ui import AgUiQuestion, AgUiTranslator, RunEnd
from turnlog.parse.foreign.ag_ui_events import EventNormalizer
from turnlog.parse.foreign.common import render_text
from turnlog.parse.json_values import JsonObject
from turnlog.parse.runtime_input import to_call_key
from turnlog.wire.dialects.ag_ui.events import PROTOCOL_VERSION

SOURCE = "ag_ui"
BROKEN_OFF = "the stream ended before the end of its run"

HistoryMode = Literal["messages", "thread"]


class AgUiRunner:
    """Runs one agent. `forwarded_props` is a value, or a function of the `Part`."""

    source = SOURCE
    version = PROTOCOL_VERSION

    def __init__(
        self,
        endpoint: AgUiEndpoint,
        name: str,
        history: HistoryMode,
        tools: Sequence[Tool],
        forwarded_props: Any,
        file_parts: FileParts = "media",
    ) -> None:
        if history not in ("messages", "thread"):
            raise CallerError(f"expected messages or thread as history, got {history!r}")
        if file_parts not in ("media", "binary", "labels"):
            raise CallerError(f"expected media, binary or labels as file_parts, got {file_parts!r}")
        for tool in tools:
            if tool.executor != "frontend":
                raise CallerError(f"expected tools that the page runs, got {tool.name} ({tool.executor})")
        self._endpoint = endpoint
        self.name = name
        self._sends_history = history == "messages"
        self._file_parts = file_parts
        self._tools = [describe_tool(tool) for tool in tools]
        self._make_props: Callable[[Part], Any] = (
            forwarded_props if callable(forwarded_props) else lambda _: forwarded_props
        )

    def can_read(self, version: str) -> bool:
        return version.partition(".")[0] == PROTOCOL_VERSION.partition(".")[0]

    def describe_agent(self, state: bytes | None) -> AgentInfo:
        return AgentInfo(self.name)

    async def run(self, part: Part, output: PartOutput) -> Finished | Paused:
        saved = decode_thread(part.state)
        thread = ClientThread(saved)
        try:
            if part.message is None:
                return await self._run_once(part, output, thread, saved, self._answer(part, thread, saved))
            if saved.questions and not self._sends_history:
                # a server that keeps the thread goes on with its questions first, whatever else it reads
                await self._run_once(part, output, thread, saved, self._answer(part, thread, saved))
            results = thread.close_open_calls(lambda call_id: find_denial(part, saved, call_id))
            content = make_user_content(part.message, part.files, self._file_parts)
            new_messages = [*results, thread.add_user_message(content)]
            return await self._run_once(part, output, thread, StoredThread(), {"messages": new_messages})
        except (Exception, asyncio.CancelledError):
            output.save_state(thread.dump([], {}, with_messages=self._sends_history))
            raise

    def _answer(self, part: Part, thread: ClientThread, saved: StoredThread) -> JsonObject:
        """Return the fields of a run that answers all questions."""
        messages: list[JsonObject] = []
        for question in saved.questions:
            if question.interrupt_id is not None:
                continue
            answer = part.answer_to((question.agent_id, question.call_id))
            denial = answer.reason if isinstance(answer, Denied) else None
            text = denial or render_text(to_value(answer))
            messages.append(thread.add_result(question.source_call_id, text, denial))
        return {"messages": messages, **build_resume_fields(part, saved.questions)}

    async def _run_once(
        self,
        part: Part,
        output: PartOutput,
        thread: ClientThread,
        saved: StoredThread,
        fields: JsonObject,
    ) -> Finished | Paused:
        translator = self._make_translator(output, thread, saved)
        normalizer = EventNormalizer()
        body = self._build_body(part, thread, fields)
        output.builder.offer_page_tools(tool["name"] for tool in body["tools"])
        async with aclosing(self._endpoint.run(part, body)) as events:
            async for raw_event in events:
                for event in normalizer.normalize(raw_event):
                    thread.feed(event)
                    await output.report(translator.feed, event)
                if translator.end is not None:
                    break
        if translator.end is None:
            raise PeerError(BROKEN_OFF)
        if translator.end.kind == "failed":
            raise PeerError(translator.end.message)
        return await self._end_part(output, translator, translator.end, thread, body)

    async def _end_part(
        self,
        output: PartOutput,
        translator: AgUiTranslator,
        end: RunEnd,
        thread: ClientThread,
        body: JsonObject,
    ) -> Finished | Paused:
        questions: list[AgUiQuestion] = []
        page_tools = {tool["name"] for tool in body["tools"]}
        await output.report(lambda: questions.extend(translator.finish(page_tools)))
        if not questions:
            state = thread.dump([], {}, with_messages=self._sends_history)
            result = None if end.result is None else render_text(end.result)
            return Finished(state, result, end.stop_reason)
        agents = {run_id: agent.agent_id for run_id, agent in translator.open_agents.items()}
        source_ids = {to_call_key(call_id): call_id for call_id in thread.open_calls}
        saved = [save_question(question, source_ids) for question in questions]
        state = thread.dump(saved, agents, with_messages=self._sends_history)
        return Paused(state, [make_question(question) for question in questions])

    def _make_translator(
        self, output: PartOutput, thread: ClientThread, saved: StoredThread
    ) -> AgUiTranslator:
        agents = {run_id: output.find_agent(agent_id) for run_id, agent_id in saved.agents.items()}
        open_agents = {run_id: agent for run_id, agent in agents.items() if agent is not None}
        ended_calls = [
            call_id
            for call_id in saved.open_calls
            if not any(agent.owns_open_call(to_call_key(call_id)) for agent in output.builder.open_agents)
        ]
        return AgUiTranslator(output.builder, output.root, open_agents, thread.message_ids, ended_calls)

    def _build_body(self, part: Part, thread: ClientThread, fields: JsonObject) -> JsonObject:
        props = self._make_props(part)
        body = {
            "protocolVersion": PROTOCOL_VERSION,
            "threadId": derive_thread_id(part),
            "runId": new_id("tr_"),
            "state": thread.state,
            "tools": merge_tools(self._tools, part),
            "context": [],
            **fields,
        }
        if self._sends_history:
            body["messages"] = thread.messages_to_send
        forwarded = dict(props) if isinstance(props, Mapping) else {}
        body["forwardedProps"] = {**forwarded, **fields.get("forwardedProps", {})}
        return body


def derive_thread_id(part: Part) -> str:
    """Return the id of the thread: the same for each part of a channel. It does not tell the session's."""
    return "turnlog-" + sha256(part.conversation_key.encode()).hexdigest()[:40]


def describe_tool(tool: Tool) -> JsonObject:
    return {"name": tool.name, "description": tool.description, "parameters": tool.schema}


def merge_tools(tools: Sequence[JsonObject], part: Part) -> list[JsonObject]:
    """Return the tools of the application, and those of the page with other names."""
    names = {tool["name"] for tool in tools}
    page_tools = [
        {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
        for tool in part.tools
        if tool.name not in names
    ]
    return [*tools, *page_tools]


def find_denial(part: Part, saved: StoredThread, source_call_id: str) -> str:
    """Return why a call of the thread did not run."""
    for question in saved.questions:
        if question.source_call_id == source_call_id:
            return part.denial_of((question.agent_id, question.call_id))
    return part.denial_of(("", to_call_key(source_call_id)))


def build_resume_fields(part: Part, questions: Collection[ThreadQuestion]) -> JsonObject:
    """Return the answers to the interrupts of a thread, in the form that each expects."""
    entries: dict[str, JsonObject] = {}
    for question in questions:
        if question.interrupt_id is None:
            continue
        answer = part.answer_to((question.agent_id, question.call_id))
        entry = entries.setdefault(question.interrupt_id, {"status": "resolved"})
        if question.form == "decisions":
            entry.setdefault("payload", {"decisions": []})["decisions"].append(to_decision(answer))
        elif question.form == "approval":
            entry["payload"] = to_approval(answer, question.reason_field)
        elif isinstance(answer, Denied):
            entry["status"] = "cancelled"
        else:
            entry["payload"] = to_value(answer)
    fields: JsonObject = {}
    old = entries.pop("", None)
    if old is not None:
        fields["forwardedProps"] = {"command": {"resume": old.get("payload")}}
    if entries:
        fields["resume"] = [{"interruptId": key, **entry} for key, entry in entries.items()]
    return fields


def to_approval(answer: Answer, reason_field: str) -> JsonObject:
    if isinstance(answer, Approved):
        return {"approved": True}
    reason = answer.reason if isinstance(answer, Denied) else render_text(answer.value)
    return {"approved": False, reason_field: reason}


def save_question(question: AgUiQuestion, source_ids: Mapping[str, str]) -> ThreadQuestion:
    interrupt = question.interrupt
    call_id = question.call_id
    source_id = source_ids.get(call_id, call_id)
    saved = ThreadQuestion(question.agent.agent_id, call_id, source_id, form=question.form)
    if interrupt is not None:
        saved.interrupt_id = interrupt.interrupt_id or ""
        saved.reason_field = interrupt.reason_field
    return saved


def make_question(question: AgUiQuestion) -> Question:
    is_for_page = question.interrupt is None or question.form == "value"
    return Question(question.agent, question.call_id, is_for_page, question.reason, question.args)
