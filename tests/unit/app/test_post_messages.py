"""Messages and results that a page posts as events: one turn each, and no answer twice (protocol 4)."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.unit.app.desk import ADA, BOB, EVE, Desk, agent, bodies, desk, make_app, play
from turnlog import Agent, App, tool
from turnlog.agents import Scripted, ToolUse, WaitForInput
from turnlog.app import ClientEvent, Membership
from turnlog.errors import Conflict, InvalidEvent
from turnlog.state.history import Message


def message(text: str, id: str = "evt_1") -> ClientEvent:
    return ClientEvent("ui.message", {"text": text}, id)


def result(value: Any, id: str = "evt_r", tool: str = "confirm", **more: Any) -> ClientEvent:
    """A result without a call id."""
    payload = {"tool": tool, "ok": True, "result": value, "error": None}
    return ClientEvent("tool.result", payload, id, **more)


async def traces(at: Desk, seat: Membership, *types: str) -> list[str | None]:
    return [event.trace_id for event in await at.told(seat, *types)]


def test_a_posted_message_starts_a_turn_like_a_sent_one() -> None:
    async def run() -> None:
        async with desk() as at:
            ada = await at.sessions.create(ADA)
            [seq] = await at.sessions.post(ada, [message("hello")])
            await at.until(ada, "assistant.message", text="You said hello.")
            await at.say(ada, "again")
            await at.until(ada, "assistant.message", text="You said again.")
            posted, sent = await at.told(ada, "ui.message")
            assert (posted.id, posted.seq, posted.actor, posted.origin) == ("evt_1", seq, "ada", "ui")
            assert (sent.actor, sent.origin) == ("ada", "ui")
            assert len(set(await traces(at, ada, "ui.message"))) == 2

    play(run)


def test_the_same_message_twice_is_one_and_another_under_its_id_a_conflict() -> None:
    async def run() -> None:
        async with desk() as at:
            ada = await at.sessions.create(ADA)
            first = await at.sessions.post(ada, [message("hello")])
            await at.until(ada, "agent.end")
            assert await at.sessions.post(ada, [message("hello")]) == first
            with pytest.raises(Conflict, match="evt_1 is the id of another message"):
                await at.sessions.post(ada, [message("goodbye")])
            assert len(await at.told(ada, "ui.message")) == 1

    play(run)


def test_a_posted_message_goes_to_the_channel_of_its_sender_or_to_the_one_it_names() -> None:
    async def run() -> None:
        shop = App("shop", {"buyer": agent("B"), "seller": agent("S")})
        async with desk(shop) as at:
            ada = await at.sessions.create(ADA)
            bob = await at.member(ada, BOB, "buyer")
            eve = await at.member(ada, EVE, "seller")
            await at.sessions.post(bob, [message("mine", "evt_b")])
            named = ClientEvent("ui.message", {"text": "ours", "channel": "seller"}, "evt_e")
            await at.sessions.post(eve, [named])
            told = await at.told(ada, "ui.message")
            assert [event.channel for event in told] == ["buyer", "seller"]
            with pytest.raises(InvalidEvent, match="expected a channel of yours") as refusal:
                await at.sessions.post(bob, [named._replace(id="evt_x", path="$.events[0]")])
            assert refusal.value.path == "$.events[0].payload.channel"

    play(run)


def test_messages_of_one_post_have_their_turns_one_after_the_other() -> None:
    async def run() -> None:
        async with desk() as at:
            ada = await at.sessions.create(ADA)
            seqs = await at.sessions.post(ada, [message("one"), message("two", "evt_2")])
            await at.until(ada, "assistant.message", text="You said two.")
            assert [event.seq for event in await at.told(ada, "ui.message")] == seqs
            said = [body["text"] for body in bodies(await at.told(ada, "assistant.message"))]
            assert said == ["You said one.", "You said two."]
            assert len(set(await traces(at, ada, "ui.message"))) == 2

    play(run)


def test_the_first_message_of_a_post_cancels_what_waits_and_the_second_opens_a_turn() -> None:
    async def run() -> None:
        async with desk() as at:
            ada = await at.sessions.create(ADA)
            turn = await at.say(ada, "confirm it")
            await at.until(ada, "tool.await")
            await at.sessions.post(ada, [message("one"), message("two", "evt_2")])
            await at.until(ada, "assistant.message", text="You said two.")
            [cancelled] = bodies(await at.told(ada, "tool.result"))
            assert cancelled["error"]["code"] == "CANCELLED"
            first, second = (await traces(at, ada, "ui.message"))[1:]
            assert first == turn != second

    play(run)


def test_a_message_behind_the_answer_of_its_post_cancels_nothing() -> None:
    async def run() -> None:
        async with desk() as at:
            ada = await at.sessions.create(ADA)
            turn = await at.say(ada, "confirm it")
            await at.until(ada, "tool.await")
            await at.sessions.post(ada, [result(True), message("next")])
            await at.until(ada, "assistant.message", text="You said next.")
            [answer] = bodies(await at.told(ada, "tool.result"))
            assert answer["result"] is True
            assert (await traces(at, ada, "ui.message"))[1] != turn

    play(run)


def test_an_answer_behind_the_message_that_cancelled_its_call_is_a_conflict() -> None:
    async def run() -> None:
        async with desk() as at:
            ada = await at.sessions.create(ADA)
            await at.say(ada, "confirm it")
            [call] = (await at.until(ada, "tool.await"))["calls"]
            late = result(True)
            late = late._replace(payload={**late.payload, "call_id": call["call_id"]})
            with pytest.raises(Conflict, match="has another answer already"):
                await at.sessions.post(ada, [message("one"), late])
            assert await at.told(ada, "tool.result") == []

    play(run)


def test_a_result_without_a_call_id_answers_the_only_open_call_of_its_tool() -> None:
    async def run() -> None:
        async with desk() as at:
            ada = await at.sessions.create(ADA)
            turn = await at.say(ada, "confirm it")
            [call] = (await at.until(ada, "tool.await"))["calls"]
            [seq] = await at.sessions.post(ada, [result(True, trace_id=turn)])
            await at.until(ada, "agent.end")
            assert await at.sessions.post(ada, [result(True, trace_id=turn)]) == [seq]
            with pytest.raises(Conflict, match="has another answer already"):
                await at.sessions.post(ada, [result(False, trace_id=turn)])
            with pytest.raises(Conflict, match=r"got 0; send the call_id; open calls: none"):
                await at.sessions.post(ada, [result(True, "evt_again")])
            [answer] = bodies(await at.told(ada, "tool.result"))
            assert answer["call_id"] == call["call_id"]

    play(run)


@tool(executor="frontend")
def pick(name: str) -> str:
    """Ask the page."""
    raise NotImplementedError


@tool(executor="frontend")
def confirm(name: str) -> bool:
    """Ask the page."""
    raise NotImplementedError


@tool
def ask(name: str) -> str:
    """Ask a person."""
    raise WaitForInput({"name": "Your name?"})


@tool(executor="frontend", approval=True)
def sign(name: str) -> bool:
    """Ask the page, if a person agrees."""
    raise NotImplementedError


def asking(*calls: ToolUse) -> App:
    """An application whose agent calls these tools in one step."""

    def script(messages: list[Message]) -> Iterator[str | ToolUse]:
        if any(part["type"] == "tool_result" for part in messages[-1].content):
            yield "Thanks."
        else:
            yield from calls

    return make_app(agent=Agent("Clerk", "", Scripted(script), tools=[pick, confirm, ask, sign]))


def test_of_two_open_calls_of_a_tool_a_result_must_name_one() -> None:
    async def run() -> None:
        calls = [ToolUse("pick", {"name": "a"}, "c_1"), ToolUse("pick", {"name": "b"}, "c_2")]
        async with desk(asking(*calls, ToolUse("confirm", {"name": "a"}, "c_3"))) as at:
            ada = await at.sessions.create(ADA)
            await at.say(ada, "go")
            await at.until(ada, "tool.await")
            names = r"c_1 \(pick\), c_2 \(pick\), c_3 \(confirm\)"
            with pytest.raises(Conflict, match=f"one open call of 'pick', got 2; .* open calls: {names}"):
                await at.sessions.post(ada, [result("x", tool="pick")])
            with pytest.raises(Conflict, match=f"one open call of 'dig', got 0; .* open calls: {names}"):
                await at.sessions.post(ada, [result("x", tool="dig")])
            named = result("x", tool="pick")
            named = named._replace(payload={**named.payload, "call_id": "c_1"})
            await at.sessions.post(ada, [named, result("y", "evt_2", tool="pick"), result(True, "evt_3")])
            await at.until(ada, "assistant.message", text="Thanks.")
            answers = {body["call_id"]: body["result"] for body in bodies(await at.told(ada, "tool.result"))}
            assert answers == {"c_1": "x", "c_2": "y", "c_3": True}

    play(run)


def test_calls_that_take_no_result_are_not_open_for_one() -> None:
    async def run() -> None:
        async with desk(asking(ToolUse("ask", {"name": "a"}, "c_1"), ToolUse("sign", {"name": "b"}))) as at:
            ada = await at.sessions.create(ADA)
            await at.say(ada, "go")
            await at.until(ada, "approval.request")
            await at.until(ada, "tool.await")
            for name in ("ask", "sign"):
                with pytest.raises(Conflict, match=r"got 0; .* open calls: none"):
                    await at.sessions.post(ada, [result("x", tool=name)])

    play(run)


def test_a_result_for_a_turn_that_is_over_answers_no_call_of_the_next() -> None:
    async def run() -> None:
        async with desk() as at:
            ada = await at.sessions.create(ADA)
            over = await at.say(ada, "hello")
            await at.until(ada, "agent.end")
            await at.say(ada, "confirm it")
            await at.until(ada, "tool.await")
            with pytest.raises(Conflict, match=r"got 0; .* open calls: none"):
                await at.sessions.post(ada, [result(True, trace_id=over)])
            assert await at.told(ada, "tool.result") == []

    play(run)


def test_calls_of_another_channel_and_of_another_process_are_not_named() -> None:
    async def run() -> None:
        shop = App("shop", {"buyer": agent("B"), "seller": agent("S")})
        async with desk(shop) as at:
            ada = await at.sessions.create(ADA)
            bob = await at.member(ada, BOB, "buyer")
            eve = await at.member(ada, EVE, "seller")
            await at.say(eve, "confirm it")
            await at.until(ada, "tool.await")
            await at.say(bob, "weigh apples")
            await at.until(ada, "tool.call", channel="buyer")
            for name in ("confirm", "weigh"):
                with pytest.raises(Conflict, match=r"got 0; .* open calls: none"):
                    await at.sessions.post(bob, [result(True, tool=name)])
            await at.sessions.post(eve, [result(True, "evt_e")])
            with pytest.raises(Conflict, match=r"got 0; .* open calls: none"):
                await at.sessions.post(bob, [result(True, "evt_e")])

    play(run)


def test_a_result_without_a_call_id_and_without_a_tool_is_refused() -> None:
    async def run() -> None:
        async with desk() as at:
            ada = await at.sessions.create(ADA)
            with pytest.raises(InvalidEvent, match="missing required field call_id"):
                await at.sessions.post(ada, [ClientEvent("tool.result", {"ok": True}, "evt_1")])

    play(run)
