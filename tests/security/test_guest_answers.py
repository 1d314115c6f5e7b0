"""Rows 7, 10 and 19: which core types a guest posts, which calls it answers, and with which pictures."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.security.apps import confirm, make
from tests.security.desk import Answer, Desk, desk, run
from turnlog import Agent, App, tool
from turnlog.agents import Scripted, ToolContext, ToolUse, WaitForInput
from turnlog.agents.runtime import user_input
from turnlog.app import Roles, client_events
from turnlog.events import CORE, EventType
from turnlog.state.history import Message
from turnlog.team.events import TEAM

METADATA = "http://169.254.169.254/latest/meta-data/"


async def guested(at: Desk, *roles: str) -> str:
    """Ada's session, in which bob is a guest."""
    session = await at.session("ada")
    await at.enrol("ada", session, "bob", *(roles or ("guest",)))
    return session


async def post(at: Desk, who: str, session: str, type: str, payload: Any) -> Answer:
    return await at.post(
        who, "/api/events", {"session": session, "events": [{"type": type, "payload": payload}]}
    )


def core_kinds() -> list[EventType]:
    return [kind for kind in (*CORE, *TEAM) if not kind.payload_class.LEGACY]


async def accepted(at: Desk) -> list[str]:
    """The core types that a guest can post with their examples."""
    session = await guested(at)
    examples = {kind.name: dict(kind.payload_class.EXAMPLE) for kind in core_kinds()}
    examples["ui.message"] = {"text": "Hello"}  # the example has a speaker and a channel
    statuses = {
        name: (await post(at, "bob", session, name, example)).status for name, example in examples.items()
    }
    assert set(statuses.values()) <= {202, 400, 404, 409}, statuses
    return sorted(name for name, status in statuses.items() if status == 202)


def test_guest_posts_messages_and_commands_and_no_other_core_type() -> None:
    async def scenario() -> None:
        assert len(core_kinds()) >= 36
        async with desk(make()) as at:
            assert await accepted(at) == ["ui.command", "ui.message"]

    run(scenario())


def test_control_without_origins_and_rights_a_guest_posts_most_of_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(EventType, "allows_origin", lambda *_: True)
        monkeypatch.setattr(client_events.ClientEventBatch, "_may_post", lambda *_: True)
        async with desk(make()) as at:
            assert {"session.member", "agent.start", "session.title"} <= set(await accepted(at))

    run(scenario())


# who answers


@tool(executor="frontend", roles=("clerk",))
def sign(text: str) -> bool:
    """A clerk signs."""
    raise NotImplementedError


@tool(roles=("clerk",))
def measure(context: ToolContext) -> str:
    """Ask the clerk for a length."""
    if context.values is None:
        raise WaitForInput({"length": "How long?"})
    return f"{context.values['length']} m"


def obey(messages: list[Message]) -> Iterator[str | ToolUse]:
    last = messages[-1].content[-1]
    if last["type"] == "tool_result":
        yield f"Result: {last['content']}"
    else:
        yield ToolUse(str(last["text"]), {"text": "this"} if last["text"] == "sign" else {})


clerk = Agent("Clerk", "Obey.", Scripted(obey), tools=(sign, measure))
office = App("office", clerk, roles=Roles(creator=("clerk", "owner")))


async def asked(at: Desk, order: str) -> tuple[str, dict[str, Any]]:
    """A clerk's turn in which the page is asked; a customer is in the session too."""
    session = await guested(at, "customer")
    await at.send("ada", session, order)
    [event] = await at.told("ada", session, "tool.await")
    return session, event["payload"]["calls"][0]


async def sign_as(at: Desk, who: str, session: str, call: dict[str, Any]) -> int:
    payload = {"call_id": call["call_id"], "tool": "sign", "ok": True, "result": True}
    return (await post(at, who, session, "tool.result", payload)).status


def test_call_of_a_tool_with_roles_is_answered_by_these_roles_only() -> None:
    async def scenario() -> None:
        async with desk(office) as at:
            session, call = await asked(at, "sign")
            assert call["roles"] == ["clerk"]
            assert await sign_as(at, "bob", session, call) == 400
            body = {
                "agent_uuid": session,
                "tool_results": [{"tool_use_id": call["call_id"], "content": True}],
            }
            assert (await at.post("bob", "/agent/tool_results", body)).status == 409
            assert await sign_as(at, "ada", session, call) == 202

    run(scenario())


def test_input_for_a_tool_with_roles_is_given_by_these_roles_only() -> None:
    async def scenario() -> None:
        async with desk(office) as at:
            session, call = await asked(at, "measure")
            action = {"action": {"kind": "input.submit", "values": {"length": 3}}, "call_id": call["call_id"]}
            assert (await post(at, "bob", session, "ui.action", action)).status == 400
            assert (await post(at, "ada", session, "ui.action", action)).status == 202
            [end] = await at.told("ada", session, "agent.end")
            assert end["payload"]["result"] == "Result: 3 m"

    run(scenario())


def test_control_without_the_roles_of_a_call_a_customer_signs(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(user_input, "has_any_role", lambda *_: True)
        async with desk(office) as at:
            session, call = await asked(at, "sign")
            assert await sign_as(at, "bob", session, call) == 202

    run(scenario())


# pictures


async def answer_with(at: Desk, src: str) -> int:
    """Bob answers a question to the page with a picture."""
    session = await guested(at)
    await at.send("ada", session, "confirm sure?")
    [event] = await at.told("ada", session, "tool.await")
    image = {"src": src.replace("SESSION", session), "media_type": "image/png"}
    call_id = event["payload"]["calls"][0]["call_id"]
    payload = {"call_id": call_id, "tool": confirm.name, "ok": True, "result": True, "images": [image]}
    return (await post(at, "bob", session, "tool.result", payload)).status


@pytest.mark.parametrize(
    ("src", "status"),
    [
        (METADATA, 400),
        ("https://evil.example/a.png", 400),
        ("//evil.example/a.png", 400),
        ("file:///etc/passwd", 400),
        ("data:text/html;base64,AA==", 400),
        ("api/blobs/sess_other/" + "0" * 64, 400),
        ("api/blobs/SESSION/" + "0" * 64, 202),
        ("data:image/png;base64,AA==", 202),
    ],
)
def test_picture_in_an_answer_is_a_blob_of_the_session_or_inline(src: str, status: int) -> None:
    async def scenario() -> None:
        async with desk(make()) as at:
            assert await answer_with(at, src) == status

    run(scenario())


def test_control_without_the_check_a_picture_has_any_address(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(client_events, "check_images", lambda *_: None)
        async with desk(make()) as at:
            assert await answer_with(at, METADATA) == 202

    run(scenario())
