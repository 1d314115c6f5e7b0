"""Run an agent of the Claude Agent SDK: `turnlog.adapters.claude_sdk(options)`. Imports the framework.

Each part starts the Claude Code program through a `ClaudeSDKClient`, which resumes the conversation of the
channel. The program stores the conversation itself; the state is its id. A part is paused for a call that
the program can store (`claude_sdk_deferral`). All other permissions wait inside the part.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ClaudeSDKError, ResultMessage, Transport

from turnlog.adapters.claude_sdk_deferral import HeldCall
from turnlog.adapters.claude_sdk_prompt import make_prompt
from turnlog.adapters.claude_sdk_watch import ClaudeSdkWatch
from turnlog.adapters.frameworks import CLAUDE_SDK
from turnlog.adapters.part_output import PartOutput
from turnlog.adapters.runner import Finished, Part, Paused, UnreadableState
from turnlog.errors import CallerError
from turnlog.events import Cost
from turnlog.parse import AgentInfo

SOURCE = "claude_sdk"
DEFAULT_NAME = "Claude"
RESUME_LIMIT_S = 60.0  # to take up the call that the program has stored; it starts in about a second
INTERRUPT_GRACE_S = 2.0  # for the program to write down that it was interrupted; then it is ended
# The adapter owns the conversation and asks people: with these a run would have two.
OWN_OPTIONS = (
    "resume",
    "continue_conversation",
    "session_id",
    "fork_session",
    "can_use_tool",
    "permission_prompt_tool_name",
)

MakeOptions = Callable[[Part], ClaudeAgentOptions]
MakeTransport = Callable[[ClaudeAgentOptions], Transport]


class ClaudeState(msgspec.Struct, frozen=True, omit_defaults=True):
    """What the next part needs: the program's own id of the conversation, and the call that it waits for.

    `totals` are tokens and cost of the conversation, which the program counts on. `paid_usd` is what the
    earlier parts of a paused turn cost. Without a `held_tool` the held call had its answer, and may have run.
    """

    session_id: str
    held_call: str | None = None
    held_tool: str | None = None
    totals: dict[str, Any] = {}
    paid_usd: float = 0.0


class ClaudeSdkRunner:
    """Runs the program with some options, which may be a function of the `Part`."""

    source = SOURCE

    def __init__(
        self,
        options: ClaudeAgentOptions | MakeOptions,
        name: str | None,
        make_transport: MakeTransport | None,
        deferred_tools: Collection[str] = (),
    ) -> None:
        self._make_options: MakeOptions
        self._model: str | None = None
        if isinstance(options, ClaudeAgentOptions):
            fixed = check_options(options)
            self._model = fixed.model
            self._make_options = lambda _: fixed
        elif callable(options):
            self._make_options = options
        else:
            raise CallerError(f"expected ClaudeAgentOptions, got {type(options).__name__}")
        self.name = name or DEFAULT_NAME
        self._make_transport = make_transport
        self._deferred_tools = deferred_tools
        self.version = CLAUDE_SDK.version

    def can_read(self, version: str) -> bool:
        return True  # an id is an id in every version

    def describe_agent(self, state: bytes | None) -> AgentInfo:
        stored = decode_claude_state(state)
        source_session = None if stored is None else stored.session_id
        return AgentInfo(self.name, self._model, source_session=source_session)

    async def run(self, part: Part, output: PartOutput) -> Finished | Paused:
        state = decode_claude_state(part.state)
        key = (output.root.agent_id, state.held_call or "") if state is not None else ("", "")
        held_call: HeldCall | None = None
        note: str | None = None
        if state is not None and state.held_call is not None:
            held_call = HeldCall(state.held_call, None if part.message is not None else part.answer_to(key))
            if state.held_tool is not None:
                note = f"[{state.held_tool}: {part.denial_of(key)}]"

        totals = None if state is None else state.totals
        watch = ClaudeSdkWatch(output, totals, held_call, self._deferred_tools)
        client = self._make_client(part, state, watch)
        try:
            await client.connect()
            if held_call is None or held_call.answer is None:
                await client.query(make_prompt(part, note))
            await read_part(client, watch, is_resumed=state is not None)
        except asyncio.CancelledError:
            await interrupt(client, watch)
            save_state(output, watch, state)
            raise
        except ClaudeSDKError as error:
            save_state(output, watch, state)
            if state is not None and watch.translator.session_id is None:
                raise UnreadableState(f"the conversation cannot be resumed: {error}") from error
            raise
        finally:
            await client.disconnect()
        return make_outcome(watch, state)

    def _make_client(self, part: Part, state: ClaudeState | None, watch: ClaudeSdkWatch) -> ClaudeSDKClient:
        options = check_options(self._make_options(part))
        hooks = dict(options.hooks or {})
        hooks["PreToolUse"] = [*hooks.get("PreToolUse", []), watch.deferrals.make_matcher()]
        options = replace(
            options,
            resume=None if state is None else state.session_id,
            can_use_tool=watch.can_use_tool,
            hooks=hooks,
            include_partial_messages=True,
            forward_subagent_text=True,
        )
        return ClaudeSDKClient(options, self._make_transport(options) if self._make_transport else None)


async def read_part(client: ClaudeSDKClient, watch: ClaudeSdkWatch, *, is_resumed: bool) -> None:
    """Read to the end of a part. Raise `UnreadableState` if the program has lost the call it waited for."""
    held_call = watch.deferrals.held_call
    if held_call is None or held_call.answer is None:
        await read_turn(client, watch, is_resumed=is_resumed)
        return
    # without a message nothing but the stored call starts the program
    limit = asyncio.timeout(RESUME_LIMIT_S)
    try:
        async with limit:
            watch.deferrals.call_when_resumed(partial(limit.reschedule, None))
            await read_turn(client, watch, is_resumed=is_resumed)
    except TimeoutError as error:
        if not limit.expired():
            raise
        raise UnreadableState("the program does not know the call that was answered") from error


def make_outcome(watch: ClaudeSdkWatch, state: ClaudeState | None) -> Finished | Paused:
    finished = watch.describe_end(encode_claude_state(watch, state))
    if finished is None:
        raise RuntimeError("the program ended in the middle of a turn")
    cost = finished.cost
    if state is not None and state.paid_usd:
        earlier_cost = Cost(total_cost=state.paid_usd)
        cost = earlier_cost if cost is None else earlier_cost + cost
    call = watch.deferred_call
    if call is None:
        return finished._replace(cost=cost)

    paid_usd = cost.total_cost if cost is not None else 0.0
    paused_state = encode_claude_state(
        watch, state, held_call=call.id, held_tool=call.name, paid_usd=paid_usd
    )
    assert paused_state is not None, "a program that has deferred a call has named its conversation"
    return Paused(paused_state, [watch.make_question(call)])


async def read_turn(client: ClaudeSDKClient, watch: ClaudeSdkWatch, *, is_resumed: bool) -> None:
    """Read to the result of a turn. The program goes on after it while an agent works in the background."""
    async with aclosing(watch.watch(refuse_lost(client, watch, is_resumed))) as messages:
        async for message in messages:
            if isinstance(message, ResultMessage) and not watch.translator.has_background_agents:
                return


async def refuse_lost(
    client: ClaudeSDKClient, watch: ClaudeSdkWatch, is_resumed: bool
) -> AsyncGenerator[Any, None]:
    """Yield the messages. Raise `UnreadableState` if a conversation that is resumed only has an error."""
    async for message in client.receive_messages():
        is_lost = is_resumed and watch.translator.session_id is None
        if isinstance(message, ResultMessage) and watch.deferrals.is_end_of_held(message):
            continue
        if is_lost and isinstance(message, ResultMessage) and message.is_error:
            reason = "; ".join(message.errors or ()) or message.subtype
            raise UnreadableState(f"the conversation cannot be resumed: {reason}")
        yield message


async def interrupt(client: ClaudeSDKClient, watch: ClaudeSdkWatch) -> None:
    """Let the program end its turn in order. Of what it says after the interrupt only totals are read."""
    with suppress(ClaudeSDKError, TimeoutError):
        async with asyncio.timeout(INTERRUPT_GRACE_S):
            # the program has begun to act on these messages
            await watch.report_available(client.receive_messages())
            await client.interrupt()
            async for message in client.receive_response():
                watch.translator.read_totals(message)


def check_options(options: ClaudeAgentOptions) -> ClaudeAgentOptions:
    for name in OWN_OPTIONS:
        if getattr(options, name):
            raise CallerError(f"expected no {name}: the adapter passes it to the program")
    return options


def save_state(output: PartOutput, watch: ClaudeSdkWatch, state: ClaudeState | None) -> None:
    """Keep the conversation. The program knows whether the call that it waited for has run."""
    fields: dict[str, Any] = {}
    held_call = watch.deferrals.held_call
    if state is not None and held_call is not None:
        has_answer = held_call.answer is not None
        fields = {"held_call": held_call.call_id, "held_tool": None if has_answer else state.held_tool}
    encoded = encode_claude_state(watch, state, **fields)
    if watch.translator.session_id is not None and encoded is not None:
        output.save_state(encoded)


def encode_claude_state(watch: ClaudeSdkWatch, state: ClaudeState | None, **fields: Any) -> bytes | None:
    session_id = watch.translator.session_id or (None if state is None else state.session_id)
    if session_id is None:
        return None
    return msgspec.json.encode(ClaudeState(session_id, totals=watch.translator.totals, **fields))


def decode_claude_state(state: bytes | None) -> ClaudeState | None:
    if state is None:
        return None
    try:
        return msgspec.json.decode(state, type=ClaudeState)
    except msgspec.DecodeError as error:
        raise UnreadableState("the stored conversation has no id") from error
