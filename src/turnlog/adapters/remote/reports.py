"""What an adapter in another process reports to the builder of the server (docs/protocol.md 8.11).

A `ReportingBuilder` is the builder of the worker: translators use it as they use any, and it notes each call
as a report. The server applies the reports to its own builder, which builds the events. So a worker decides
what its agents say and do, and nothing about events: no origin, no depth, no turn, no other session. The
tag of a report is the method that it calls; its fields are the arguments.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from turnlog.errors import BadInput, InvalidEvent, quote
from turnlog.events import Citation, Cost, Image, Scope, Usage
from turnlog.events.agent import StopReason
from turnlog.events.payload import AgentId
from turnlog.events.surrogates import replace_lone_surrogates
from turnlog.parse import AgentEventBuilder, AgentInfo, RuntimeAgent
from turnlog.parse.agent_events import LineReader
from turnlog.parse.claude.hosted_lines import HostedLines
from turnlog.parse.json_values import JsonObject, to_json_value
from turnlog.parse.reply import MessageStop, sanitize_record, to_json_object
from turnlog.parse.runtime_input import to_call_key

NOT_JSON = object()  # what a tool returned, if JSON cannot express it: the builder leaves a reject


class AgentMessage(msgspec.Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """An `AgentInfo` on its way. The server leaves out what no event can carry."""

    name: str
    model: str | None = None
    tools: tuple[str, ...] = ()
    prompt: str | None = None
    source_id: str | None = None
    source_session: str | None = None
    conversation_id: str | None = None

    def to_info(self) -> AgentInfo:
        return AgentInfo(*msgspec.structs.astuple(self))


class Report(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One call of a method of the builder. `agent_id` is the agent that it is about."""

    agent_id: AgentId

    def apply(self, builder: AgentEventBuilder, agents: dict[str, RuntimeAgent]) -> None:
        """Call the method. `agents` are those of the part, by the ids that the worker knows them by."""
        fields = {name: getattr(self, name) for name in self.__struct_fields__ if name != "agent_id"}
        method = getattr(builder, str(self.__struct_config__.tag))
        method(agents[self.agent_id], **fields)


class TextReport(Report, frozen=True, tag_field="do", tag="text"):
    piece: str | None


class ThinkReport(Report, frozen=True, tag_field="do", tag="think"):
    piece: str | None


class SignReport(Report, frozen=True, tag_field="do", tag="sign"):
    signature: str | None


class CiteReport(Report, frozen=True, tag_field="do", tag="cite"):
    citation: Citation


class OtherReport(Report, frozen=True, tag_field="do", tag="other"):
    kind: str
    data: dict[str, Any]


class BeginMessageReport(Report, frozen=True, tag_field="do", tag="begin_message"):
    model: str | None = None
    message_id: str | None = None


class CompleteMessageReport(Report, frozen=True, tag_field="do", tag="complete_message"):
    usage: Usage | None = None
    model: str | None = None
    cost: Cost | None = None
    duration_ms: int | None = None
    stop_reason: MessageStop = "end_turn"


class RetractMessageReport(Report, frozen=True, tag_field="do", tag="retract_message"):
    reason: str


class StartCallReport(Report, frozen=True, tag_field="do", tag="start_call"):
    tool: str
    call_id: str


class ReuseCallIdReport(Report, frozen=True, tag_field="do", tag="reuse_call_id"):
    call_id: str


class ArgumentsReport(Report, frozen=True, tag_field="do", tag="arguments"):
    call_id: str
    piece: str | None


class CallReport(Report, frozen=True, tag_field="do", tag="call"):
    tool: str
    args: Any
    call_id: str


class ProgressReport(Report, frozen=True, tag_field="do", tag="progress"):
    call_id: str
    text: str | None


class ResultReport(Report, frozen=True, tag_field="do", tag="result"):
    """The result of a call. `is_lost`: the tool has returned what JSON cannot express."""

    call_id: str
    value: Any = None
    images: tuple[Image, ...] = ()
    is_lost: bool = False

    def apply(self, builder: AgentEventBuilder, agents: dict[str, RuntimeAgent]) -> None:
        value = NOT_JSON if self.is_lost else self.value
        builder.result(agents[self.agent_id], self.call_id, value, self.images)


class FailReport(Report, frozen=True, tag_field="do", tag="fail"):
    call_id: str
    code: str
    message: str
    details: dict[str, Any] | None = None


class ErrorReport(Report, frozen=True, tag_field="do", tag="error"):
    code: str
    message: str
    is_retriable: bool = False


class EndReport(Report, frozen=True, tag_field="do", tag="end"):
    """A sub-agent has ended. The agent that answers the user ends with the outcome of the part alone."""

    reason: StopReason = "end_turn"
    result: str | None = None
    cost: Cost | None = None

    def apply(self, builder: AgentEventBuilder, agents: dict[str, RuntimeAgent]) -> None:
        agent = agents[self.agent_id]
        if agent.caller is not None:
            builder.end(agent, self.reason, self.result, self.cost)


class StartChildReport(Report, frozen=True, tag_field="do", tag="start_child"):
    """An agent starts inside another. `agent_id` is the parent, `child_id` the new one."""

    child_id: AgentId
    agent: AgentMessage
    call_id: str | None = None
    is_background: bool = False

    def apply(self, builder: AgentEventBuilder, agents: dict[str, RuntimeAgent]) -> None:
        agents[self.child_id] = builder.start_child(
            agents[self.agent_id],
            self.call_id,
            self.agent.to_info(),
            is_background=self.is_background,
            agent_id=self.child_id,
        )


class HandOffReport(Report, frozen=True, tag_field="do", tag="hand_off"):
    """An agent hands over. `child_id` is its successor."""

    child_id: AgentId
    agent: AgentMessage
    call_id: str | None = None
    value: Any = None

    def apply(self, builder: AgentEventBuilder, agents: dict[str, RuntimeAgent]) -> None:
        agents[self.child_id] = builder.hand_off(
            agents[self.agent_id], self.agent.to_info(), self.call_id, self.value, agent_id=self.child_id
        )


class OfferPageToolsReport(Report, frozen=True, tag_field="do", tag="offer_page_tools"):
    """The page runs the tools of these names. It is about all agents; `agent_id` is any of them."""

    names: tuple[str, ...]

    def apply(self, builder: AgentEventBuilder, agents: dict[str, RuntimeAgent]) -> None:
        builder.offer_page_tools(self.names)


class BeginClaudeLinesReport(Report, frozen=True, tag_field="do", tag="begin_claude_lines"):
    """A Claude Code program has started. `agent_id` is its main agent.

    `totals` are those of the program that had the conversation before.
    """

    totals: dict[str, Any] | None = None

    def apply(self, builder: AgentEventBuilder, agents: dict[str, RuntimeAgent]) -> None:
        HostedLines(builder, agents[self.agent_id], self.totals)


class ClaudeLineReport(Report, frozen=True, tag_field="do", tag="claude_line"):
    """A line of the program, which the server parses. `child_ids` are the agents that the line starts."""

    line: dict[str, Any]
    child_ids: tuple[AgentId, ...] = ()

    def apply(self, builder: AgentEventBuilder, agents: dict[str, RuntimeAgent]) -> None:
        root = agents[self.agent_id]
        builder.read_line(root, self.line, self.child_ids)
        started = {agent.agent_id: agent for agent in builder.open_agents}
        for child_id in self.child_ids:
            # the line may start fewer here: what is reported of the others is refused
            scope = Scope(trace_id=root.scope.trace_id, agent_id=child_id, channel=root.scope.channel)
            agents[child_id] = started.get(child_id) or RuntimeAgent(scope, root)


AnyReport = (
    TextReport
    | ThinkReport
    | SignReport
    | CiteReport
    | OtherReport
    | BeginMessageReport
    | CompleteMessageReport
    | RetractMessageReport
    | StartCallReport
    | ReuseCallIdReport
    | ArgumentsReport
    | CallReport
    | ProgressReport
    | ResultReport
    | FailReport
    | ErrorReport
    | EndReport
    | StartChildReport
    | HandOffReport
    | OfferPageToolsReport
    | BeginClaudeLinesReport
    | ClaudeLineReport
)


def find_new_agents(reports: list[AnyReport], agents: dict[str, RuntimeAgent]) -> list[tuple[str, str]]:
    """Return the ids of agents that reports start, with their paths. Raise `InvalidEvent` for a wrong one.

    A report is about an agent of the part, or about one that an earlier report has started.
    """
    known = set(agents)
    new: list[tuple[str, str]] = []
    for number, report in enumerate(reports):
        path = f"$.reports[{number}]"
        if report.agent_id not in known:
            raise InvalidEvent(
                f"expected an agent of this part, got {quote(report.agent_id)}", f"{path}.agent_id"
            )
        if isinstance(report, StartChildReport | HandOffReport) and report.child_id not in known:
            known.add(report.child_id)
            new.append((report.child_id, f"{path}.child_id"))
        if isinstance(report, ClaudeLineReport):
            for child_id in report.child_ids:
                if child_id in known:
                    raise InvalidEvent("expected the id of a new agent", f"{path}.child_ids")
                known.add(child_id)
                new.append((child_id, f"{path}.child_ids"))
        # the provider of a model fetches pictures: an address would let the worker choose what it reads
        if isinstance(report, ResultReport):
            for image in report.images:
                if not image.src.startswith("data:image/"):
                    raise InvalidEvent("expected a picture as a data URI", f"{path}.images")
    return new


class ReportingBuilder(AgentEventBuilder):
    """The builder of a part that runs here and is built at the server. Its own events are dropped.

    `take_reports` returns the reports since the last time.
    """

    def __init__(self, new_id: Any) -> None:
        super().__init__(new_id)
        self._reports: list[AnyReport] = []
        self._is_inside = False  # of a method that calls another one
        self._own_reader: LineReader | None = None

    def take_reports(self) -> list[AnyReport]:
        reports, self._reports = self._reports, []
        return reports

    def _note(self, report: AnyReport) -> None:
        if not self._is_inside:
            self._reports.append(report)

    def start_child(
        self,
        parent: RuntimeAgent,
        call_id: object,
        info: AgentInfo,
        *,
        is_background: bool = False,
        agent_id: str | None = None,
    ) -> RuntimeAgent:
        key = None if call_id is None else to_call_key(call_id)
        child = super().start_child(parent, key, info, is_background=is_background, agent_id=agent_id)
        report = StartChildReport(
            agent_id=parent.agent_id,
            child_id=child.agent_id,
            agent=to_agent_message(info),
            call_id=key,
            is_background=is_background,
        )
        self._note(report)
        return child

    def hand_off(
        self,
        agent: RuntimeAgent,
        info: AgentInfo,
        call_id: object = None,
        value: Any = None,
        *,
        agent_id: str | None = None,
    ) -> RuntimeAgent:
        key = None if call_id is None else to_call_key(call_id)
        self._is_inside = True
        try:
            successor = super().hand_off(agent, info, key, value, agent_id=agent_id)
        finally:
            self._is_inside = False
        json_value, _ = to_sendable(value)
        report = HandOffReport(
            agent_id=agent.agent_id,
            child_id=successor.agent_id,
            agent=to_agent_message(info),
            call_id=key,
            value=json_value,
        )
        self._note(report)
        return successor

    def offer_page_tools(self, names: Iterable[str]) -> None:
        texts = tuple(text for name in names if (text := as_text(name)) is not None)
        super().offer_page_tools(texts)
        self._note(OfferPageToolsReport(agent_id=self.open_agents[0].agent_id, names=texts))

    def end(
        self,
        agent: RuntimeAgent,
        reason: StopReason = "end_turn",
        result: str | None = None,
        cost: Cost | None = None,
    ) -> None:
        super().end(agent, reason, result, cost)
        sendable = sanitize_record(cost)
        report = EndReport(agent_id=agent.agent_id, reason=reason, result=as_text(result), cost=sendable)
        self._note(report)

    def begin_message(
        self, agent: RuntimeAgent, model: str | None = None, message_id: str | None = None
    ) -> None:
        super().begin_message(agent, model, message_id)
        self._note(
            BeginMessageReport(agent_id=agent.agent_id, model=as_text(model), message_id=as_text(message_id))
        )

    def text(self, agent: RuntimeAgent, piece: str) -> None:
        super().text(agent, piece)
        self._note_piece(TextReport, agent, as_text(piece))

    def think(self, agent: RuntimeAgent, piece: str) -> None:
        super().think(agent, piece)
        self._note_piece(ThinkReport, agent, as_text(piece))

    def _note_piece(
        self, kind: type[TextReport] | type[ThinkReport], agent: RuntimeAgent, piece: str | None
    ) -> None:
        """Note a piece, joined with the one before it: deltas arrive faster than requests are sent."""
        last = self._reports[-1] if self._reports else None
        if isinstance(last, kind) and last.agent_id == agent.agent_id and last.piece and piece:
            self._reports[-1] = kind(agent_id=agent.agent_id, piece=last.piece + piece)
            return
        self._note(kind(agent_id=agent.agent_id, piece=piece))

    def sign(self, agent: RuntimeAgent, signature: str) -> None:
        super().sign(agent, signature)
        self._note(SignReport(agent_id=agent.agent_id, signature=as_text(signature)))

    def cite(self, agent: RuntimeAgent, citation: Citation) -> None:
        super().cite(agent, citation)
        sendable = sanitize_record(citation)
        if sendable is not None:
            self._note(CiteReport(agent_id=agent.agent_id, citation=sendable))

    def other(self, agent: RuntimeAgent, kind: str, data: dict[str, Any]) -> None:
        super().other(agent, kind, data)
        report = OtherReport(
            agent_id=agent.agent_id, kind=as_text(kind) or "", data=to_json_object(data) or {}
        )
        self._note(report)

    def complete_message(
        self,
        agent: RuntimeAgent,
        usage: Usage | None = None,
        model: str | None = None,
        cost: Cost | None = None,
        duration_ms: int | None = None,
        stop_reason: MessageStop = "end_turn",
    ) -> None:
        super().complete_message(agent, usage, model, cost, duration_ms, stop_reason)
        report = CompleteMessageReport(
            agent_id=agent.agent_id,
            usage=sanitize_record(usage),
            model=as_text(model),
            cost=sanitize_record(cost),
            duration_ms=duration_ms,
            stop_reason=stop_reason,
        )
        self._note(report)

    def retract_message(self, agent: RuntimeAgent, reason: str) -> None:
        super().retract_message(agent, reason)
        self._note(RetractMessageReport(agent_id=agent.agent_id, reason=as_text(reason) or ""))

    def start_call(self, agent: RuntimeAgent, tool: str, call_id: object = None) -> str:
        key = super().start_call(agent, tool, call_id)
        self._note(StartCallReport(agent_id=agent.agent_id, tool=as_text(tool) or "", call_id=key))
        return key

    def reuse_call_id(self, agent: RuntimeAgent, call_id: object) -> None:
        super().reuse_call_id(agent, call_id)
        self._note(ReuseCallIdReport(agent_id=agent.agent_id, call_id=to_call_key(call_id)))

    def arguments(self, agent: RuntimeAgent, call_id: object, piece: str) -> None:
        super().arguments(agent, call_id, piece)
        key = to_call_key(call_id)
        self._note(ArgumentsReport(agent_id=agent.agent_id, call_id=key, piece=as_text(piece)))

    def call(self, agent: RuntimeAgent, tool: str, args: Any = None, call_id: object = None) -> str:
        key = super().call(agent, tool, args, call_id)
        sendable: Any = as_text(args)
        if sendable is None:
            value, is_lost = to_sendable(args)
            sendable = [] if is_lost else value  # what is no object is refused at the server as it is here
        report = CallReport(agent_id=agent.agent_id, tool=as_text(tool) or "", args=sendable, call_id=key)
        self._note(report)
        return key

    def progress(self, agent: RuntimeAgent, call_id: object, text: str) -> None:
        super().progress(agent, call_id, text)
        report = ProgressReport(agent_id=agent.agent_id, call_id=to_call_key(call_id), text=as_text(text))
        self._note(report)

    def result(self, agent: RuntimeAgent, call_id: object, value: Any = None, images: Any = ()) -> None:
        super().result(agent, call_id, value, images)
        json_value, is_lost = to_sendable(value)
        report = ResultReport(
            agent_id=agent.agent_id,
            call_id=to_call_key(call_id),
            value=json_value,
            images=tuple(image for image in map(sanitize_record, images) if image is not None),
            is_lost=is_lost,
        )
        self._note(report)

    def fail(
        self,
        agent: RuntimeAgent,
        call_id: object,
        code: str,
        message: str,
        details: dict[str, Any] | None = None,
    ) -> None:
        super().fail(agent, call_id, code, message, details)
        report = FailReport(
            agent_id=agent.agent_id,
            call_id=to_call_key(call_id),
            code=as_text(code) or "",
            message=as_text(message) or "",
            details=to_json_object(details),
        )
        self._note(report)

    def error(self, agent: RuntimeAgent, code: str, message: str, *, is_retriable: bool = False) -> None:
        super().error(agent, code, message, is_retriable=is_retriable)
        report = ErrorReport(
            agent_id=agent.agent_id,
            code=as_text(code) or "",
            message=as_text(message) or "",
            is_retriable=is_retriable,
        )
        self._note(report)

    def begin_lines(self, agent: RuntimeAgent, reader: LineReader, totals: JsonObject | None = None) -> None:
        super().begin_lines(agent, reader, totals)
        self._own_reader = reader
        self._note(BeginClaudeLinesReport(agent_id=agent.agent_id, totals=to_json_object(totals)))

    def read_line(self, agent: RuntimeAgent, line: JsonObject, child_ids: Sequence[str] = ()) -> None:
        super().read_line(agent, line, child_ids)
        started_ids = self._own_reader.take_child_ids() if self._own_reader is not None else ()
        sendable = to_json_object(line) or {}
        report = ClaudeLineReport(agent_id=agent.agent_id, line=sendable, child_ids=tuple(started_ids))
        self._note(report)


def as_text(value: Any) -> str | None:
    """Return a text that JSON can carry; None for anything else, which the builder refuses."""
    # a plain text: frameworks have subclasses, which no encoder knows
    return replace_lone_surrogates(str.__str__(value)) if isinstance(value, str) else None


def to_sendable(value: Any) -> tuple[Any, bool]:
    """Return a value as JSON values, and whether it was lost."""
    try:
        return to_json_value(value), False
    except BadInput:
        return None, True


def to_agent_message(info: AgentInfo) -> AgentMessage:
    return AgentMessage(
        as_text(info.name) or "",
        as_text(info.model),
        tuple(text for tool in info.tools if (text := as_text(tool)) is not None),
        as_text(info.prompt),
        as_text(info.source_id),
        as_text(info.source_session),
        as_text(info.conversation_id),
    )
