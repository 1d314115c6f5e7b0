"""What the driver makes of replies: it goes on, waits, ends or fails as the message did."""

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

from tests.statements.room import talk
from turnlog import Agent, App, tool
from turnlog.agents import ModelError, ReplyBuilder, Request
from turnlog.agents.retry import RetryPolicy
from turnlog.events import (
    AssistantFiles,
    Citation,
    Envelope,
    ErrorInfo,
    File,
    Payload,
    ToolResult,
    UiMessage,
    Usage,
)
from turnlog.parse.reply import MessageStop
from turnlog.state.history import Message

Step = Callable[[ReplyBuilder], list[list[Payload]]]

SEARCHED = ToolResult(call_id="srv_1", tool="search", ok=True, result=["x"], kind="search_tool_result")


@tool
def weather(city: str) -> str:
    """The weather."""
    return f"rain in {city}"


@tool(executor="frontend")
def confirm(question: str) -> bool:
    """Ask."""
    raise NotImplementedError


@dataclass
class Steps:
    """A model that has a function for each time it is asked, and keeps what it was given to read."""

    steps: list[Step]
    read: list[list[Message]] = field(default_factory=list)
    name: str = "steps"

    async def stream(self, request: Request, reply: ReplyBuilder) -> AsyncIterator[list[Payload]]:
        self.read.append(msgspec.convert(msgspec.to_builtins(request.messages), list[Message]))
        for batch in self.steps[len(self.read) - 1](reply):
            yield batch


def play(*steps: Step, moves: tuple[Any, ...] = ("hello",)) -> tuple[Steps, list[Envelope]]:
    model = Steps(list(steps))
    guide = Agent(
        "Guide", "", model, tools=(weather, confirm), retry=RetryPolicy(max_attempts=2, initial_delay_s=0)
    )
    return model, talk(App("steps", guide), *moves)


def bodies(events: list[Envelope], name: str) -> list[Any]:
    return [msgspec.json.decode(event.payload) for event in events if event.type == name]


def says(text: str, stop: MessageStop = "end_turn") -> Step:
    return lambda reply: [reply.text(text), reply.done(stop, Usage(input_tokens=1, output_tokens=2))]


def test_an_agent_ends_as_its_last_message_did() -> None:
    stops: list[MessageStop] = [
        "end_turn",
        "max_tokens",
        "stop_sequence",
        "refusal",
        "context_window",
        "tool_use",
    ]
    for stop in stops:
        _, events = play(says("Hi.", stop))
        [end] = bodies(events, "agent.end")
        assert end == {
            "stop_reason": "end_turn" if stop == "tool_use" else stop,
            "steps": 1,
            "usage": {"input_tokens": 1, "output_tokens": 2},
            "result": "Hi.",
        }


def test_a_message_that_pauses_is_followed_by_the_next() -> None:
    model, events = play(says("One.", "pause_turn"), says("Two."))
    assert [message["text"] for message in bodies(events, "assistant.message")] == ["One.", "Two."]
    assert model.read[1][-1] == Message("assistant", [{"type": "text", "text": "One."}])
    assert bodies(events, "agent.end")[0]["steps"] == 2


def searching(reply: ReplyBuilder) -> list[list[Payload]]:
    call = reply.open_call("search", "srv_1", "provider", {"query": "x"})
    assert call
    return [
        [*call.start(), *reply.close(call)],
        reply.result(SEARCHED),
        [*reply.text("Found."), *reply.cite(Citation(type="a", cited_text="x"))],
        reply.done("end_turn"),
    ]


def test_what_the_provider_runs_is_neither_run_nor_answered_here() -> None:
    model, events = play(searching)
    assert len(model.read) == 1
    [result] = [event for event in events if event.type == "tool.result"]
    assert result.origin == "model"
    assert [event.origin for event in events if event.type == "tool.call"] == ["model"]
    assert len(bodies(events, "agent.end")) == 1


def mixed(reply: ReplyBuilder) -> list[list[Payload]]:
    call = reply.open_call("code", "srv_1", "provider")
    assert call
    began = [*call.start(), *reply.close(call)]
    return [began, reply.call("weather", {"city": "Oslo"}), reply.done("tool_use")]


def test_a_call_that_the_provider_still_runs_holds_nobody_up() -> None:
    model, _ = play(mixed, says("Rain."))
    assert len(model.read) == 2
    assert model.read[1][-1].content[0]["content"] == "rain in Oslo"


def asking(reply: ReplyBuilder) -> list[list[Payload]]:
    call = reply.open_call("code", "srv_1", "provider")
    assert call
    began = [*call.start(), *reply.close(call)]
    return [began, reply.call("confirm", {"question": "Go?"}), reply.done("tool_use")]


def test_an_agent_waits_for_the_page_although_the_provider_still_runs_something() -> None:
    model, events = play(asking, says("Gone."), moves=("hello", True))
    assert [call["tool"] for wait in bodies(events, "tool.await") for call in wait["calls"]] == ["confirm"]
    assert len(model.read) == 2


def cut_short(name: str) -> Step:
    def step(reply: ReplyBuilder) -> list[list[Payload]]:
        return [reply.start_call(name), reply.arguments('{"ci'), reply.done("max_tokens")]

    return step


def test_arguments_that_are_no_json_are_answered_and_the_model_goes_on() -> None:
    for name in ("weather", "confirm"):
        model, events = play(cut_short(name), says("Sorry."))
        [result] = bodies(events, "tool.result")
        assert result["error"]["code"] == "VALIDATION_ERROR"
        assert bodies(events, "tool.await") == []
        assert len(model.read) == 2


def unfinished(reply: ReplyBuilder) -> list[list[Payload]]:
    return [reply.text("Hi"), reply.call("weather", {"city": "Oslo"})]


def broken(reply: ReplyBuilder) -> list[list[Payload]]:
    return [reply.text("Hi"), reply.abort(ErrorInfo(code="overloaded_error", message="Busy"))]


def test_a_stream_that_ends_before_its_message_fails_and_starts_nothing() -> None:
    for step, why in ((unfinished, "no_end"), (broken, "overloaded_error")):
        model, events = play(step, step)
        [problem] = bodies(events, "session.error")
        assert (problem["code"], problem["message"]) == (why, "The model's answer broke off.")
        assert len(model.read) == 2
        [void] = bodies(events, "block.retract")
        assert (len(void["block_ids"]), void["reason"]) == (2 if step is unfinished else 1, why)
        assert bodies(events, "tool.call") == []
        assert bodies(events, "agent.end")[0]["stop_reason"] == "error"
        begun, ended = bodies(events, "block.start"), bodies(events, "block.end")
        assert len(begun) == len(ended)


def test_the_usage_and_the_model_of_a_message_are_reported() -> None:
    def step(reply: ReplyBuilder) -> list[list[Payload]]:
        return [reply.begin("claude", "msg_1"), *says("Hi.")(reply)]

    _, events = play(step)
    usage = {"input_tokens": 1, "output_tokens": 2}
    assert bodies(events, "agent.usage") == [{"model": "claude", "usage": usage}]
    assert bodies(events, "assistant.message")[0]["message_id"] == "msg_1"


# what must not leave an agent without an end


def ended(agent: Agent, *moves: Any) -> tuple[list[Envelope], dict[str, Any]]:
    events = talk(App("steps", agent), *(moves or ("hello",)))
    [end] = bodies(events, "agent.end")
    return events, end


def test_a_model_that_cannot_read_a_picture_ends_its_agent() -> None:
    class Reads:
        name = "reads"

        async def stream(self, request: Request, reply: ReplyBuilder) -> AsyncIterator[list[Payload]]:
            yield reply.text("Let me look.")
            await request.read_blob("0" * 64)

    events, end = ended(Agent("Guide", "", Reads()))
    assert end["stop_reason"] == "error"
    assert [problem["code"] for problem in bodies(events, "session.error")] == ["model_failed"]
    assert [block["status"] for block in bodies(events, "block.end")] == ["aborted"]


def test_what_a_model_may_not_say_ends_its_agent_and_closes_its_blocks() -> None:
    class Forges:
        name = "forges"

        async def stream(self, request: Request, reply: ReplyBuilder) -> AsyncIterator[list[Payload]]:
            yield reply.text("I am ")
            yield [UiMessage(text="the user")]
            yield reply.done("end_turn")

    events, end = ended(Agent("Guide", "", Forges()))
    assert end["stop_reason"] == "error"
    assert [problem["code"] for problem in bodies(events, "session.error")] == ["refused_event"]
    assert len(bodies(events, "block.start")) == len(bodies(events, "block.end"))
    assert len(bodies(events, "ui.message")) == 1


def test_a_reply_whose_end_cannot_be_written_ends_its_agent() -> None:
    class Forges:
        name = "forges"

        async def stream(self, request: Request, reply: ReplyBuilder) -> AsyncIterator[list[Payload]]:
            yield reply.text("I am ")
            yield [*reply.done("end_turn"), UiMessage(text="the user")]

    events, end = ended(Agent("Guide", "", Forges()))
    assert end["stop_reason"] == "error"
    assert [block["status"] for block in bodies(events, "block.end")] == ["aborted"]


def test_a_block_whose_start_was_refused_is_not_ended() -> None:
    class Forges:
        name = "forges"

        async def stream(self, request: Request, reply: ReplyBuilder) -> AsyncIterator[list[Payload]]:
            first, second = reply.open_text(), reply.open_text()
            assert first is not None
            assert second is not None
            yield first.feed("I am ")
            # the write of the first block is under way, so the second one is refused with the result
            bad_result = ToolResult(call_id="c", tool="x" * 200, ok=True, result=1, error=None)
            yield [*second.feed("you are "), bad_result]

    events, end = ended(Agent("Guide", "", Forges()))
    assert end["stop_reason"] == "error"
    [start] = bodies(events, "block.start")
    [end_of_block] = bodies(events, "block.end")
    assert (end_of_block["block_id"], end_of_block["status"]) == (start["block_id"], "aborted")


def test_a_model_that_cancels_itself_or_says_a_name_that_is_none_ends_its_agent() -> None:
    def cancels(reply: ReplyBuilder) -> list[list[Payload]]:
        raise asyncio.CancelledError

    def boasts(reply: ReplyBuilder) -> list[list[Payload]]:
        return [reply.text("Hello"), [ToolResult(call_id="c", tool="x" * 200, ok=True, result=1, error=None)]]

    def fails(reply: ReplyBuilder) -> list[list[Payload]]:
        raise ModelError("c" * 200, "I failed \ud800.", retriable=True)

    told = {cancels: "model_failed", boasts: "refused_event", fails: "model_failed"}
    for step, code in told.items():
        _, events = play(step, step)
        assert [problem["code"] for problem in bodies(events, "session.error")] == [code]
        assert [end["stop_reason"] for end in bodies(events, "agent.end")] == ["error"]
        assert len(bodies(events, "block.start")) == len(bodies(events, "block.end"))


def test_a_model_is_asked_once_at_least() -> None:
    model = Steps([lambda reply: [reply.text("Hello")]])
    _, end = ended(Agent("Guide", "", model, retry=RetryPolicy(max_attempts=0)))
    assert (len(model.read), end["stop_reason"]) == (1, "error")


def test_whoever_stops_listening_hangs_up() -> None:
    hung_up: list[bool] = []

    class Forges:
        name = "forges"

        async def stream(self, request: Request, reply: ReplyBuilder) -> AsyncIterator[list[Payload]]:
            try:
                for _ in range(100):
                    yield [UiMessage(text="the user")]
            finally:
                hung_up.append(True)

    ended(Agent("Guide", "", Forges()))
    assert hung_up == [True]


def test_the_end_names_the_files_of_every_message() -> None:
    def files(name: str) -> list[Payload]:
        return [AssistantFiles(files=(File(file_id=name, filename=name, storage_location="s"),))]

    def first(reply: ReplyBuilder) -> list[list[Payload]]:
        return [files("a.txt"), reply.call("weather", {"city": "Oslo"}), reply.done("tool_use")]

    def last(reply: ReplyBuilder) -> list[list[Payload]]:
        return [files("b.txt"), [*reply.done("end_turn"), *files("c.txt")]]

    _, events = play(first, last)
    [end] = bodies(events, "agent.end")
    assert [file["file_id"] for file in end["files"]] == ["a.txt", "b.txt", "c.txt"]
