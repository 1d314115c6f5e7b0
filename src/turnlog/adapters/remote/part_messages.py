"""The bodies that a server and its workers exchange about parts (docs/protocol.md 8.11). Pure data.

`describe_team` and `restore_team` carry the open agents of a part over: after both, the builder of the worker
knows what the builder of the server knows.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from turnlog.adapters.part_files import PartFile
from turnlog.adapters.remote.reports import as_text
from turnlog.adapters.runner import (
    Answer,
    Approved,
    CallKey,
    Denied,
    Finished,
    Part,
    Paused,
    Question,
    Returned,
)
from turnlog.events import AgentStart, Cost, Scope, ToolCall
from turnlog.events.agent import CompletionTotals, StopReason
from turnlog.events.payload import AgentId
from turnlog.events.ui import ClientTool
from turnlog.parse import AgentEventBuilder, RuntimeAgent
from turnlog.parse.reply import sanitize_record, to_json_object

OutcomeKind = Literal["finished", "paused", "failed", "unreadable", "abandoned"]
AnswerKind = Literal["approved", "denied", "returned"]


class OpenAgentMessage(msgspec.Struct, omit_defaults=True):
    """An open agent, with what a runtime may still report about it."""

    scope: Scope
    start: AgentStart
    calls: list[ToolCall] = []
    answered_calls: list[str] = []
    totals: CompletionTotals = CompletionTotals()


class AnswerMessage(msgspec.Struct, omit_defaults=True):
    """What a person answered to a call: `reason` for denied, `value` for returned."""

    agent_id: str
    call_id: str
    kind: AnswerKind
    reason: str = ""
    value: Any = None


class QuestionMessage(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """A call that waits for a person."""

    agent_id: AgentId
    call_id: str
    is_for_page: bool = False
    reason: str | None = None
    args: dict[str, Any] | None = None


class FileMessage(msgspec.Struct):
    """A file of the message, without its bytes: the worker reads them in pieces."""

    name: str
    media_type: str
    size_bytes: int


class PartMessage(msgspec.Struct, omit_defaults=True):
    """A part as its worker gets it. `uses_state`: it goes on from the state that the worker has."""

    uses_state: bool
    team: list[OpenAgentMessage]
    message: str | None = None
    answers: list[AnswerMessage] = []
    ended_calls: dict[str, str] = {}
    actor: str | None = None
    tools: list[ClientTool] = []
    files: list[FileMessage] = []


class OutcomeMessage(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=True):
    """How a part has ended. `state` is what the framework needs to go on.

    `problem` says why it failed, or why its state could not be read.
    """

    kind: OutcomeKind
    state: bytes | None = None
    result: str | None = None
    reason: StopReason = "end_turn"
    questions: list[QuestionMessage] = []
    problem: str = ""
    cost: Cost | None = None


def encode_answers(answers: Mapping[CallKey, Answer]) -> list[AnswerMessage]:
    messages: list[AnswerMessage] = []
    for (agent_id, call_id), answer in answers.items():
        if isinstance(answer, Denied):
            messages.append(AnswerMessage(agent_id, call_id, "denied", reason=answer.reason))
        elif isinstance(answer, Returned):
            messages.append(AnswerMessage(agent_id, call_id, "returned", value=answer.value))
        else:
            messages.append(AnswerMessage(agent_id, call_id, "approved"))
    return messages


def decode_answers(messages: Sequence[AnswerMessage]) -> dict[CallKey, Answer]:
    answers: dict[CallKey, Answer] = {}
    for message in messages:
        answer: Answer = Approved()
        if message.kind == "denied":
            answer = Denied(message.reason)
        elif message.kind == "returned":
            answer = Returned(message.value)
        answers[message.agent_id, message.call_id] = answer
    return answers


def encode_questions(questions: Sequence[Question]) -> list[QuestionMessage]:
    return [
        QuestionMessage(
            item.agent.agent_id,
            item.call_id,
            item.is_for_page,
            as_text(item.reason),
            to_json_object(item.args),
        )
        for item in questions
    ]


def encode_outcome(outcome: Finished | Paused) -> OutcomeMessage:
    if isinstance(outcome, Paused):
        return OutcomeMessage("paused", outcome.state, questions=encode_questions(outcome.questions))
    cost = sanitize_record(outcome.cost)
    return OutcomeMessage("finished", outcome.state, as_text(outcome.result), outcome.reason, cost=cost)


def encode_part(part: Part, builder: AgentEventBuilder) -> PartMessage:
    return PartMessage(
        part.state is not None,
        describe_team(builder),
        part.message,
        encode_answers(part.answers),
        dict(part.ended_calls),
        part.actor,
        list(part.tools),
        [describe_file(file) for file in part.files],
    )


def describe_file(file: PartFile) -> FileMessage:
    return FileMessage(as_text(file.name) or "", file.media_type, len(file.data))


def describe_team(builder: AgentEventBuilder) -> list[OpenAgentMessage]:
    """Return the open agents, parents first."""
    return [describe_member(builder, agent) for agent in builder.open_agents]


def describe_member(builder: AgentEventBuilder, agent: RuntimeAgent) -> OpenAgentMessage:
    start = AgentStart(
        name=agent.scope.agent_name or "Agent",
        via="prompt" if agent.caller is None else "call",
        parent_id=agent.caller.agent_id if agent.caller is not None else None,
        call_id=agent.call_id,
        model=agent.model,
        prompt=agent.prompt,
    )
    calls = list(agent.open_calls.values())
    return OpenAgentMessage(agent.scope, start, calls, builder.answered_calls_of(agent), agent.totals)


def restore_team(builder: AgentEventBuilder, team: Sequence[OpenAgentMessage]) -> None:
    for member in team:
        builder.restore(member.start, member.scope, member.calls, member.answered_calls, member.totals)
