"""A server that kills itself after a given write, and then the next one on the same log: orders on stdin.

For each order this process forks a server, which creates the session, sends the messages that the log does
not have yet, answers questions, and ends when all turns are over. The answer to an order is the exit code.
The tools write what they do to a file: it has the effects of all servers on the log.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import aclosing, suppress
from functools import partial
from pathlib import Path
from typing import Any, Literal

import msgspec

from tests.unit.app.desk import ADA
from turnlog import Agent, App, tool
from turnlog.agents import ReplyBuilder, Request, Scripted, Tool, ToolContext, ToolUse, WaitForInput
from turnlog.agents.models import Model
from turnlog.agents.runtime.agent_runtime import AgentRuntime
from turnlog.agents.runtime.session_runtime import OnCrash
from turnlog.agents.runtime.user_input import answer_events
from turnlog.app import ClientEvent, Membership, Sessions
from turnlog.app.session_creation import find_session
from turnlog.errors import Conflict, NotFound
from turnlog.events import EventDraft, Payload, UiMessage, decode_envelope
from turnlog.log import Log, Page, SqliteStore, envelope_json
from turnlog.log.jobs import AppendRequest, Job, JobOutcome, SaveSeen
from turnlog.state.history import Message
from turnlog.state.tree import Tree

SESSION = "sess_1"
KEY = "key-1"
STOPPED = 5  # exit code of a server that was stopped while its turn ran
WAITS = 7  # exit code of a server that has to wait for an answer and may give none
EXPLODES = 9  # exit code of a server whose tool ends it
Question = Literal["approval", "approval below", "input", "page"]


class Order(msgspec.Struct):
    """What a server has to do.

    `dies_after` counts its writes from the first message on; with 0 it is never killed. With `is_stopped` the
    server is stopped, and not killed; one that may not answer is stopped when it has to. `reruns_tools` runs
    every tool that was interrupted again.
    """

    folder: str
    texts: tuple[str, ...] = ("Go",)
    question: Question = "approval"
    on_crash: OnCrash = "continue"
    dies_after: int = 0
    is_stopped: bool = False
    reruns_tools: bool = False
    answers: bool = True

    @property
    def log_path(self) -> Path:
        return Path(self.folder) / "log.db"

    @property
    def effects_path(self) -> Path:
        return Path(self.folder) / "effects.txt"


def kill_process() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class EndingStore(SqliteStore):
    """A store that ends its process after a number of writes, before the caller knows of the last one."""

    max_batch = 1  # each append is a commit of its own

    def __init__(self, path: Path, writes: int, end_process: Callable[[], object]) -> None:
        super().__init__(path)
        self._writes_left = writes
        self._end_process = end_process
        self.is_armed = False

    def commit(self, jobs: Sequence[Job]) -> list[JobOutcome]:
        outcomes = super().commit(jobs)
        if self.is_armed and any(map(is_write, jobs)):
            self._writes_left -= 1
            if self._writes_left == 0:
                self._end_process()
        return outcomes


def is_write(job: Job) -> bool:
    return isinstance(job, SaveSeen) or (isinstance(job, AppendRequest) and bool(job.events))


# the application


@tool(executor="frontend")
def confirm() -> bool:
    """Ask the page."""
    raise NotImplementedError


@tool(kind="read")
def explode() -> str:
    """End the process."""
    os._exit(EXPLODES)


@tool(kind="write")
def explode_once() -> str:
    """End the process, and have an effect that is not known."""
    os._exit(EXPLODES)


def make_tools(path: Path) -> dict[str, Tool]:
    """Make tools that write their effects to a file, and report them before they return."""

    def act(effect: str, context: ToolContext) -> str:
        with path.open("a") as file:
            file.write(f"{effect}\n")
        context.progress(effect)  # a write between the effect and the result
        return effect

    @tool(kind="read")
    def look(context: ToolContext) -> str:
        """Look."""
        return act("look", context)

    @tool(kind="write")
    def scribble(context: ToolContext) -> str:
        """Write without a key."""
        return act("scribble", context)

    @tool(kind="write")
    def pay(idempotency_key: str, context: ToolContext) -> str:
        """Pay once for each key."""
        effect = f"pay {idempotency_key}"
        is_paid = path.exists() and effect in path.read_text().splitlines()
        return effect if is_paid else act(effect, context)

    @tool(kind="write", approval=True)
    def remove(context: ToolContext) -> str:
        """Remove what a person allows to remove."""
        return act("remove", context)

    @tool(kind="write")
    def inquire(context: ToolContext) -> str:
        """Do what a person says."""
        if context.values is None:
            raise WaitForInput({"question": "What?"})
        return act(f"inquire {context.values['answer']}", context)

    tools = (look, scribble, pay, remove, inquire, confirm, explode, explode_once)
    return {item.name: item for item in tools}


QUESTIONS: dict[Question, str] = {
    "approval": "remove",
    "approval below": "remove",
    "input": "inquire",
    "page": "confirm",
}


def results_of(messages: list[Message]) -> int:
    """Count the results since the last prompt."""
    count = 0
    for message in reversed(messages):
        for part in message.content:
            if message.role == "user" and part["type"] == "text":
                return count
            count += part["type"] == "tool_result"
    return count


def make_guide(order: Order) -> Agent:
    """Make an agent that works as the last prompt says, with a scout below it."""
    tools = make_tools(order.effects_path)
    asks_below = order.question == "approval below"

    def guide_script(messages: list[Message]) -> Iterator[str | ToolUse]:
        prompt = prompt_of(messages)
        results = results_of(messages)
        if prompt.startswith("explode"):
            yield ToolUse(prompt) if not results else "I am still here."
        elif prompt != "Go":
            yield f"You said {prompt}."
        elif results == 0:
            yield "I look into it."
            yield ToolUse("look")
            yield ToolUse("scribble")
            yield ToolUse("pay", {"idempotency_key": KEY})
            yield ToolUse("scout", {"prompt": "Scout"})
        elif results == 4 and not asks_below:
            yield "And now the question."
            yield ToolUse(QUESTIONS[order.question])
        else:
            yield "All is done."

    def scout_script(messages: list[Message]) -> Iterator[str | ToolUse]:
        results = results_of(messages)
        if results == 0:
            yield "I walk around."
            yield ToolUse("look")
        elif results == 1 and asks_below:
            yield ToolUse("remove")
        else:
            yield "It is green."

    scout = Agent("Scout", "", Scripted(scout_script), tools=(tools["look"], tools["remove"]))
    model = FatalModel(Scripted(guide_script))
    return Agent("Guide", "", model, tools=tuple(tools.values()), agents=[scout])


def prompt_of(messages: list[Message]) -> str:
    texts = [
        part["text"]
        for message in messages
        for part in message.content
        if message.role == "user" and part["type"] == "text"
    ]
    return str(texts[-1])


class FatalModel:
    """A model that ends its process in the middle of a text if it is told so."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self.name = model.name

    async def stream(self, request: Request, reply: ReplyBuilder) -> AsyncIterator[list[Payload]]:
        async for batch in self._model.stream(request, reply):
            yield batch
            if prompt_of(request.messages) == "die":
                os._exit(EXPLODES)


# the server


class Server:
    """One server on the log, from its start to the end of all turns."""

    def __init__(
        self, order: Order, store: EndingStore, sessions: Sessions, leave: Callable[[], object]
    ) -> None:
        self._order = order
        self._store = store
        self._sessions = sessions
        self._leave = leave  # ends a server that has to answer and may not
        self._tree = Tree()
        self._answered: set[str] = set()

    async def run(self) -> None:
        log = self._sessions.log
        await self._sessions.start()
        if await find_session(log, SESSION) is None:
            await self._sessions.create(ADA, session_id=SESSION)
        self._store.is_armed = True
        seat = await self._sessions.get_membership(ADA, SESSION)
        for number, text in enumerate(self._order.texts):
            message_id = f"evt_message-{number}"
            if not await log.find_events(SESSION, [message_id]):
                await self._sessions.send(seat, UiMessage(text=text), message_id)
            await self._follow_turn(seat)

    async def _follow_turn(self, seat: Membership) -> None:
        """Answer the questions of the turn until it is over."""
        is_at_end = self._tree.last_seq == await self._sessions.log.last_seq(SESSION)
        if is_at_end and not self._tree.open and not self._tree.queued_turns:
            return  # an earlier server has finished it
        async with aclosing(self._sessions.log.follow(SESSION, self._tree.last_seq)) as pages:
            async for page in pages:
                apply_page(self._tree, page, seat)
                await self._answer(seat)
                if not self._tree.open and not self._tree.queued_turns:
                    return

    async def _answer(self, seat: Membership) -> None:
        for draft in build_answers(self._tree):
            if not self._order.answers:
                self._leave()
                return
            name = seat.app.catalog.get_type_name(type(draft.payload))
            event = ClientEvent(name, msgspec.to_builtins(draft.payload), answer_id(draft))
            if event.id not in self._answered:
                self._answered.add(event.id)
                with suppress(Conflict, NotFound):  # the server has closed the question meanwhile
                    await self._sessions.post(seat, [event])


def apply_page(tree: Tree, page: Page, seat: Membership) -> None:
    for row in page:
        envelope = decode_envelope(envelope_json(row))
        if not row.live:
            tree.apply(envelope, seat.app.catalog.decode_payload(envelope))


def build_answers(tree: Tree) -> list[EventDraft]:
    """Build the answers to all calls that wait, if all agents wait."""
    answers: list[EventDraft] = []
    if not tree.is_all_waiting:
        return answers
    for invocation in tree.open.values():
        for call_id, call in invocation.calls.items():
            if call.is_waiting:
                value = {"answer": "this"} if call.call.tool == "inquire" else True
                answers += answer_events(tree, call_id, value)
    return answers


def answer_id(answer: EventDraft) -> str:
    """Return the id of the answer to a call: the same for every server that gives it."""
    return f"evt_answer-{getattr(answer.payload, 'call_id', '')}"


def make_app(order: Order) -> App:
    return App("outlive", make_guide(order), on_crash=order.on_crash)


async def serve(order: Order, make_app: Callable[[Any], App]) -> int:
    """Run a server to the end of its turns, or until it is stopped. Return the exit code."""
    if order.reruns_tools:
        AgentRuntime._is_interrupted = lambda *_: False  # type: ignore[method-assign]
    loop = asyncio.get_running_loop()
    stopped = asyncio.Event()
    end_process = partial(loop.call_soon_threadsafe, stopped.set) if order.is_stopped else kill_process
    leave = stopped.set if order.is_stopped else partial(os._exit, WAITS)
    store = EndingStore(order.log_path, order.dies_after, end_process)
    log = Log(store)
    sessions = Sessions(log, [make_app(order)], os.getpid())
    turns = asyncio.create_task(Server(order, store, sessions, leave).run())
    stop = asyncio.create_task(stopped.wait())
    await asyncio.wait({turns, stop}, return_when=asyncio.FIRST_COMPLETED)

    store.is_armed = False
    code = 0 if turns.done() else STOPPED
    for task in (turns, stop):
        task.cancel()
    results = await asyncio.gather(turns, stop, return_exceptions=True)
    await sessions.close()
    await log.close()
    for result in results:
        if isinstance(result, Exception):
            raise result
    return code


def serve_orders(order_class: type[Order], make_app: Callable[[Any], App]) -> None:
    for line in sys.stdin.buffer:
        order = msgspec.json.decode(line, type=order_class)
        child = os.fork()
        if child == 0:
            os._exit(asyncio.run(serve(order, make_app)))
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)  # noqa: T201


if __name__ == "__main__":
    serve_orders(Order, make_app)
