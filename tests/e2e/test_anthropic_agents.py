"""Agents on the real `anthropic` client and a scripted provider on loopback: calls, hand-offs, faults."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import anthropic

from tests.e2e.provider import (
    Answer,
    Connection,
    Provider,
    cut,
    opened,
    problem,
    refusing,
    serving,
    sse,
    whole,
)
from tests.e2e.talk import KEY, START, WAIT_S, block, message, text
from tests.support.agent_logs import Ledger
from turnlog import Agent, tool
from turnlog.agents import AnthropicModel, RetryPolicy
from turnlog.events import CATALOG, decode_envelope
from turnlog.log import Log, MemoryStore, envelope_json
from turnlog.wire.dialects.blocks import Blocks

QUICK = RetryPolicy(max_attempts=5, initial_delay_s=0)


@tool
def search(subject: str) -> str:
    """Search the shelves."""
    return f"three books about {subject}"


@tool(executor="frontend")
def confirm(question: str) -> bool:
    """Ask the reader."""
    raise NotImplementedError


def uses(*calls: tuple[str, dict[str, Any]]) -> list[Any]:
    """A message that asks for tools, the arguments in pieces."""
    blocks = []
    for index, (name, args) in enumerate(calls):
        raw = json.dumps(args)
        pieces = [{"type": "input_json_delta", "partial_json": piece} for piece in ("", raw[:5], raw[5:])]
        content = {"type": "tool_use", "id": f"toolu_{name}_{index}", "name": name, "input": {}}
        blocks.append(block(index, content, *pieces))
    return message(*blocks, reason="tool_use")


class Stage:
    """A provider that decides by what it is asked, and a log in which agents work."""

    def __init__(self, provider: Provider, model: AnthropicModel) -> None:
        self.provider, self.model = provider, model
        self.log = Log(MemoryStore())
        self.session = ""

    async def run(self, agent: Agent, prompt: str | None = None, **answers: Any) -> list[Any]:
        self.session = self.session or await self.log.create("t")
        run = agent.run(prompt, answers=answers or None, log=self.log, session_id=self.session)
        return [entry async for entry in run]

    async def check(self) -> None:
        """The laws of agents hold for the whole log."""
        Ledger([decode_envelope(envelope_json(row)) for row in await self.log.read(self.session)])


@asynccontextmanager
async def stage(decide: Callable[[Any], Answer], requests: int) -> AsyncIterator[Stage]:
    there: list[Provider] = []

    def answer(connection: Connection) -> Any:
        return decide(there[0].asked[-1].body)(connection)

    async with serving(*[answer] * requests) as provider, asyncio.timeout(WAIT_S):
        there.append(provider)
        async with anthropic.AsyncAnthropic(base_url=provider.url, api_key=KEY, timeout=WAIT_S) as client:
            made = Stage(provider, AnthropicModel("claude-test", client=client))
            yield made
            await made.check()
            await made.log.close()


def play(
    decide: Callable[[Any], Answer], requests: int, act: Callable[[Stage], Coroutine[Any, Any, None]]
) -> None:
    async def scene() -> None:
        async with stage(decide, requests) as made:
            await act(made)

    asyncio.run(scene())


def results(body: Any) -> list[Any]:
    """The results in the last message of a request."""
    content = body["messages"][-1]["content"]
    return [part for part in content if isinstance(part, dict) and part["type"] == "tool_result"]


def team(body: Any) -> Answer:
    """Planner, researchers and writer, by their instructions and by what came back."""
    role, back = body["system"], results(body)
    if "plan" in json.dumps(role):
        if not back:
            return whole(uses(("researcher", {"prompt": "tides"}), ("researcher", {"prompt": "moons"})))
        return whole(uses(("handoff_to_writer", {"prompt": "Write it."})))
    if "research" in json.dumps(role):
        if not back:
            return whole(uses(("search", {"subject": body["messages"][0]["content"][0]["text"]})))
        return whole(message(text(f"Found: {back[0]['content']}.")))
    return whole(message(text("The ", "report.")))


def test_calls_at_once_below_each_other_and_a_hand_off() -> None:
    async def act(made: Stage) -> None:
        researcher = Agent("Researcher", "research", made.model, tools=[search])
        writer = Agent("Writer", "write", made.model)
        planner = Agent("Planner", "plan", made.model, agents=[researcher], handoffs=[writer])
        events = await made.run(planner, "the sea")
        starts = [(e.agent_name, e.depth) for e in events if e.type == "agent.start"]
        assert starts == [("Planner", 0), ("Researcher", 1), ("Researcher", 1), ("Writer", 0)]
        ends = {(e.agent_name, e.payload.stop_reason) for e in events if e.type == "agent.end"}
        assert ends == {("Planner", "handoff"), ("Researcher", "end_turn"), ("Writer", "end_turn")}
        assert events[-1].payload.result == "The report."
        assert events[-1].payload.usage.output_tokens == 5
        found = {e.payload.result for e in events if e.type == "tool.result" and e.agent_name == "Planner"}
        assert "Found: three books about tides." in found
        names = [{spec["name"] for spec in asked.body.get("tools", [])} for asked in made.provider.asked]
        assert names[0] == {"researcher", "handoff_to_writer"}

    play(team, 7, act)


def test_a_question_to_the_page_and_its_answer() -> None:
    def decide(body: Any) -> Answer:
        if not results(body):
            return whole(uses(("confirm", {"question": "Go?"}), ("search", {"subject": "tides"})))
        assert [part["tool_use_id"] for part in results(body)] == ["toolu_confirm_0", "toolu_search_1"]
        return whole(message(text(f"So: {results(body)[0]['content']}.")))

    async def act(made: Stage) -> None:
        agent = Agent("Clerk", "ask", made.model, tools=[search, confirm])
        events = await made.run(agent, "hello")
        assert events[-1].type == "tool.await"
        events = await made.run(agent, toolu_confirm_0=True)
        assert events[-1].payload.result == "So: true."

    play(decide, 2, act)


def test_every_way_to_fail_is_retracted_and_tried_again() -> None:
    begun = [START, *text("Gra", stop=False)]
    overloaded = refusing(529, json.dumps(problem("overloaded_error")).encode())
    ways = iter([overloaded, whole([*begun, problem("overloaded_error")]), cut(begun), whole(begun)])

    def decide(_: Any) -> Answer:
        return next(ways, whole(message(text("Grass ", "is green."))))

    async def act(made: Stage) -> None:
        events = await made.run(Agent("Clerk", "", made.model, retry=QUICK), "Grass?")
        voids = [event.payload.reason for event in events if event.type == "block.retract"]
        assert voids == ["overloaded_error", "incomplete", "incomplete"]
        assert [e.payload.text for e in events if e.type == "assistant.message"] == ["Grass is green."]
        assert len(made.provider.asked) == 5
        assert all("Gra" not in json.dumps(asked.body["messages"][1:]) for asked in made.provider.asked)

    play(decide, 5, act)


def test_a_model_that_stays_away_ends_its_agent_and_the_next_turn_works() -> None:
    answers = iter([*[refusing(529)] * 5, whole(message(text("Back.")))])

    async def act(made: Stage) -> None:
        agent = Agent("Clerk", "", made.model, retry=QUICK)
        events = await made.run(agent, "Anyone?")
        assert [e.type for e in events][-2:] == ["session.error", "agent.end"]
        assert (await made.run(agent, "And now?"))[-1].payload.result == "Back."

    play(lambda _: next(answers), 6, act)


def test_a_slow_stream_is_told_as_it_comes() -> None:
    seen = asyncio.Event()

    async def slow(connection: Connection) -> None:
        await connection.send(opened())
        await connection.chunk(sse([START, *text("First", stop=False)]))
        await seen.wait()  # nothing more comes before the first word has been seen
        rest = [*text(" second")[1:], *message()[1:]]
        await connection.chunk(sse(rest))
        await connection.send(b"0\r\n\r\n")

    async def act(made: Stage) -> None:
        made.session = await made.log.create("t")
        agent = Agent("Clerk", "", made.model, retry=QUICK)
        events: list[Any] = []
        async for entry in agent.run("Go", log=made.log, session_id=made.session):
            events.append(entry)
            if entry.type == "block.delta":
                seen.set()
        assert events[-1].payload.result == "First second"

    play(lambda _: slow, 1, act)


async def told_in_blocks(made: Stage) -> list[dict[str, Any]]:
    """The whole log in the dialect `blocks`."""
    dialect, found = Blocks(), list[dict[str, Any]]()
    for row in await made.log.read(made.session):
        envelope = decode_envelope(envelope_json(row))
        found += [
            json.loads(message) for message in dialect.convert(envelope, CATALOG.decode_payload(envelope))
        ]
    return found


def test_an_error_event_of_the_api_is_an_error_in_blocks() -> None:
    async def act(made: Stage) -> None:
        await made.run(Agent("Clerk", "", made.model, retry=QUICK), "Grass?")
        messages = await told_in_blocks(made)
        [error] = [message for message in messages if message["type"] == "error"]
        assert (set(error), error["final"]) == ({"type", "agent", "final", "delta"}, True)
        assert "invalid_request_error" in error["delta"]
        assert [m["final"] for m in messages if m["type"] == "text"][
            -1
        ] is True  # what was open is ended first

    play(lambda _: whole([START, *text("Gra", stop=False), problem("invalid_request_error")]), 1, act)


def test_a_result_of_the_providers_tool_comes_whole_from_the_api() -> None:
    found = [
        {"type": "web_search_result", "url": "https://a.example", "title": "Grass", "encrypted_content": "x"}
    ]
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
    given = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": found}
    args = {"type": "input_json_delta", "partial_json": '{"query": "grass"}'}
    answer = message(block(0, use, args), block(1, given), text("Green.", index=2))

    async def act(made: Stage) -> None:
        await made.run(Agent("Clerk", "", made.model), "Grass?")
        parts = [m for m in await told_in_blocks(made) if m["type"] == "server_tool_result"]
        assert json.loads("".join(part["delta"] for part in parts)) == found
        assert [part["final"] for part in parts] == [False] * (len(parts) - 1) + [True]

    play(lambda _: whole(answer), 1, act)
