"""Running agents without a server: `run`, `ask`, `all_ended` (protocol section 8)."""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.agent_vectors import VECTORS, Trouble, confirm, event_of, inquire, make_team, remove
from tests.support.agent_vectors import stop as stop_command
from tests.support.limits import HANG_S
from tests.unit.log.delegates import until
from turnlog import open_log
from turnlog.agents import Agent, ModelError, Scripted, ToolContext, ToolUse, all_ended, tool
from turnlog.agents.models import Fail
from turnlog.agents.retry import RetryPolicy
from turnlog.agents.run import RunPool
from turnlog.errors import CallerError, Conflict, NotFound, StoreError
from turnlog.events import AgentEnd, AssistantMessage, Entry, ToolAwait, ToolCall, ToolResult, decode_envelope
from turnlog.log import Log, envelope_json
from turnlog.state.history import Message

CASES = {case["name"]: case for case in VECTORS}


def run_now(work: Callable[[Log], Coroutine[Any, Any, None]]) -> None:
    """Run a test on a log in memory."""

    async def bounded() -> None:
        log = await open_log("memory:")
        async with asyncio.timeout(HANG_S):
            await work(log)
        await log.close()

    asyncio.run(bounded())


def vector(name: str) -> Agent:
    return make_team(CASES[name]["team"], Trouble())


def saying(*parts: Any, name: str = "Guide", **fields: Any) -> Agent:
    """An agent that says these, and `Done.` after results."""

    def script(messages: list[Message]) -> Iterator[Any]:
        results = messages[-1].content[0]["type"] == "tool_result"
        return iter(["Done."] if results else parts)

    return Agent(name, "", Scripted(script), **fields)


async def of(log: Log, session: str, kind: str) -> list[Any]:
    """The payload types in a log."""
    rows = await log.read(session)
    return [event for event in (decode_envelope(envelope_json(row)) for row in rows) if event.type == kind]


@asynccontextmanager
async def session(log: Log) -> AsyncIterator[str]:
    yield await log.create("test")


def only_pool(agent: Agent) -> RunPool:
    """The one pool in which an agent object runs."""
    [pool] = agent.run_pools.values()
    assert isinstance(pool, RunPool)
    return pool


# three lines


def test_three_lines_are_enough() -> None:
    guide = Agent("Guide", "Be kind.", Scripted(lambda messages: ["Hello, ", "Ada."]))
    assert asyncio.run(guide.ask("Hi")) == "Hello, Ada."


def test_the_events_of_a_turn_come_one_by_one_and_end_with_it() -> None:
    async def collect() -> list[Entry]:
        return [event async for event in vector("call").run("Go.")]

    events = asyncio.run(collect())
    assert [event.seq for event in events] == list(range(len(events)))
    assert (events[0].type, events[-1].type, events[-1].agent_name) == ("ui.message", "agent.end", "A")
    assert {(event.agent_name, event.depth) for event in events[1:]} == {("A", 0), ("B", 1)}


def test_depth_leaves_out_who_is_deeper() -> None:
    async def names(depth: int) -> set[str | None]:
        return {event.agent_name async for event in vector("nested call").run("Go.", depth=depth)}

    assert asyncio.run(names(0)) == {None, "A"}
    assert asyncio.run(names(1)) == {None, "A", "B"}
    assert asyncio.run(names(2)) == {None, "A", "B", "C"}


@pytest.mark.parametrize("options", [{}, {"prompt": "Go.", "answers": {"x": 1}}, {"answers": {}}])
def test_a_run_begins_with_a_prompt_or_with_answers(options: dict[str, Any]) -> None:
    async def run() -> None:
        async for _ in saying("Hi.").run(**options):
            raise AssertionError("nothing should happen")

    with pytest.raises(CallerError, match="a prompt or answers"):
        asyncio.run(run())


# live


def test_what_a_called_agent_says_arrives_while_it_works() -> None:
    seen = asyncio.Event()

    @tool
    async def hold() -> str:
        """Wait until the caller of all this has seen what was said before."""
        await seen.wait()
        return "seen"

    async def watch(log: Log) -> None:
        scout = saying("I am about to hold.", ToolUse("hold"), name="Scout", tools=[hold])
        guide = saying(ToolUse("scout", {"prompt": "Go"}), agents=[scout])
        held = ""
        async for event in guide.run("Go", log=log):
            if isinstance(event.payload, AssistantMessage) and event.depth == 1 and not seen.is_set():
                held = event.payload.text
                seen.set()
        assert held == "I am about to hold."

    run_now(watch)


def test_leaving_the_loop_detaches_and_the_turn_goes_on_to_its_end() -> None:
    go_on = asyncio.Event()

    @tool
    async def hold() -> str:
        """Wait."""
        await go_on.wait()
        return "went on"

    async def leave(log: Log) -> None:
        guide = saying(ToolUse("hold"), tools=[hold])
        async with session(log) as name:
            async for event in guide.run("Go", log=log, session_id=name):
                if isinstance(event.payload, ToolCall):
                    break
            assert await of(log, name, "agent.end") == []
            go_on.set()
            async for page in log.follow(name):
                if any(row.type == "agent.end" for row in page):
                    break
            [end] = await of(log, name, "agent.end")
            assert b'"end_turn"' in bytes(end.payload)
            await until(lambda: not guide.run_pools)
            assert await log.leases.owner_of(name) is None, "no run follows and no turn runs: it is released"

    run_now(leave)


def test_a_turn_that_was_left_goes_on_although_the_next_run_comes_at_once() -> None:
    async def again(log: Log) -> None:
        guide = saying("Hello.")
        async with session(log) as name:
            for _ in range(20):
                async for _event in guide.run("Go", log=log, session_id=name):
                    break
                assert await guide.ask("And you?", log=log, session_id=name) == "Hello."
            ends = await of(log, name, "agent.end")
            assert len(ends) == 40
            assert all(b'"end_turn"' in bytes(end.payload) for end in ends)

    run_now(again)


@asynccontextmanager
async def run_that_holds(
    agent: Agent, go_on: asyncio.Event, log: Log, session: str, roles: Collection[str]
) -> AsyncIterator[None]:
    """Have a run whose tool waits for `go_on`."""
    events = agent.run("Hold", log=log, session_id=session, roles=roles)
    async for event in events:
        if isinstance(event.payload, ToolCall):
            break
    try:
        yield
    finally:
        go_on.set()
        await events.aclose()
        await until(lambda: not agent.run_pools)


@pytest.mark.parametrize(("held", "roles", "ok"), [(["admin"], [], False), ([], ["admin"], True)])
def test_run_uses_its_own_roles_beside_a_run_with_others(held: list[str], roles: list[str], ok: bool) -> None:
    go_on = asyncio.Event()

    @tool
    async def hold() -> str:
        """Wait."""
        await go_on.wait()
        return "went on"

    @tool(roles=("admin",))
    def erase() -> str:
        """Erase everything."""
        return "gone"

    def script(messages: list[Message]) -> Iterator[Any]:
        words = messages[-1].content[-1].get("text")
        return iter(["Done."] if words is None else [ToolUse(words.lower())])

    async def beside(log: Log) -> None:
        clerk = Agent("Clerk", "", Scripted(script), tools=[hold, erase])
        async with (
            session(log) as first,
            session(log) as second,
            run_that_holds(clerk, go_on, log, first, held),
        ):
            await clerk.ask("Erase", log=log, session_id=second, roles=roles)
            [result] = await of(log, second, "tool.result")
            assert (b'"ok":true' in bytes(result.payload)) is ok
            with pytest.raises(Conflict):  # the session has an owner with other roles
                await clerk.ask("Erase", log=log, session_id=first, roles=roles)

    run_now(beside)


def test_a_run_that_comes_while_the_session_is_let_go_of_is_not_closed_with_it() -> None:
    async def meanwhile(log: Log) -> None:
        guide = saying("Hello.")
        async with session(log) as name:
            first = asyncio.create_task(guide.ask("One", log=log, session_id=name))
            await until(lambda: any(pool.runners._releases for pool in guide.run_pools.values()))
            assert await guide.ask("Two", log=log, session_id=name) == "Hello."
            assert await first == "Hello."

    run_now(meanwhile)


def test_two_runs_of_a_session_take_turns() -> None:
    async def both(log: Log) -> None:
        guide = saying("Hello.")
        async with session(log) as name:
            answers = await asyncio.gather(
                *(guide.ask(f"{number}", log=log, session_id=name) for number in range(5))
            )
            assert answers == ["Hello."] * 5

    run_now(both)


def test_a_run_ends_with_its_turn_and_does_not_wait_for_others() -> None:
    go_on = asyncio.Event()

    @tool
    async def hold() -> str:
        """Wait."""
        await go_on.wait()
        return "went on"

    def script(messages: list[Message]) -> Iterator[Any]:
        asked = messages[-1].content[-1].get("text", "")
        return iter([ToolUse("hold")] if asked == "hold" else ["Hello."])

    async def both(log: Log) -> None:
        guide = Agent("Guide", "", Scripted(script), tools=[hold])
        async with session(log) as name:
            first = guide.run("quick", log=log, session_id=name)
            await anext(first)
            second = guide.run("hold", log=log, session_id=name)
            await anext(second)
            assert [event.type async for event in first][-1] == "agent.end"
            go_on.set()
            assert [event.type async for event in second][-1] == "agent.end"

    run_now(both)


# asking


def test_a_turn_that_fails_or_waits_has_no_answer() -> None:
    patient = RetryPolicy(max_attempts=1)
    broken = Agent("Guide", "", Scripted(lambda messages: [Fail("overloaded_error")]), retry=patient)
    with pytest.raises(ModelError, match="error: The script says that the model fails"):
        asyncio.run(broken.ask("Go"))
    with pytest.raises(CallerError, match="waits for an answer"):
        asyncio.run(vector("frontend tool").ask("Go."))
    with pytest.raises(CallerError, match="waits for an answer"):
        asyncio.run(saying(ToolUse("handoff_to_a"), handoffs=[vector("frontend tool")]).ask("Go."))


def test_an_answer_is_that_of_whoever_took_over() -> None:
    assert asyncio.run(vector("pipeline").ask("Go.")) == "The end."


@pytest.mark.parametrize(
    ("name", "ends"),
    [
        ("parallel agents", {"A": "end_turn", "B": "end_turn", "C": "end_turn"}),
        ("nested call", {"A": "end_turn", "B": "end_turn", "C": "end_turn"}),
        ("pipeline", {"A": "handoff", "B": "handoff", "C": "handoff", "D": "end_turn"}),
        ("hand-off inside a call", {"A": "end_turn", "B": "handoff", "C": "end_turn"}),
    ],
)
def test_all_ended_waits_for_everybody(name: str, ends: dict[str, str]) -> None:
    async def wait() -> dict[str, str]:
        names: dict[str, str] = {}

        async def noted() -> AsyncIterator[Entry]:
            async for event in vector(name).run("Go."):
                names[event.agent_id or ""] = event.agent_name or ""
                yield event

        found = await all_ended(noted())  # type: ignore[arg-type]
        return {names[agent_id]: end.stop_reason for agent_id, end in found.items()}

    assert asyncio.run(wait()) == ends


def test_all_ended_says_when_somebody_did_not() -> None:
    with pytest.raises(CallerError, match="before 1 of 1 agents did"):
        asyncio.run(all_ended(vector("frontend tool").run("Go.")))


# answers


def waiting_calls(events: list[Entry]) -> list[str]:
    waits = [event.payload for event in events if isinstance(event.payload, ToolAwait)]
    return [call.call_id for wait in waits for call in wait.calls]


@pytest.mark.parametrize(
    ("tool_used", "args", "value", "told"),
    [
        (confirm, {"question": "Go?"}, True, True),
        (inquire, {"question": "Which?"}, {"answer": "green"}, "the answer is green"),
        (remove, {"what": "weed"}, True, "weed is gone"),
    ],
    ids=["page", "input", "approval"],
)
def test_answers_go_on_with_the_turn(tool_used: Any, args: dict[str, Any], value: Any, told: Any) -> None:
    async def answer(log: Log) -> None:
        scout = saying(ToolUse(tool_used.name, args), name="Scout", tools=[tool_used])
        guide = saying(ToolUse("scout", {"prompt": "Go"}), agents=[scout])
        async with session(log) as name:
            first = [event async for event in guide.run("Go", log=log, session_id=name)]
            [call] = [
                event.payload.call_id
                for event in first
                if isinstance(event.payload, ToolCall) and event.payload.tool == tool_used.name
            ]
            second = [event async for event in guide.run(answers={call: value}, log=log, session_id=name)]
            assert second[0].seq == first[-1].seq + 1
            assert {event.trace_id for event in second} == {first[0].trace_id}
            [result] = [event.payload for event in second if isinstance(event.payload, ToolResult)][:1]
            assert result.result == told
            assert isinstance(second[-1].payload, AgentEnd)
            with pytest.raises(NotFound):
                [event async for event in guide.run(answers={call: value}, log=log, session_id=name)]

    run_now(answer)


def test_two_answers_at_once_are_one_batch_and_the_turn_goes_on_after_both() -> None:
    async def answer(log: Log) -> None:
        twice = [ToolUse("confirm", {"question": "One?"}), ToolUse("confirm", {"question": "Two?"})]
        guide = saying(*twice, tools=[confirm])
        async with session(log) as name:
            calls = waiting_calls([event async for event in guide.run("Go", log=log, session_id=name)])
            one = [event async for event in guide.run(answers={calls[0]: True}, log=log, session_id=name)]
            assert [event.type for event in one] == ["tool.result"], "the other question still waits"
            [event async for event in guide.run("Never mind", log=log, session_id=name)]
            calls = waiting_calls([event async for event in guide.run("Go", log=log, session_id=name)])
            both = dict.fromkeys(calls, True)
            events = [event async for event in guide.run(answers=both, log=log, session_id=name)]
            assert isinstance(events[-1].payload, AgentEnd)

    run_now(answer)


def test_two_who_answer_at_the_same_moment_are_one_answer_and_one_refusal() -> None:
    async def answer(log: Log) -> None:
        guide = saying(ToolUse("confirm", {"question": "One?"}), tools=[confirm])

        async def say(name: str, call: str, value: bool) -> bool:
            try:
                [event async for event in guide.run(answers={call: value}, log=log, session_id=name)]
            except NotFound:
                return False
            return True

        async with session(log) as name:
            [call] = waiting_calls([event async for event in guide.run("Go", log=log, session_id=name)])
            taken = await asyncio.gather(*(say(name, call, value) for value in (True, False, True)))
            assert sorted(taken) == [False, False, True]
            assert len(await of(log, name, "tool.result")) == 1

    run_now(answer)


def test_a_message_instead_of_an_answer_goes_to_who_waits() -> None:
    async def instead(log: Log) -> None:
        agent = vector("message during a wait")
        async with session(log) as name:
            [event async for event in agent.run("Go.", log=log, session_id=name)]
            assert await agent.ask("Never mind.", log=log, session_id=name) == "Something else, then."

    run_now(instead)


# letting go


def test_a_log_of_ones_own_is_used_and_left_open() -> None:
    async def own(log: Log) -> None:
        guide = saying("Hi.")
        await guide.ask("One", log=log)
        await guide.ask("Two", log=log)
        assert len(await log.sessions()) == 2
        assert guide.run_pools == {}

    run_now(own)


def test_a_session_that_is_not_there_is_an_error_and_leaves_nothing_behind() -> None:
    async def nowhere(log: Log) -> None:
        guide = saying("Hi.")
        with pytest.raises(NotFound):
            await guide.ask("One", log=log, session_id="sess_nowhere")
        assert guide.run_pools == {}

    run_now(nowhere)


def test_who_waits_for_a_runner_that_stopped_is_told() -> None:
    async def closed(log: Log) -> None:
        guide = saying(ToolUse("confirm", {"question": "One?"}), tools=[confirm])
        async with session(log) as name:
            runners = [
                only_pool(guide).runners.find(name)
                async for event in guide.run("Go", log=log, session_id=name)
                if isinstance(event.payload, ToolCall)
            ]
            assert runners[0] is not None
            with pytest.raises(StoreError, match="runner has stopped"):
                await runners[0].wait_for_seq(10_000)

    run_now(closed)


def test_it_runs_on_a_file_too(tmp_path: Path) -> None:
    async def on_file() -> None:
        log = await open_log(f"sqlite:///{tmp_path}/log.db")
        assert await vector("nested call").ask("Go.", log=log) == "Done."
        await log.close()

    asyncio.run(on_file())


# stopping


def test_a_stop_ends_models_tools_and_agents_before_the_turn_is_over() -> None:
    reached: set[str] = set()

    @tool
    async def patient(context: ToolContext) -> str:
        """Never answers."""
        context.progress("on")
        try:
            await asyncio.Event().wait()
        finally:
            reached.add("async tool")
        return ""

    @tool
    def stubborn(context: ToolContext) -> str:
        """Looks whether it is still wanted."""
        context.progress("on")
        while not context.cancelled:
            pass
        reached.add("thread")
        return ""

    class Endless:
        name = "endless"

        async def stream(self, request: Any, reply: Any) -> AsyncIterator[Any]:
            yield reply.text("I am ")
            try:
                await asyncio.Event().wait()
            finally:
                reached.add("model")

    async def stop(log: Log) -> None:
        talker = Agent("Talker", "", Endless())
        scout = saying(ToolUse("patient"), ToolUse("stubborn"), name="Scout", tools=[patient, stubborn])
        guide = saying(
            *(ToolUse(name, {"prompt": "Go"}) for name in ("scout", "talker")), agents=[scout, talker]
        )
        async with session(log) as name:
            running = asyncio.create_task(all_ended(guide.run("Go", log=log, session_id=name)))
            begun: list[str] = []
            async for page in log.follow(name):
                begun += [row.type for row in page]
                if begun.count("tool.progress") == 2 and "block.delta" in begun:
                    break
            await log.append(name, [event_of(stop_command())])
            ends = await running
            assert {end.stop_reason for end in ends.values()} == {"cancelled"}
            assert len(ends) == 3
            await until(lambda: reached == {"model", "async tool", "thread"})
            results = await of(log, name, "tool.result")
            assert len(results) == 4
            assert all(b'"CANCELLED"' in bytes(result.payload) for result in results)

    run_now(stop)


def test_closing_while_a_retry_waits_does_not_wait_for_it() -> None:
    async def close(log: Log) -> None:
        slow = RetryPolicy(max_attempts=5, initial_delay_s=3600)
        guide = Agent("Guide", "", Scripted(lambda messages: ["Hm", Fail()]), retry=slow)
        async with session(log) as name:
            async for event in guide.run("Go", log=log, session_id=name):
                if event.type == "block.retract":
                    await only_pool(guide).runners.close()
                    break
            assert await of(log, name, "agent.end") == [], "the next owner continues"
            assert await log.leases.owner_of(name) is None

    run_now(close)


def test_a_slow_caller_of_a_long_turn_gets_every_event() -> None:
    """The ring in memory keeps an open turn, however long it is."""
    calls = 600

    @tool
    def note(number: int) -> str:
        """Note a number."""
        return f"{number}"

    def script(messages: list[Message]) -> list[Any]:
        results = sum(part["type"] == "tool_result" for message in messages for part in message.content)
        return ["Done."] if results else [ToolUse("note", {"number": number}) for number in range(calls)]

    async def run() -> list[int]:
        entries = Agent("Clerk", "", Scripted(script), tools=(note,)).run("Go")
        seqs: list[int] = []
        results = 0
        async for entry in entries:
            seqs.append(entry.seq)
            results += isinstance(entry.payload, ToolResult)
            for _ in range(10):  # everything else goes on meanwhile
                await asyncio.sleep(0)
        assert results == calls
        return seqs

    seqs = asyncio.run(run())
    assert seqs == list(range(len(seqs)))
    assert len(seqs) > 2_000
