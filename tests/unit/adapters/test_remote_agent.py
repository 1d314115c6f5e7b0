"""Agents that workers run, beyond the contract: leases, lost workers, waiting, and what the log refuses."""

import asyncio
from base64 import b64decode
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.support.runtimes.served import APP, RoutedRequests, start_worker
from tests.unit.adapters.scripted_runner import ScriptedRunner, ask_to_delete, open_session, say
from turnlog.adapters import Finished, Part, RemoteAgent, ToolPolicy
from turnlog.adapters.part_output import PartOutput
from turnlog.adapters.remote import remote_part
from turnlog.adapters.remote.remote_part import RemotePart
from turnlog.app import Principal
from turnlog.connection.json_requests import ServerRefused
from turnlog.errors import CallerError
from turnlog.events import (
    AgentEnd,
    AgentStart,
    ApprovalDecision,
    ApprovalRequest,
    AssistantMessage,
    SessionError,
)
from turnlog.testing.runtimes.files import FILES, PLAN
from turnlog.testing.runtimes.harness import RuntimeHarness

TEST_TIMEOUT_S = 120.0
LONG_S = 600.0  # no test waits for it
MOMENT_S = 0.05
SOURCE = Principal("other", frozenset({"source"}))


def run_test(work: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(TEST_TIMEOUT_S):
            await work()

    asyncio.run(bounded())


class RemoteRuntime:
    """Sessions of one `RemoteAgent`, also after a restart."""

    features: frozenset[Any] = frozenset()

    def __init__(self, lease_s: float = LONG_S, notice_s: float = LONG_S, **options: Any) -> None:
        self.agent = RemoteAgent("Lead", lease_s=lease_s, notice_s=notice_s, **options)
        self.requests = RoutedRequests(self.agent)

    def make_agent(self, script: Any, record: Any) -> RemoteAgent:
        return self.agent

    async def post(self, path: str, worker: str = "worker-1", **fields: Any) -> Any:
        return await self.requests.post(f"/api/{path}", {"app": APP, "worker": worker, **fields}, dict)

    async def take(self, worker: str = "worker-1") -> str:
        """Wait for a part and take it."""
        [part] = (await self.post("parts", worker))["offers"]
        await self.post("parts/take", worker, part=part, source="scripted", version="1.0")
        return str(part)

    async def begin(self, part: str, worker: str = "worker-1") -> Any:
        agent = {"name": "Lead"}
        return await self.post(
            "parts/begin", worker, part=part, can_read=True, fresh_agent=agent, agent=agent
        )


async def texts(session: RuntimeHarness) -> list[str]:
    return [message.text for message in await session.find(AssistantMessage)]


async def wait_while_idle(runtime: RemoteRuntime) -> None:
    """Let more time pass than any of the short limits."""
    await asyncio.wait({asyncio.create_task(runtime.post("parts", free=0))}, timeout=MOMENT_S * 4)


# offers


def test_a_part_that_was_taken_and_has_not_begun_is_offered_again_when_its_lease_is_over() -> None:
    async def scenario() -> None:
        runtime = RemoteRuntime(lease_s=MOMENT_S)
        async with open_session(runtime) as session:
            await session.send("Hi")
            part = await runtime.take()
            while not (offers := (await runtime.post("parts", "worker-2"))["offers"]):
                pass
            assert offers == [part]
            with pytest.raises(ServerRefused, match="410"):
                await runtime.begin(part)
            assert await session.find(AgentStart) == [], "no turn has begun"
            start_worker(runtime.requests, ScriptedRunner(say))
            await session.wait_for(AgentEnd)
            assert await texts(session) == ["1: Hi"]

    run_test(scenario)


def test_a_worker_that_gives_a_part_up_before_it_began_lets_another_take_it_at_once() -> None:
    async def scenario() -> None:
        runtime = RemoteRuntime()
        async with open_session(runtime) as session:
            await session.send("Hi")
            part = await runtime.take()
            await runtime.post("parts/report", part=part, number=0, outcome={"kind": "abandoned"})
            assert await runtime.take("worker-2") == part

    run_test(scenario)


def test_a_report_before_the_part_has_begun_is_a_conflict() -> None:
    async def scenario() -> None:
        runtime = RemoteRuntime()
        async with open_session(runtime) as session:
            await session.send("Hi")
            part = await runtime.take()
            with pytest.raises(ServerRefused, match="409"):
                await runtime.post("parts/report", part=part, number=0)

    run_test(scenario)


def test_a_worker_is_offered_no_more_than_it_can_run() -> None:
    async def scenario() -> None:
        runtime = RemoteRuntime(lease_s=MOMENT_S)
        async with open_session(runtime) as session:
            await session.send("Hi")
            assert len((await runtime.post("parts"))["offers"]) == 1
            assert (await runtime.post("parts", free=0))["offers"] == []
            assert len((await runtime.post("parts", free=1))["offers"]) == 1

    run_test(scenario)


def test_waiting_is_said_once_and_does_not_count_as_time_of_the_turn() -> None:
    async def scenario() -> None:
        runtime = RemoteRuntime(notice_s=MOMENT_S)
        async with open_session(runtime, turn_limit_s=MOMENT_S) as session:
            await session.send("Hi")
            notice = await session.wait_for(SessionError)
            assert notice.code == "waiting_for_worker"
            session.turn_limit_s = LONG_S
            await session.restart()
            [part] = (await runtime.post("parts"))["offers"]
            await wait_while_idle(runtime)  # a second notice would have come
            await runtime.post("parts/take", part=part, source="scripted", version="1.0")
            await runtime.begin(part)
            await runtime.post("parts/report", part=part, number=0, outcome={"kind": "finished"})
            assert [error.code for error in await session.find(SessionError)] == ["waiting_for_worker"]
            assert [end.stop_reason for end in await session.find(AgentEnd)] == ["end_turn"]

    run_test(scenario)


def test_an_answered_turn_waits_for_a_worker_beyond_its_limit_and_over_a_restart() -> None:
    async def scenario() -> None:
        runtime = RemoteRuntime(notice_s=MOMENT_S)
        async with open_session(runtime) as session:
            worker = start_worker(runtime.requests, ScriptedRunner(ask_to_delete))
            await session.say("Hi")
            worker.cancel()
            await asyncio.wait({worker})
            await session.log.append(session.session, await session.build_answer("call_1", True))
            session.turn_limit_s = MOMENT_S
            await session.restart()
            await wait_while_idle(runtime)  # the turn would have timed out
            session.turn_limit_s = LONG_S
            await session.restart()
            start_worker(runtime.requests, ScriptedRunner(ask_to_delete))
            await session.wait_for(AgentEnd)
            assert await texts(session) == ["Approved"]
            assert [end.stop_reason for end in await session.find(AgentEnd)] == ["end_turn"]
            await session.check_laws()

    run_test(scenario)


def test_a_process_that_hands_its_sessions_over_does_not_wait_for_a_worker() -> None:
    async def scenario() -> None:
        runtime = RemoteRuntime()
        async with open_session(runtime) as session:
            worker = start_worker(runtime.requests, ScriptedRunner(ask_to_delete))
            await session.say("Hi")
            worker.cancel()
            await asyncio.wait({worker})
            await session.log.append(session.session, await session.build_answer("call_1", True))
            assert len((await runtime.post("parts"))["offers"]) == 1
            session.runner.runtime.hand_over()
            await session.runner.end_tasks()
            assert session.runner.runtime.is_between_steps
            assert len(runtime.agent.offered_parts) == 0
            await session.restart()
            start_worker(runtime.requests, ScriptedRunner(ask_to_delete))
            await session.wait_for(AgentEnd)
            assert await texts(session) == ["Approved"]

    run_test(scenario)


# what goes wrong


def test_a_late_report_is_refused_and_the_turn_stays_closed() -> None:
    async def scenario() -> None:
        runtime = RemoteRuntime(lease_s=MOMENT_S)
        async with open_session(runtime) as session:
            await session.send("Hi")
            part = await runtime.take()
            await runtime.begin(part)
            await session.wait_for(AgentEnd)
            [error] = await session.find(SessionError)
            assert error.code == "worker_lost"
            late = {"kind": "finished"}
            with pytest.raises(ServerRefused, match="410"):
                await runtime.post("parts/report", part=part, number=0, outcome=late)
            assert (await runtime.post("parts", holds=[{"part": part}]))["stopped"] == [part]
            await session.check_laws()

    run_test(scenario)


async def return_deep_value(part: Part, output: PartOutput) -> Finished:
    value: list[Any] = []
    for _ in range(30):  # an event may have 32 levels, and the body of a request too
        value = [value]
    await output.report(output.builder.call, output.root, "search", {}, "call_1")
    await output.report(output.builder.result, output.root, "call_1", value)
    return Finished()


async def return_too_much(part: Part, output: PartOutput) -> Finished:
    await output.report(output.builder.text, output.root, "Hello.")
    return Finished(b"x" * (16 << 20))


@pytest.mark.parametrize("run_part", [return_deep_value, return_too_much])
def test_what_the_server_refuses_ends_the_turn_and_not_the_worker(run_part: Any) -> None:
    async def scenario() -> None:
        runtime = RemoteRuntime()
        runners = [ScriptedRunner(run_part)]
        async with open_session(runtime) as session:
            worker = start_worker(runtime.requests, runners[0])
            await session.say("Hi")
            assert [error.code for error in await session.find(SessionError)] == ["agent_failed"]
            await session.check_laws()
            runners[0]._run_part = say
            await session.say("again")
            assert "1: again" in await texts(session)
            assert not worker.done()

    run_test(scenario)


def test_a_worker_that_cannot_begin_a_part_ends_with_its_error() -> None:
    class Nameless(ScriptedRunner):
        def describe_agent(self, state: bytes | None) -> Any:
            raise KeyError("name")

    async def scenario() -> None:
        runtime = RemoteRuntime()
        async with open_session(runtime) as session:
            worker = start_worker(runtime.requests, Nameless(say))
            await session.send("Hi")
            with pytest.raises(KeyError, match="name"):
                await worker
            assert await session.find(AgentStart) == []
            start_worker(runtime.requests, ScriptedRunner(say))
            await session.wait_for(AgentEnd)

    run_test(scenario)


# definitions


@pytest.mark.parametrize(
    "options",
    [
        {"name": ""},
        {"name": "Lead", "lease_s": 0.0},
        {"name": "Lead", "notice_s": -1.0},
        {"name": "Lead", "policies": {"delete": ToolPolicy(expires_s=0)}},
    ],
)
def test_a_definition_that_cannot_work_is_refused(options: dict[str, Any]) -> None:
    with pytest.raises(CallerError):
        RemoteAgent(**options)


# questions


def test_a_part_has_a_limited_number_of_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_part, "MAX_ASKS", 3)

    async def scenario() -> None:
        runtime = RemoteRuntime()
        async with open_session(runtime) as session:
            await session.send("Delete it")
            part = await runtime.take()
            root = (await runtime.begin(part))["team"][0]["scope"]["agent_id"]
            call = {"do": "call", "agent_id": root, "tool": "delete", "args": {}, "call_id": "call_1"}
            done = {"do": "complete_message", "agent_id": root}
            await runtime.post("parts/report", part=part, number=0, reports=[call, done])

            question = {"agent_id": root, "call_id": "call_1"}
            for number in range(1, 4):
                ask = {"number": number, "questions": [question]}
                await runtime.post("parts/report", part=part, number=number, ask=ask)
            ask = {"number": 4, "questions": [question]}
            with pytest.raises(ServerRefused, match="at most 3 asks"):
                await runtime.post("parts/report", part=part, number=4, ask=ask)
            await runtime.post(
                "parts/report", part=part, number=4, outcome={"kind": "finished", "state": "e30="}
            )

    run_test(scenario)


def test_a_worker_that_asks_about_a_call_again_adds_no_question() -> None:
    async def scenario() -> None:
        runtime = RemoteRuntime()
        async with open_session(runtime) as session:
            await session.send("Delete it")
            part = await runtime.take()
            root = (await runtime.begin(part))["team"][0]["scope"]["agent_id"]
            call = {"do": "call", "agent_id": root, "tool": "delete", "args": {}, "call_id": "call_1"}
            done = {"do": "complete_message", "agent_id": root}
            questions = [{"agent_id": root, "call_id": "call_1"}] * 2

            async def ask(number: int, **fields: Any) -> None:
                question = {"number": number, "questions": questions}
                await runtime.post("parts/report", part=part, number=number, ask=question, **fields)

            await ask(0, reports=[call, done])
            await session.wait_for(ApprovalRequest)
            for number in range(1, 4):
                await ask(number)
            await session.log.append(session.session, await session.build_answer("call_1", True))
            await session.wait_for(ApprovalDecision)
            await ask(4)

            answered: set[int] = set()
            while len(answered) < 5:
                open_asks = [number for number in range(5) if number not in answered]
                holds = [{"part": part, "asks": open_asks}]
                answers = (await runtime.post("parts", free=0, holds=holds))["answers"]
                assert all(item["answers"][0]["kind"] == "approved" for item in answers)
                answered |= {item["ask"] for item in answers}
            assert len(await session.find(ApprovalRequest)) == 1
            await runtime.post(
                "parts/report", part=part, number=5, outcome={"kind": "finished", "state": "e30="}
            )
            assert len(await session.find(ApprovalRequest)) == 1

    run_test(scenario)


# files


def test_a_worker_reads_the_files_of_a_message_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_part, "FILE_PIECE_BYTES", 3)

    async def scenario() -> None:
        runtime = RemoteRuntime()
        runner = ScriptedRunner(say)
        async with open_session(runtime) as session:
            start_worker(runtime.requests, runner)
            await session.say("Look.", FILES)
            [part] = runner.parts
            assert [tuple(file) for file in part.files] == [tuple(file) for file in FILES]
            await session.say("Again")
            assert list(runner.parts[-1].files) == [], "only what is new"

    run_test(scenario)


@pytest.mark.parametrize("is_defended", [True, False])
def test_another_worker_cannot_read_the_files_of_a_part(
    is_defended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        if not is_defended:
            monkeypatch.setattr(RemotePart, "_check_holder", lambda part, worker: None)
        runtime = RemoteRuntime()
        async with open_session(runtime) as session:
            await session.send("Look.", FILES)
            part = await runtime.take()
            begun = await runtime.begin(part)
            expected = {"name": PLAN.name, "media_type": PLAN.media_type, "size_bytes": len(PLAN.data)}
            assert begun["files"][0] == expected
            own = await runtime.post("parts/file", part=part, file=0)
            assert b64decode(own["data"]) == PLAN.data
            behind = await runtime.post("parts/file", part=part, file=0, offset=len(PLAN.data))
            assert behind["data"] == ""
            with pytest.raises(ServerRefused, match="404"):
                await runtime.post("parts/file", part=part, file=len(FILES))
            if is_defended:
                with pytest.raises(ServerRefused, match="410"):
                    await runtime.post("parts/file", "worker-2", part=part, file=0)
            else:
                assert await runtime.post("parts/file", "worker-2", part=part, file=0) == own

    run_test(scenario)


def test_roles_of_policies_are_roles_of_the_application() -> None:
    agent = RemoteAgent("Lead", policies={"delete": ToolPolicy(roles=("manager",))})
    assert agent.tool_roles == {"manager"}
    assert agent.agent_names == ("Lead",)
