"""Row 19: an approval is for one call with its arguments, counts once, in time, from who may give it."""

import asyncio
from typing import Any, NamedTuple

import pytest

from tests.security.apps import Shredder, make
from tests.security.desk import Answer, Desk, desk, run
from turnlog.agents.runtime import approvals, user_input
from turnlog.agents.runtime.approval_timers import ApprovalTimers
from turnlog.app import Membership, client_events
from turnlog.events.envelope import format_timestamp
from turnlog.events.tool import hash_args
from turnlog.ids import now_ms


class Asked(NamedTuple):
    """A question whether something may be shredded."""

    session: str
    call: str
    hashed: str


async def asked(at: Desk, what: str = "draft") -> Asked:
    """Ada owns a session in which bob is a guest; the agent asks whether it may shred."""
    session = await at.session("ada")
    await at.enrol("ada", session, "bob", "guest")
    await at.send("ada", session, f"shred {what}")
    [event] = await at.told("ada", session, "approval.request")
    return Asked(session, event["payload"]["call_id"], event["payload"]["args_hash"])


async def decide(at: Desk, who: str, at_session: str, **payload: str) -> Answer:
    event = {"type": "approval.decision", "payload": {"decision": "approve", **payload}}
    return await at.post(who, "/api/events", {"session": at_session, "events": [event]})


def app(shredder: Shredder, expires_s: float = 60.0) -> Any:
    return make(tools=(shredder.tool(expires_s),))


def test_twice_approved_is_run_once() -> None:
    shredder = Shredder()

    async def scenario() -> None:
        async with desk(app(shredder)) as at:
            session, call, hashed = await asked(at)
            given = await asyncio.gather(
                *[decide(at, "ada", session, call_id=call, args_hash=hashed) for _ in range(8)]
            )
            taken = {answer.value["seqs"][0] for answer in given if answer.status == 202}
            assert len(taken) == 1  # whoever comes later gets the old seq
            assert {answer.status for answer in given} == {202}
            await at.told("ada", session, "agent.end")
            again = await decide(at, "ada", session, call_id=call, args_hash=hashed)
            other = await decide(at, "ada", session, call_id=call, args_hash=hashed, decision="deny")
            assert (again.status, again.value["seqs"]) == (202, list(taken))
            assert other.status == 409
            log = await at.log("ada", session)
            assert [event["type"] for event in log].count("approval.decision") == 1
            assert shredder.done == ["draft"]

    run(scenario())


async def wrong(at: Desk) -> list[int]:
    """Decisions that must not count: other arguments, another call, another role, another session."""
    session, call, hashed = await asked(at)
    other = await asked(at, "archive")
    given = [
        await decide(at, "ada", session, call_id=call, args_hash=hash_args({"what": "archive"})),
        await decide(at, "ada", session, call_id=call, args_hash=other.hashed),
        await decide(at, "bob", session, call_id=call, args_hash=hashed),
        await decide(at, "ada", session, call_id=other.call, args_hash=other.hashed),
        await decide(at, "cyd", session, call_id=call, args_hash=hashed),
        await decide(at, "ada", session, call_id=call, args_hash=hashed, decision="expired"),
    ]
    return [answer.status for answer in given]


def test_a_decision_that_is_not_for_this_call_or_not_from_this_role_does_not_count() -> None:
    shredder = Shredder()

    async def scenario() -> None:
        async with desk(app(shredder)) as at:
            assert await wrong(at) == [400, 400, 400, 404, 404, 400]
            assert shredder.done == []

    run(scenario())


def test_control_a_server_that_does_not_judge_runs_what_nobody_approved(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shredder = Shredder()

    async def scenario() -> None:
        monkeypatch.setattr(user_input, "check_decision", lambda *_: None)
        async with desk(app(shredder)) as at:
            session, call, _ = await asked(at)
            answer = await decide(at, "bob", session, call_id=call, args_hash="0" * 64)
            assert answer.status == 202, answer.body
            await at.told("ada", session, "agent.end")
            assert shredder.done == ["draft"]

    run(scenario())


def test_a_question_expires() -> None:
    shredder = Shredder()

    async def scenario() -> None:
        async with desk(app(shredder, 0.2)) as at:
            session, call, hashed = await asked(at)
            [decision] = await at.told("ada", session, "approval.decision")
            assert decision["payload"]["decision"] == "expired"
            await at.told("ada", session, "agent.end")
            late = await decide(at, "ada", session, call_id=call, args_hash=hashed)
            assert late.status == 409
            assert shredder.done == []

    run(scenario())


def test_control_a_server_without_a_clock_takes_it_late(monkeypatch: pytest.MonkeyPatch) -> None:
    shredder = Shredder()

    async def never(*_: object) -> None:
        pass

    async def scenario() -> None:
        monkeypatch.setattr(ApprovalTimers, "_append_expiry", never)
        for module in (approvals, client_events):
            monkeypatch.setattr(module, "is_approval_expired", lambda *_: False)
        async with desk(app(shredder, 0.05)) as at:
            session, call, hashed = await asked(at)
            [event] = await at.told("ada", session, "approval.request")
            expires_at = event["payload"]["expires_at"]
            while format_timestamp(now_ms()) < expires_at:  # looking at the log takes its time too
                await at.log("ada", session)
            assert (await decide(at, "ada", session, call_id=call, args_hash=hashed)).status == 202
            await at.told("ada", session, "agent.end")
            assert shredder.done == ["draft"]

    run(scenario())


HOURS_MS = 2 * 3600 * 1000


async def decide_when_the_clock_goes_back(at: Desk, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Ada approves when the clock is two hours ahead, and again when it is right."""
    session, call, hashed = await asked(at)
    statuses = []
    for ahead_ms in (HOURS_MS, 0):
        monkeypatch.setattr(client_events, "now_ms", lambda ahead_ms=ahead_ms: now_ms() + ahead_ms)
        statuses.append((await decide(at, "ada", session, call_id=call, args_hash=hashed)).status)
    await at.told("ada", session, "agent.end")
    return statuses


def test_expired_approval_stays_expired_when_the_clock_goes_back(monkeypatch: pytest.MonkeyPatch) -> None:
    shredder = Shredder()

    async def scenario() -> None:
        async with desk(app(shredder, 3600)) as at:
            assert await decide_when_the_clock_goes_back(at, monkeypatch) == [400, 409]
            assert shredder.done == []

    run(scenario())


def test_control_an_expiry_that_is_not_written_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    shredder = Shredder()

    async def nothing(*_: object) -> None:
        pass

    async def scenario() -> None:
        monkeypatch.setattr(client_events.ClientEventBatch, "_append_expiry", nothing)
        async with desk(app(shredder, 3600)) as at:
            assert await decide_when_the_clock_goes_back(at, monkeypatch) == [400, 202]
            assert shredder.done == ["draft"]

    run(scenario())


# calls for another process


async def answer_for_another(at: Desk, who: str) -> int:
    """Somebody answers a call that is for another process."""
    session = await at.session("ada")
    await at.enrol("ada", session, "bob", "guest")
    await at.send("ada", session, "weigh it")
    [call] = await at.told("ada", session, "tool.call")
    result = {"call_id": call["payload"]["call_id"], "tool": "weigh", "ok": True, "result": "3 kg"}
    body = {"session": session, "events": [{"type": "tool.result", "payload": result}]}
    return (await at.post(who, "/api/events", body)).status


def test_calls_for_another_process_are_answered_by_executors() -> None:
    async def scenario() -> None:
        async with desk(make()) as at:
            assert [await answer_for_another(at, who) for who in ("bob", "worker", "ada")] == [400, 202, 202]

    run(scenario())


def test_control_without_that_a_guest_answers_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(Membership, "may_answer", lambda *_: True)
        async with desk(make()) as at:
            assert await answer_for_another(at, "bob") == 202

    run(scenario())
