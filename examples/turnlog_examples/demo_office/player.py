"""Plays one turn of the stand-in: blocks in, lines out; tools run, helpers at once, permissions asked for.

The lines come in the order of the original: a block in pieces and whole, then the results of the calls, then
the result of the turn. Interrupted, it says so of everything that is open. When the host is gone, no
process answers or reads: then there is no result.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, NamedTuple, NoReturn

from turnlog_examples.demo_office.lines import Data, Lines, Meter, message_of
from turnlog_examples.demo_office.script import (
    Aside,
    Block,
    Brought,
    Die,
    Fail,
    Hang,
    Raw,
    Say,
    Send,
    Stumble,
    Think,
    Turn,
    Use,
)
from turnlog_examples.demo_office.tools import Desk, Done, allowed, failed

PIECES = 64  # of a long text; a short one has pieces of a few letters
INTERRUPTED = "[interrupted]"


class Failed(Exception):
    """The turn fails; nothing else comes of it."""

    def __init__(self, fail: Fail) -> None:
        super().__init__(fail.message)
        self.fail = fail


class Gone(Exception):
    """The host is gone."""


class Call(NamedTuple):
    """A call that a message made."""

    call_id: str
    block: Use | Send


class Place(NamedTuple):
    """Where a block stands: its message, its number, and whose it is (nothing for the main agent)."""

    message_id: str
    number: int
    about: Data


class Stage:
    """What every turn of a process works with."""

    def __init__(
        self, lines: Lines, desk: Desk, keep: Callable[[], None], end: Callable[[int], NoReturn]
    ) -> None:
        self.lines, self.desk, self.keep, self.end = lines, desk, keep, end
        self.meter = Meter()
        self.pace_s = 0.0
        self.asks = self.forwards = False
        self.gone = asyncio.Event()
        self.questions: dict[str, asyncio.Future[Data]] = {}

    async def pause(self) -> None:
        """What comes meanwhile is read."""
        await asyncio.sleep(self.pace_s)

    async def decided(self, question: asyncio.Future[Data]) -> Data:
        """What the host answers."""
        gone = asyncio.ensure_future(self.gone.wait())
        both: set[asyncio.Future[Any]] = {question, gone}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        finally:
            gone.cancel()
        if not question.done():
            raise Gone
        return question.result()


class Player:
    """One turn."""

    def __init__(self, stage: Stage, uuid: str | None) -> None:
        self._stage, self._lines = stage, stage.lines
        self._uuid = {"user_message_uuid": uuid} if uuid else {}
        self._named = False
        self._partial: tuple[Place, str, str] | None = None
        self._calls: dict[str, Data] = {}  # without a result, and whose they are
        self._denials: list[Data] = []
        self.steps = 0
        self.said = ""

    async def play(self, turn: Turn, number: int) -> None:
        """All of it, to its result."""
        try:
            await self._messages(turn, {})
        except asyncio.CancelledError:
            self._interrupted()
            self._result(number, "error_during_execution", terminal_reason="aborted_streaming", errors=[])
        except Failed as failed:
            self._failed(failed.fail)
            self._result(number, "success", result=failed.fail.message, terminal_reason="api_error")
        else:
            self._result(number, "success", stop_reason="end_turn", result=self.said)

    def _result(self, number: int, subtype: str, **fields: Any) -> None:
        self._stage.keep()  # before anybody knows that the turn is over
        self._lines.line(
            "result",
            subtype=subtype,
            is_error="terminal_reason" in fields,
            num_turns=self.steps,
            duration_ms=1,
            duration_api_ms=1,
            permission_denials=self._denials,
            result_index=number,
            **fields,
            **self._stage.meter.report(self._lines.model),
            **self._uuid,
        )

    # messages

    async def _messages(self, turn: Turn, about: Data) -> str:
        """Everything an agent says and does; its last words."""
        said, brought = "", list[Brought]()
        blocks = next(turn, None)
        while blocks is not None:
            said = next((block.text for block in reversed(blocks) if isinstance(block, Say)), said)
            brought = await self._message(blocks, about)
            try:
                blocks = turn.send(brought)
            except StopIteration:
                blocks = None
        self.said = said
        return said

    async def _message(self, blocks: list[Block], about: Data) -> list[Brought]:
        message_id = self._lines.new_id("msg_")
        self.steps += not about
        self._lines.message_start(message_id, **about)
        calls: list[Call] = []
        for index, block in enumerate(blocks):
            calls += await BLOCKS[type(block)](self, Place(message_id, index, about), block)
        if not about:
            reason = "tool_use" if calls else "end_turn"
            self._lines.event(type="message_delta", delta={"stop_reason": reason}, usage={"output_tokens": 9})
            self._lines.event(type="message_stop")
        return list(await asyncio.gather(*[self._call(call, about) for call in calls]))

    async def _whole(self, place: Place, block: Data, key: str, text: str) -> None:
        """A block: in pieces if anybody wants them, and whole."""
        self._stage.meter.spoke(text)
        if not place.about and self._lines.partials:
            await self._pieces(place, block, key, text)
        self._lines.block(place.message_id, block, **place.about, **self._answering(place.about))
        self._partial = None
        if not place.about:
            self._lines.event(type="content_block_stop", index=place.number)
        await self._stage.pause()

    async def _pieces(self, place: Place, block: Data, key: str, text: str) -> None:
        name, delta = DELTAS[block["type"]]
        empty = {**block, key: {} if key == "input" else ""}
        self._lines.event(type="content_block_start", index=place.number, content_block=empty)
        for end, piece in pieces(text):
            self._lines.event(
                type="content_block_delta", index=place.number, delta={"type": delta, name: piece}
            )
            self._partial = place, block["type"], text[:end]
            await self._stage.pause()

    def _answering(self, about: Data) -> Data:
        """The first answer says which message it answers."""
        named, self._named = self._named, True
        return {} if named or about else self._uuid

    async def _think(self, place: Place, block: Think) -> list[Call]:
        whole = {"type": "thinking", "thinking": block.text, "signature": "standin"}
        await self._whole(place, whole, "thinking", block.text)
        return []

    async def _say(self, place: Place, block: Say) -> list[Call]:
        if not place.about or self._stage.forwards:
            await self._whole(place, {"type": "text", "text": block.text}, "text", block.text)
        return []

    async def _use(self, place: Place, block: Use | Send) -> list[Call]:
        call_id = self._lines.new_id("toolu_")
        name, args = (block.tool, block.args) if isinstance(block, Use) else ("Task", task_args(block))
        whole = {"type": "tool_use", "id": call_id, "name": name, "input": args}
        await self._whole(place, whole, "input", json.dumps(args))
        self._calls[call_id] = place.about
        return [Call(call_id, block)]

    # calls

    async def _call(self, call: Call, about: Data) -> Brought:
        meta: Data = {}
        if isinstance(call.block, Send):
            done = await self._helped(call.call_id, call.block)
        else:
            done, meta = await self._permitted(call.call_id, call.block, about)
        del self._calls[call.call_id]
        self._lines.tool_result(call.call_id, done.text, done.ok, done.account, **about, **meta)
        self._stage.meter.heard(done.text)
        await self._stage.pause()
        return Brought(done.text, done.ok)

    async def _helped(self, call_id: str, send: Send) -> Done:
        """A helper works, and says at the end what became of it."""
        task_id = self._lines.new_id("task_")
        task = {"task_id": task_id, "tool_use_id": call_id}
        self._lines.system(
            "task_started",
            **task,
            description=send.kind,
            subagent_type=send.kind,
            prompt=send.prompt,
            spawn_depth=1,
            is_backgrounded=False,
            task_type="local_agent",
        )
        about = {"parent_tool_use_id": call_id, "agent_id": task_id, "subagent_type": send.kind}
        self._lines.user([{"type": "text", "text": send.prompt}], **about)
        said = await self._messages(send.turn, about)
        self._lines.system("task_notification", **task, status="completed", summary=said)
        return Done(said, {"status": "completed", "content": [{"type": "text", "text": said}]})

    async def _permitted(self, call_id: str, use: Use, about: Data) -> tuple[Done, Data]:
        """What a tool brought, if it may run."""
        answer: Data = {"behavior": "allow", "updatedInput": use.args}
        if not allowed(use.tool, use.args):
            answer = await self._permission(call_id, use, about)
        if answer.get("behavior") == "allow":
            return self._stage.desk.use(use.tool, answer.get("updatedInput") or use.args), {}
        self._denials.append({"tool_name": use.tool, "tool_use_id": call_id, "tool_input": use.args})
        meta = {"tool_result_meta": [{"id": call_id, "permission_decision": "deny"}]}
        return failed(str(answer.get("message") or "It is not allowed.")), meta

    async def _permission(self, call_id: str, use: Use, about: Data) -> Data:
        """Ask the host; without a host the answer is no."""
        asked = {"tool_name": use.tool, "tool_use_id": call_id}
        if not self._stage.asks:
            self._lines.system("permission_denied", **asked, message="Nobody can be asked.")
            return {"behavior": "deny", "message": "Nobody can be asked."}
        request_id = self._lines.new_id("req_")
        question = self._stage.questions[request_id] = asyncio.get_running_loop().create_future()
        why = {"description": f"{use.tool} wants to run.", "input": use.args, "permission_suggestions": []}
        own = {"agent_id": about["agent_id"]} if about else {}
        request = {"subtype": "can_use_tool", **asked, **why, **own}
        self._lines.line("control_request", request_id=request_id, request=request)
        try:
            return await self._stage.decided(question)
        except asyncio.CancelledError:
            self._lines.line("control_cancel_request", request_id=request_id)
            raise
        finally:
            del self._stage.questions[request_id]

    # mishaps

    async def _hang(self, _: Place, __: Hang) -> list[Call]:
        await self._stage.gone.wait()
        raise Gone

    async def _raw(self, _: Place, block: Raw) -> list[Call]:
        self._lines.raw(block.data)
        return []

    async def _aside(self, _: Place, block: Aside) -> list[Call]:
        self._lines.line(block.type, **block.fields)
        return []

    async def _stumble(self, place: Place, block: Stumble) -> list[Call]:
        """Half of it is said and void; the rest of the turn is not streamed."""
        half, lines = block.text[: len(block.text) // 2], self._lines
        void = {"api_message_id": place.message_id, "from_block_index": place.number}
        await self._pieces(place, {"type": "text", "text": ""}, "text", half)
        stop = {"type": "content_block_stop", "index": place.number}
        lines.line("stream_event", event=stop, parent_tool_use_id=None, abandoned_blocks=void)
        lines.line("stream_event", event={"type": "message_stop"}, parent_tool_use_id=None)
        lines.system(
            "api_retry", attempt=1, max_retries=10, retry_delay_ms=1, error_status=529, error="overloaded"
        )
        self._partial = None
        again = {"type": "text", "text": block.text}
        lines.block(lines.new_id("msg_"), again, **self._answering({}))
        return []

    async def _fail(self, _: Place, block: Fail) -> list[Call]:
        raise Failed(block)

    async def _die(self, place: Place, block: Die) -> list[Call]:
        await self._pieces(place, {"type": "text", "text": ""}, "text", block.text)
        self._stage.end(block.code)

    def _failed(self, fail: Fail) -> None:
        """Build the answer to a question that was not answered."""
        message_id = self._lines.new_id("msg_")
        message = message_of(message_id, [{"type": "text", "text": fail.message}], "<synthetic>")
        answering = self._answering({})
        self._lines.line("assistant", message=message, parent_tool_use_id=None, error=fail.code, **answering)

    def _interrupted(self) -> None:
        """What is open is not finished."""
        if self._partial and self._partial[1] != "tool_use":
            place, kind, text = self._partial
            block = {"type": kind, DELTAS[kind][0]: text}
            self._lines.block(place.message_id, block, aborted=True, **self._answering(place.about))
        for call_id, about in self._calls.items():
            self._lines.tool_result(call_id, INTERRUPTED, False, f"Error: {INTERRUPTED}", **about)
        self._lines.user([{"type": "text", "text": INTERRUPTED}])


DELTAS = {
    "text": ("text", "text_delta"),
    "thinking": ("thinking", "thinking_delta"),
    "tool_use": ("partial_json", "input_json_delta"),
}
BLOCKS: dict[type, Callable[[Player, Place, Any], Coroutine[Any, Any, list[Call]]]] = {
    Think: Player._think,
    Say: Player._say,
    Use: Player._use,
    Send: Player._use,
    Hang: Player._hang,
    Raw: Player._raw,
    Aside: Player._aside,
    Stumble: Player._stumble,
    Fail: Player._fail,
    Die: Player._die,
}


def task_args(send: Send) -> Data:
    """The arguments of the call that sends a helper."""
    return {"description": send.kind, "subagent_type": send.kind, "prompt": send.prompt}


def pieces(text: str) -> Iterator[tuple[int, str]]:
    """A text in pieces, and where each ends."""
    size = max(8, len(text) // PIECES)
    for start in range(0, len(text), size):
        yield min(start + size, len(text)), text[start : start + size]
