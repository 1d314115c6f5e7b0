"""Row 7, by id: nobody takes the id that the server or an executor makes for an event of its own."""

import re
from typing import Any

import pytest

from tests.security.apps import make
from tests.security.desk import Desk, desk, run
from turnlog.agents.runtime.user_input import remote_answer_id
from turnlog.app import client_events


async def weighing(at: Desk) -> tuple[str, str, str]:
    """Ada's session with the guest bob, a call in it that waits for another process, the id of its answer."""
    session = await at.session("ada")
    await at.enrol("ada", session, "bob", "guest")
    await at.send("ada", session, "weigh it")
    [call] = await at.told("ada", session, "tool.call")
    call_id = call["payload"]["call_id"]
    return session, call_id, remote_answer_id(session, call["agent_id"], call_id)


async def post(at: Desk, who: str, session: str, **event: Any) -> int:
    return (await at.post(who, "/api/events", {"session": session, "events": [event]})).status


def result(call_id: str, event_id: str) -> dict[str, Any]:
    payload = {"call_id": call_id, "tool": "weigh", "ok": True, "result": "3 kg"}
    return {"type": "tool.result", "payload": payload, "id": event_id}


def note(event_id: str) -> dict[str, Any]:
    return {"type": "case.note", "payload": {"text": "mine"}, "id": event_id}


@pytest.mark.parametrize("who", ["bob", "ada", "root"])
@pytest.mark.parametrize("reserved", ["evt_" + "0" * 40, "evt_00-guest_1", "evt_remote_" + "0" * 40])
def test_reserved_id_on_an_event_of_a_member_is_refused(who: str, reserved: str) -> None:
    async def scenario() -> None:
        async with desk(make()) as at:
            session, _, _ = await weighing(at)
            assert await post(at, who, session, **note(reserved)) == 400

    run(scenario())


def test_answer_of_an_executor_under_its_id_is_taken_though_a_guest_wanted_the_id() -> None:
    async def scenario() -> None:
        async with desk(make()) as at:
            session, call_id, taken = await weighing(at)
            assert await post(at, "bob", session, **note(taken)) == 400
            assert await post(at, "bob", session, **result(call_id, taken)) == 400
            assert await post(at, "worker", session, **result(call_id, taken)) == 202
            await at.told("ada", session, "agent.end")

    run(scenario())


def test_answer_under_the_id_of_another_answer_is_refused() -> None:
    async def scenario() -> None:
        async with desk(make()) as at:
            session, call_id, _ = await weighing(at)
            other = remote_answer_id(session, "agt_other", call_id)
            assert await post(at, "worker", session, **result(call_id, other)) == 400

    run(scenario())


def test_control_without_reserved_ids_a_guest_keeps_the_answer_out(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(client_events, "RESERVED_ID_PATTERN", re.compile("nothing"))
        async with desk(make()) as at:
            session, call_id, taken = await weighing(at)
            assert await post(at, "bob", session, **note(taken)) == 202
            assert await post(at, "worker", session, **result(call_id, taken)) == 409

    run(scenario())
