"""The protocol of a runner: an agent of another framework, which runs one part of a turn at a time.

A turn has one part, and one more after each pause. The runtime (`foreign_runtime.ForeignRuntime`) passes a
`Part` and an output; the runner lets its translator read what the framework reports, and returns `Finished`
or `Paused` with what it needs to go on. Four kinds of parts are all there are:

- no state, a message: the conversation begins;
- a state, a message: the next turn;
- a state, answers: the paused part goes on;
- a paused state, a message: a person wrote instead of answering, or the turn that asked was stopped or lost.
  The runner closes what the framework waits for with `Part.denial_of`, and then passes the message on.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from turnlog.adapters.part_files import PartFile
from turnlog.errors import CallerError
from turnlog.events.agent import Cost, StopReason
from turnlog.events.ui import ClientTool
from turnlog.parse import AgentInfo, RuntimeAgent

if TYPE_CHECKING:
    from turnlog.adapters.part_output import PartOutput

NOT_ANSWERED = "No person answered this; it was not run."

CallKey = tuple[str, str]  # the id of an agent and of one of its calls: a call id is unique in its agent only


class Approved(NamedTuple):
    """A person approved the call with the arguments that it has."""


class Denied(NamedTuple):
    """The call must not run. `reason` is for the model."""

    reason: str


class Returned(NamedTuple):
    """The page answered the call."""

    value: Any


Answer = Approved | Denied | Returned


class Part(NamedTuple):
    """What a runner gets. `state` is what it returned the last time, in a form that it can read.

    `actor` is the person who wrote or answered last. `tools` are those that the page brought with the turn's
    last message. `ended_calls` says what became of calls that the state still waits for, by call id, if their
    turn was stopped or lost. `files` are those of the message, whose text has their labels.
    """

    session_id: str
    channel: str | None = None
    actor: str | None = None
    message: str | None = None
    answers: Mapping[CallKey, Answer] = {}
    state: bytes | None = None
    ended_calls: Mapping[str, str] = {}
    tools: Sequence[ClientTool] = ()
    files: Sequence[PartFile] = ()

    @property
    def conversation_key(self) -> str:
        """Return the name of the conversation: one for each channel of a session."""
        return f"{self.session_id}/{self.channel}" if self.channel else self.session_id

    def answer_to(self, key: CallKey) -> Answer:
        """Return the answer to a call. With a message in place of an answer, nothing that was held runs."""
        if self.message is not None:
            return Denied(self.denial_of(key))
        return self.answers.get(key, Denied(self.denial_of(key)))

    def denial_of(self, key: CallKey) -> str:
        """Return why a call does not run, for a part in which a message takes the place of its answer."""
        answer = self.answers.get(key)
        if isinstance(answer, Denied):
            return answer.reason
        return self.ended_calls.get(key[1], NOT_ANSWERED)


class Question(NamedTuple):
    """A call that waits for a person: an approval, or with `is_for_page` a result that the page gives.

    The page shows `args`, or those of the call.
    """

    agent: RuntimeAgent
    call_id: str
    is_for_page: bool = False
    reason: str | None = None
    args: dict[str, Any] | None = None


class Finished(NamedTuple):
    """The part is the last one of its turn. Without a `state` the next turn does not remember this one.

    `cost` is that of the whole part, if the framework does not report that of each completion.
    """

    state: bytes | None = None
    result: str | None = None
    reason: StopReason = "end_turn"
    cost: Cost | None = None


class Paused(NamedTuple):
    """The part ends with questions. The next one begins when all of them are answered."""

    state: bytes
    questions: Sequence[Question]


class StoredCheckpoint(NamedTuple):
    """The last checkpoint of a channel. Without a `state` its blob is missing, or it is empty."""

    source: str
    version: str
    state: bytes | None


class PartOffer(NamedTuple):
    """A part that a runtime wants to run. An agent of this process takes it at once; a worker may not."""

    session_id: str
    channel: str | None
    load_checkpoint: Callable[[], Awaitable[StoredCheckpoint | None]]
    has_agent: Callable[[str], Awaitable[bool]]
    """Returns whether any log has the start of an agent of this id."""
    note_waiting: Callable[[], Awaitable[None]]
    """Says in the session that no worker has taken the part yet."""


class WorkerLost(Exception):
    """The process that ran a part is gone. The message is for people."""


class UnreadableState(CallerError):
    """A runner cannot read the state of a checkpoint, although its version should be readable."""


class AgentRunner(Protocol):
    """An agent of another framework. `source` and `version` are stored with each checkpoint."""

    @property
    def name(self) -> str: ...

    @property
    def source(self) -> str: ...

    @property
    def version(self) -> str: ...

    def can_read(self, version: str) -> bool:
        """Return whether the states that another version of the framework wrote can be read."""
        ...

    def describe_agent(self, state: bytes | None) -> AgentInfo:
        """Return the agent that answers the next turn: after a hand-off, the one that took over."""
        ...

    async def run(self, part: Part, output: "PartOutput") -> Finished | Paused:
        """Run one part. If it is cancelled, store what the next turn needs with `output.save_state`.

        Raise `UnreadableState` before anything is reported if the state cannot be read.
        """
        ...
