"""Idempotency keys in the executor: a repeat is answered, not run."""

import asyncio

import pytest

from tests.unit.agents.test_executor import Blobs, answer, call_of, run, turn
from turnlog.agents.runtime import idempotency as module
from turnlog.agents.runtime.executor import Executor
from turnlog.agents.tools import tool
from turnlog.events import CATALOG, Scope, ToolResult, decode_envelope, encode_envelope


class Counter:
    """A tool that counts how often it ran."""

    def __init__(self) -> None:
        self.runs = 0
        self.gate = asyncio.Event()
        self.gate.set()
        self.failures = 0

        @tool
        async def pay(amount: int) -> int:
            self.runs += 1
            await self.gate.wait()
            if self.failures:
                self.failures -= 1
                raise ValueError
            return self.runs

        self.tool = pay


def test_a_repeat_with_a_key_does_not_run() -> None:
    async def work() -> None:
        counter, executor = Counter(), Executor(Blobs().put)
        for number in range(3):
            result = await answer(
                executor, counter.tool, call_of(counter.tool, f"call_{number}", "k", amount=1)
            )
            assert result.result == 1
        other = await answer(executor, counter.tool, call_of(counter.tool, "call_9", "k", amount=2))
        assert other.error is not None
        assert (other.error.code, other.error.details) == ("VALIDATION_ERROR", {"path": ["idempotency_key"]})
        assert counter.runs == 1
        await answer(executor, counter.tool, call_of(counter.tool, amount=1))
        assert counter.runs == 2, "no key: it runs"

    run(work())


def test_what_the_log_says_was_answered_is_answered() -> None:
    async def work() -> None:
        counter, executor = Counter(), Executor(Blobs().put)
        call = call_of(counter.tool, "call_0", "k", amount=1)
        for seq, payload in enumerate([call, ToolResult(call_id="call_0", tool="pay", ok=True, result=7)]):
            event = CATALOG.build_event(
                payload, id=f"evt_{seq}", origin="system", scope=Scope(agent_id="agt_1")
            )
            envelope = decode_envelope(encode_envelope(event, session_id="sess_1", seq=seq, ts_ms=0))
            executor.idempotency_cache.apply(envelope, CATALOG.decode_payload(envelope))
        result = await answer(executor, counter.tool, call_of(counter.tool, "call_1", "k", amount=1))
        assert (result.result, counter.runs) == (7, 0)

    run(work())


@pytest.mark.parametrize("how", ["good", "broken", "cancelled"])
def test_of_two_at_once_the_second_waits_for_the_first(how: str) -> None:
    async def work() -> None:
        counter, executor = Counter(), Executor(Blobs().put)
        counter.gate.clear()
        calls = [call_of(counter.tool, f"call_{number}", "k", amount=1) for number in range(2)]
        first, second = (asyncio.create_task(answer(executor, counter.tool, call)) for call in calls)
        await turn()
        assert counter.runs == 1
        counter.failures = int(how == "broken")
        if how == "cancelled":
            first.cancel()
        counter.gate.set()
        await asyncio.wait({first})
        result = await second
        assert result.ok
        assert counter.runs == (1 if how == "good" else 2), "a failure may be tried again"

    run(work())


def test_what_is_on_its_way_to_the_log_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_ENTRIES", 2)

    async def work() -> None:
        counter, executor = Counter(), Executor(Blobs().put)
        for key in ("a", "b", "c", "a"):
            await answer(executor, counter.tool, call_of(counter.tool, key=key, amount=1))
        assert counter.runs == 4

    run(work())
