"""Completions: call the model of an agent, append its output as it arrives, retry when it fails.

A completion is complete when its usage is in the log, in one batch with its last block and its calls. The
output of an attempt that failed is retracted before the next one.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from itertools import count
from typing import TYPE_CHECKING

from turnlog.agents.agent import Agent
from turnlog.agents.models import ModelError, Request
from turnlog.agents.models.model import MODEL_FAILED, session_blob_reader
from turnlog.agents.models.prices import compute_cost
from turnlog.agents.runtime.delta_writer import DeltaWriter
from turnlog.agents.runtime.turn_loop import STEP_LIMIT_PROMPT, TurnLoop, model_events
from turnlog.agents.tag_instructions import instructions_with_tags
from turnlog.errors import CallerError, Fenced, InvalidEvent, SessionClosed, StoreError
from turnlog.events import BlockRetract, Payload, SessionError, Vocabulary
from turnlog.ids import new_id
from turnlog.parse.reply import ReplyBuilder, tag_parser_factory
from turnlog.state.content_parts import text_part
from turnlog.state.history import History, Message
from turnlog.state.tree import Invocation

if TYPE_CHECKING:
    from turnlog.agents.runtime.session_runner import SessionRunner

log = logging.getLogger("turnlog.agents")

INSTRUCTIONS_FAILED = "instructions_failed"


class Completions:
    """Runs the completions of one session's agents. `history` has the durable events of the session."""

    def __init__(
        self,
        host: "SessionRunner",
        turn_loop: TurnLoop,
        vocabulary: Vocabulary | None,
        channel_vocabularies: Mapping[str, Vocabulary],
    ) -> None:
        self._host = host
        self._turn_loop = turn_loop
        self._vocabulary = vocabulary
        self._channel_vocabularies = channel_vocabularies
        self.history = History()
        self.active_agents: set[str] = set()
        self.is_handing_over = False

    def start(self, agent_id: str) -> None:
        """Start a completion of an agent, unless one is under way, or the next owner is to do it."""
        if agent_id not in self.active_agents and not self.is_handing_over:
            self.active_agents.add(agent_id)
            invocation = self._host.tree.open[agent_id]
            self._host.spawn(self._run_step(invocation), invocation.scope.trace_id)

    async def _run_step(self, invocation: Invocation) -> None:
        """Run one completion, with retries. The output of a failed attempt is retracted before the next."""
        retry = self._turn_loop.agent_of(invocation).retry
        for failures in count(1):
            await self._host.confirm_ownership()  # a paused process must not pay for a model in vain
            reply = self._make_reply(invocation)
            error = await self._attempt(invocation, reply)
            if error is None:
                return
            if not error.retriable or failures >= retry.max_attempts:
                await self._fail_step(invocation, reply, error)
                return
            await self._retract(invocation, reply, error.code)
            if self.is_handing_over:
                self.active_agents.discard(invocation.agent_id)
                return
            await asyncio.sleep(retry.delay_s(failures, error.retry_after_s))

    async def _attempt(self, invocation: Invocation, reply: ReplyBuilder) -> ModelError | None:
        """Run one attempt at a completion. Return None if it succeeded, else its error."""
        try:
            ending = await self._stream_reply(invocation, reply)
            await self._complete_step(invocation, reply, ending)
        except ModelError as error:
            return error
        except (SessionClosed, Fenced):
            raise  # the session accepts no events of this owner, not even the failure of this agent
        except (CallerError, ValueError) as error:  # the log refuses an event of the model
            log.exception("the output of a model cannot be appended")
            return ModelError("refused_event", f"{type(error).__name__} in the output of the model")
        return None

    def _make_reply(self, invocation: Invocation) -> ReplyBuilder:
        agent = self._turn_loop.agent_of(invocation)
        return ReplyBuilder(new_id, tag_parser_factory(self._vocabulary_of(invocation)), agent.executor_of)

    def _vocabulary_of(self, invocation: Invocation) -> Vocabulary | None:
        return self._channel_vocabularies.get(invocation.scope.channel or "", self._vocabulary)

    async def _stream_reply(self, invocation: Invocation, reply: ReplyBuilder) -> list[Payload]:
        """Append the model's output as it arrives. Return the last batch: it is appended with the usage."""
        ending: list[Payload] = []
        writer = DeltaWriter(
            lambda batch: asyncio.ensure_future(self._host.append(model_events(batch, invocation.scope)))
        )
        try:
            async with self._open_stream(invocation, reply) as batches:
                async for batch in batches:
                    if reply.complete:
                        ending += batch
                    else:
                        await writer.write(batch)
        except (ModelError, InvalidEvent, SessionClosed, Fenced, StoreError):
            raise
        except (Exception, asyncio.CancelledError) as error:  # a model is foreign code: it may raise anything
            if is_being_cancelled(error):
                raise
            log.exception("a model failed")
            raise ModelError(MODEL_FAILED, f"{type(error).__name__} in the model") from error
        finally:
            await writer.flush()
        if not reply.complete:
            code = reply.error.code if reply.error else "no_end"
            raise ModelError(code, "The model's answer broke off.", retriable=True)
        return ending

    @asynccontextmanager
    async def _open_stream(
        self, invocation: Invocation, reply: ReplyBuilder
    ) -> AsyncIterator[AsyncIterator[list[Payload]]]:
        model = self._turn_loop.agent_of(invocation).model
        batches = model.stream(self._build_request(invocation), reply)
        try:
            yield batches
        finally:
            if isinstance(batches, AsyncGenerator):
                await batches.aclose()

    def _build_request(self, invocation: Invocation) -> Request:
        agent = self._turn_loop.agent_of(invocation)
        messages = list(self.history.messages(invocation.agent_id, invocation.scope.channel))
        tools = agent.tool_specs
        if invocation.steps >= agent.max_steps:
            messages.append(Message("user", [text_part(STEP_LIMIT_PROMPT)]))
            tools = ()
        instructions = instructions_with_tags(self._instructions_of(agent), self._vocabulary_of(invocation))
        session_id = self._host.session_id
        get_blob = session_blob_reader(session_id, self._host.log.get_blob)
        put_blob = partial(self._host.log.put_blob, session_id)
        return Request(instructions, messages, tools, get_blob, put_blob=put_blob)

    def _instructions_of(self, agent: Agent) -> str:
        try:
            return agent.instructions_for(self._host.folds.app_state.state)
        except Exception as error:  # the application's function may raise anything
            log.exception("the instructions of %s failed", agent.name)
            message = f"{type(error).__name__} in the instructions of {agent.name}"
            raise ModelError(INSTRUCTIONS_FAILED, message) from error

    async def _complete_step(
        self, invocation: Invocation, reply: ReplyBuilder, ending: list[Payload]
    ) -> None:
        # the end of the agent needs all its blocks and calls in the tree
        await self._host.wait_for_head()
        price = compute_cost(reply.model or invocation.start.model or "", reply.usage)
        items = self._turn_loop.completion_events(invocation, reply, ending, price)
        self.active_agents.discard(invocation.agent_id)
        last = await self._host.append_with_rules(items)
        if reply.stop_reason == "pause_turn" and not reply.calls:
            await self._host.wait_for_seq(last)
            if self._turn_loop.call_model(invocation.agent_id):
                self.start(invocation.agent_id)

    async def _fail_step(self, invocation: Invocation, reply: ReplyBuilder, error: ModelError) -> None:
        await self._host.wait_for_head()
        await self._host.folds.load_open_texts()
        problem = SessionError(
            code=error.code,
            message=error.message,
            provider_message=error.provider_message,
            retriable=error.retriable,
        )
        self.active_agents.discard(invocation.agent_id)
        await self._host.append(self._turn_loop.failure_events(invocation, reply, problem))

    async def _retract(self, invocation: Invocation, reply: ReplyBuilder, reason: str) -> None:
        batch = reply.abort()
        if reply.block_ids:
            batch.append(BlockRetract(block_ids=reply.block_ids, reason=reason))
        await self._host.append(model_events(batch, invocation.scope))


def is_being_cancelled(error: BaseException) -> bool:
    """Return whether this task is being cancelled. A model may also raise `CancelledError` by itself."""
    task = asyncio.current_task()
    return isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling() > 0
