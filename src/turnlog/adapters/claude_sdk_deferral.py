"""Calls of the Claude Code program that wait without a process: `defer` of its PreToolUse hook.

The program stores a call that is deferred, and ends. When it resumes the conversation it asks the hook about
the call again, and then runs it. It asks while the model may still be speaking, and a second call of the same
message would be lost (seen with 2.1.325): so the hook waits for the end of the message, and defers only a
call that is alone. It cannot store the calls of sub-agents. Imports the framework.
"""

from collections.abc import Awaitable, Callable, Collection
from typing import Any, NamedTuple

from claude_agent_sdk import AssistantMessage, HookMatcher, ResultMessage, StreamEvent, ToolUseBlock

from turnlog.adapters.runner import Answer, Denied
from turnlog.log.wakeup import Wakeup

QUESTION_TOOL = "AskUserQuestion"  # the program's own tool that asks the user
HOOK_TIMEOUT_S = 3600.0  # a model may speak for long after its first call

HookOutput = dict[str, Any]


class HeldCall(NamedTuple):
    """The call that a conversation waits for. Without an answer a message came in its place."""

    call_id: str
    answer: Answer | None


class MessageCalls:
    """The calls of the main agent's last message, and whether there may be more."""

    def __init__(self) -> None:
        self._message_id: str | None = None
        self._call_ids: list[str] = []
        self._is_complete = False

    def feed(self, message: Any) -> None:
        if getattr(message, "parent_tool_use_id", None) is not None:
            return
        if isinstance(message, StreamEvent):
            self._feed_event(message.event)
        elif isinstance(message, AssistantMessage):
            # a message that is not streamed is known as a whole before its calls begin
            if message.message_id != self._message_id:
                self._begin(message.message_id, is_complete=True)
            for block in message.content:
                if isinstance(block, ToolUseBlock):
                    self._add(block.id)

    @property
    def has_begun(self) -> bool:
        """Return whether the main agent has said anything."""
        return self._message_id is not None

    def _feed_event(self, event: dict[str, Any]) -> None:
        kind = event.get("type")
        if kind == "message_start":
            self._begin((event.get("message") or {}).get("id"), is_complete=False)
        elif kind == "content_block_start":
            block = event.get("content_block") or {}
            if block.get("type") == "tool_use":
                self._add(block.get("id"))
        elif kind == "message_stop":
            self._is_complete = True

    def _begin(self, message_id: str | None, *, is_complete: bool) -> None:
        self._message_id = message_id
        self._call_ids = []
        self._is_complete = is_complete

    def _add(self, call_id: Any) -> None:
        if call_id not in self._call_ids:
            self._call_ids.append(call_id)

    def count_with(self, call_id: str) -> int | None:
        """Return how many calls the message of a call has; None while it is not known."""
        if call_id not in self._call_ids or not self._is_complete:
            return None
        return len(self._call_ids)


class Deferrals:
    """Decides which calls wait without a process. `tools` always ask; so does the program's own question.

    `is_busy` says whether something else runs, which would end with the process. `wait_for_call` waits until
    a call is read, or everything that the program sent before it asked about the call.
    """

    def __init__(
        self,
        tools: Collection[str],
        held_call: HeldCall | None,
        is_busy: Callable[[], bool],
        wait_for_call: Callable[[str], Awaitable[None]],
    ) -> None:
        self._tools = frozenset(tools)
        self._held_call = held_call
        self._is_busy = is_busy
        self._wait_for_call = wait_for_call
        self._calls = MessageCalls()
        self._progress = Wakeup()
        self._has_resumed = False
        self._on_resumed: Callable[[], None] | None = None

    @property
    def held_call(self) -> HeldCall | None:
        return self._held_call

    def feed(self, message: Any) -> None:
        self._note_resumed()
        self._calls.feed(message)
        self._progress.wake()

    def call_when_resumed(self, on_resumed: Callable[[], None]) -> None:
        """Call a function once, as soon as the program works."""
        if self._has_resumed:
            on_resumed()
        else:
            self._on_resumed = on_resumed

    def _note_resumed(self) -> None:
        self._has_resumed = True
        if self._on_resumed is not None:
            self._on_resumed()
            self._on_resumed = None

    def answer_to(self, call_id: str | None) -> Answer | None:
        """Return what a person answered to the held call; None for every other call."""
        is_held = self._held_call is not None and self._held_call.call_id == call_id
        return self._held_call.answer if self._held_call is not None and is_held else None

    def is_end_of_held(self, message: ResultMessage) -> bool:
        """Return whether a result only says that the held call still waits: the message comes next."""
        call = message.deferred_tool_use
        held_call = self._held_call
        return (
            call is not None
            and held_call is not None
            and held_call.answer is None
            and call.id == held_call.call_id
        )

    def make_matcher(self) -> HookMatcher:
        # a hook that fails must not let a call run that a person has to see
        on_failure: Any = "block" if self._tools else None
        asks_always = not self._tools and self._held_call is None
        matcher = QUESTION_TOOL if asks_always else None
        return HookMatcher(matcher, [self.decide_call], timeout=HOOK_TIMEOUT_S, on_failure=on_failure)

    async def decide_call(self, request: Any, tool_use_id: str | None, _: Any) -> Any:
        """Answer the PreToolUse hook of a call."""
        call_id = request.get("tool_use_id") or tool_use_id or ""
        tool = request.get("tool_name")
        if self._held_call is not None and call_id == self._held_call.call_id:
            self._note_resumed()
            return decide_held(self._held_call.answer)
        if tool != QUESTION_TOOL and tool not in self._tools:
            return {}
        if not request.get("agent_id"):
            await self._wait_for_call(call_id)
            if not self._calls.has_begun:
                # An earlier process has stored the call, and its checkpoint was lost: no person was asked.
                self._held_call = HeldCall(call_id, None)
                return make_decision("defer")
            if await self._is_alone(call_id):
                return make_decision("defer")
        # the permission callback asks; the program's own question calls it in any case
        return {} if tool == QUESTION_TOOL else make_decision("ask")

    async def _is_alone(self, call_id: str) -> bool:
        while (count := self._calls.count_with(call_id)) is None:
            await self._progress.wait()
        return count == 1 and not self._is_busy()


def decide_held(answer: Answer | None) -> HookOutput:
    if answer is None:
        # The program ends the turn of the call without asking its model, and then reads the message.
        return make_decision("defer")
    if isinstance(answer, Denied):
        return make_decision("deny", answer.reason)
    return make_decision("allow")


def make_decision(decision: str, reason: str | None = None) -> HookOutput:
    output = {"hookEventName": "PreToolUse", "permissionDecision": decision}
    if reason is not None:
        output["permissionDecisionReason"] = reason
    return {"hookSpecificOutput": output}
