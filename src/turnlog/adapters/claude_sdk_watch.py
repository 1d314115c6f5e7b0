"""Watch a run of the Claude Agent SDK: its messages and its permission callback. Imports the framework.

The SDK calls `can_use_tool` in a task of its own, while messages that the program sent before are still in
its queue. A question waits until those are read: otherwise it would belong to no agent.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Collection
from functools import partial
from typing import Any, TypeVar

from claude_agent_sdk import (
    DeferredToolUse,
    PermissionResultAllow,
    PermissionResultDeny,
    ResultMessage,
    ToolPermissionContext,
)

from turnlog.adapters.claude_sdk_deferral import QUESTION_TOOL, Deferrals, HeldCall
from turnlog.adapters.part_output import PartOutput
from turnlog.adapters.runner import Answer, Denied, Finished, Question, Returned
from turnlog.log.wakeup import Wakeup
from turnlog.parse.claude.sdk_messages import ClaudeSdkTranslator
from turnlog.parse.json_values import JsonObject

M = TypeVar("M")

READER_STEPS = 16  # of the event loop: more than the SDK needs to pass on a message that it has read
UNKNOWN_CALL = "This call cannot be shown to a person, so it is not approved."


class ClaudeSdkWatch:
    """Reports the messages of one part, and asks people for what the program wants to do.

    `held_call` is the call that the conversation waits for, and calls of `deferred_tools` wait without a
    process. `totals` are those of the conversation before this part. The part ended with `deferred_call`.
    """

    def __init__(
        self,
        output: PartOutput,
        totals: JsonObject | None = None,
        held_call: HeldCall | None = None,
        deferred_tools: Collection[str] = (),
    ) -> None:
        self._output = output
        self.translator = ClaudeSdkTranslator(output.builder, output.root, totals)
        self.deferrals = Deferrals(
            deferred_tools,
            held_call,
            lambda: self.translator.has_background_agents,
            self._wait_for_call,
        )
        self.deferred_call: DeferredToolUse | None = None
        self._is_reading = False  # a message: others may be in the queue of the SDK
        self._progress = Wakeup()

    async def watch(self, messages: AsyncIterable[M]) -> AsyncGenerator[M, None]:
        """Yield the messages. Each is in the log before it is yielded."""
        try:
            async for message in messages:
                self._set_reading(True)
                self.deferrals.feed(message)  # before the call is known: a hook may wait for that
                await self._output.report(self.translator.feed, message)
                if isinstance(message, ResultMessage):
                    self.deferred_call = None if message.is_error else message.deferred_tool_use
                yield message
                self._set_reading(False)
        finally:
            self._set_reading(False)

    async def report_available(self, messages: AsyncIterable[Any]) -> None:
        """Report the messages that the SDK has read already, and do not wait for others."""
        source = aiter(messages)
        while True:
            reading = asyncio.ensure_future(anext(source, None))
            await run_reader_steps(reading.done)
            if not reading.done():
                reading.cancel()
                await asyncio.wait({reading})
                return
            message = reading.result()
            if message is None:
                return
            await self._output.report(self.translator.feed, message)

    def describe_end(self, state: bytes | None) -> Finished | None:
        """Return how the turn ended, with the state for the next one; None before its result."""
        end = self.translator.end
        if end is None:
            return None
        return Finished(state, self.translator.result, end.reason, end.cost)

    def make_question(self, call: DeferredToolUse) -> Question:
        """Return the question about the call that the part ended with."""
        context = ToolPermissionContext(tool_use_id=call.id)
        requested = self.translator.open_call(call.name, call.input, context)
        reason = requested.reason if requested is not None else None
        return Question(self._output.root, call.id, call.name == QUESTION_TOOL, reason)

    def _set_reading(self, is_reading: bool) -> None:
        self._is_reading = is_reading
        self._progress.wake()

    async def can_use_tool(
        self, tool: str, args: dict[str, Any], context: ToolPermissionContext
    ) -> PermissionResultAllow | PermissionResultDeny:
        """Ask a person, and wait. The program's own questions are for the page."""
        earlier_answer = self.deferrals.answer_to(context.tool_use_id)
        if earlier_answer is not None:
            return to_permission(earlier_answer, args, args)
        await self._wait_for_call(context.tool_use_id)
        requested = self.translator.open_call(tool, args, context)
        if requested is None:
            return PermissionResultDeny(message=UNKNOWN_CALL)

        key = (requested.agent.agent_id, requested.call_id)
        is_for_page = tool == QUESTION_TOOL
        question = Question(requested.agent, requested.call_id, is_for_page, requested.reason)
        answer = (await self._output.ask([question]))[key]
        return to_permission(answer, args, requested.args)

    async def _wait_for_call(self, call_id: str | None) -> None:
        """Wait until the call is read, or everything that the program has sent before its request."""
        while not self.translator.knows_call(call_id):
            if self._is_reading:
                await self._progress.wait()
                continue
            if not await run_reader_steps(partial(self._has_read_since, self._progress.count)):
                return

    def _has_read_since(self, count: int) -> bool:
        return self._progress.count != count


async def run_reader_steps(has_progress: Callable[[], bool]) -> bool:
    """Let the reader take a message that is in the queue of the SDK. Return False if there is none."""
    for _ in range(READER_STEPS):
        if has_progress():
            return True
        await asyncio.sleep(0)
    return has_progress()


def to_permission(
    answer: Answer, args: JsonObject, approved_args: JsonObject
) -> PermissionResultAllow | PermissionResultDeny:
    if isinstance(answer, Denied):
        return PermissionResultDeny(message=answer.reason)
    if isinstance(answer, Returned):
        answers = build_answers(args.get("questions"), answer.value)
        return PermissionResultAllow(updated_input=args | {"answers": answers})
    return PermissionResultAllow(updated_input=approved_args)


def build_answers(questions: Any, value: Any) -> dict[str, Any]:
    """Return what a page answered, by question. A text answers each of them."""
    if isinstance(value, dict):
        return value
    texts = [item.get("question") for item in questions or () if isinstance(item, dict)]
    return {str(text): value for text in texts}
