"""The runner of AG-UI: what it sends, how it goes on, and what it does with servers that misbehave."""

import asyncio
from contextlib import suppress
from typing import Any

import pytest

from tests.support.loopback import LoopbackServers
from tests.support.tables import for_each_row
from tests.unit.adapters.ag_ui_peer import (
    Json,
    Peer,
    call,
    encode,
    event,
    hang_after,
    respond,
    run,
    say,
    talk,
)
from turnlog import adapters, tool
from turnlog.adapters import Part, ag_ui_request
from turnlog.adapters.ag_ui_request import AgUiEndpoint
from turnlog.adapters.ag_ui_runner import derive_thread_id
from turnlog.agents.remote.server_client import ServerClient
from turnlog.errors import PeerError
from turnlog.events import (
    AgentEnd,
    ApprovalRequest,
    AssistantMessage,
    BlockEnd,
    SessionError,
    ToolAwait,
    ToolCall,
)
from turnlog.testing.runtimes.harness import RuntimeHarness


@tool(executor="frontend")
def confirm(question: str) -> bool:
    """Ask the person."""
    raise NotImplementedError


def roles(body: Json) -> list[str]:
    return [message["role"] for message in body["messages"]]


def ask(*ids: str, **fields: Any) -> Json:
    interrupts = [{"id": f"i-{call_id}", "toolCallId": call_id, **fields} for call_id in ids]
    return {"type": "interrupt", "interrupts": interrupts}


# what is sent


def test_every_run_has_the_whole_history_and_the_state() -> None:
    state = [event("STATE_SNAPSHOT", snapshot={"n": 1})]
    state.append(event("STATE_DELTA", delta=[{"op": "replace", "path": "/n", "value": 2}]))
    result = event("TOOL_CALL_RESULT", messageId="t1", toolCallId="c1", content="seen")
    thinking = [
        event("REASONING_MESSAGE_START", messageId="r1", role="reasoning"),
        event("REASONING_MESSAGE_CONTENT", messageId="r1", delta="Hm."),
        event("REASONING_ENCRYPTED_VALUE", subtype="message", entityId="r1", encryptedValue="sig"),
        event("REASONING_ENCRYPTED_VALUE", subtype="message", entityId="none", encryptedValue="sig"),
    ]
    first = run(
        *thinking, *say("Let me look."), *call("c1", "look"), result, result, *say("Done.", "m2"), *state
    )
    peer = Peer(first, run(*say("Again.", "m3")))

    async def act(session: RuntimeHarness) -> None:
        await session.say("Hi")
        await session.restart()
        await session.say("More")

    talk(peer, act, forwarded_props={"plan": "pro"})
    one, two = peer.bodies
    assert roles(one) == ["user"]
    assert one["protocolVersion"] == "1.0"
    assert (one["state"], two["state"]) == ({}, {"n": 2})
    assert one["threadId"] == two["threadId"]
    assert one["runId"] != two["runId"]
    assert two["forwardedProps"] == {"plan": "pro"}
    assert roles(two) == ["user", "reasoning", "assistant", "assistant", "tool", "assistant", "user"]
    _, thought, text, calling, answer, _, last = two["messages"]
    assert (thought["content"], thought["encryptedValue"]) == ("Hm.", "sig")
    assert text["content"] == "Let me look."
    assert calling["toolCalls"] == [
        {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    ]
    assert (answer["toolCallId"], answer["content"]) == ("c1", "seen")
    assert last["content"] == "More"


def test_pair_of_surrogates_that_a_server_cuts_in_two_is_one_character() -> None:
    cut = event("TEXT_MESSAGE_CONTENT", messageId="m1", delta="\ude00 and \ud800")
    text = say("A smile: \ud83d")
    start, args, end = call("c1", args='{"value": "\ud83d')
    rest = event("TOOL_CALL_ARGS", toolCallId="c1", delta='\ude00"}')
    result = event("TOOL_CALL_RESULT", messageId="t1", toolCallId="c1", content="\ud83d")
    calling = [start, args, rest, end, result]
    peer = Peer(
        run(event("RAW", event="\ud83d"), *text[:-1], cut, text[-1], *calling), run(*say("Again.", "m3"))
    )

    async def act(session: RuntimeHarness) -> None:
        await session.say("Hi")
        await session.say("And now?")
        messages = await session.find(AssistantMessage)
        assert [message.text for message in messages] == ["A smile: \U0001f600 and \ufffd", "Again."]
        [tool_call] = await session.find(ToolCall)
        assert tool_call.args == {"value": "\U0001f600"}
        await session.check_laws()

    talk(peer, act)
    sent = next(message for message in peer.bodies[1]["messages"] if message["role"] == "assistant")
    assert sent["content"] == "A smile: \U0001f600 and \ufffd"


def test_server_that_keeps_the_thread_gets_only_what_is_new() -> None:
    peer = Peer(run(*say("One.")), run(*call("c1")), run(*say("Two.", "m2")))

    async def act(session: RuntimeHarness) -> None:
        await session.say("Hi")
        await session.say("More")
        await session.answer("c1", "yes")

    talk(peer, act, history="thread")
    assert [roles(body) for body in peer.bodies] == [["user"], ["user"], ["tool"]]


def test_thread_is_derived_from_the_session_and_does_not_name_it() -> None:
    first = derive_thread_id(Part("sess_1"))
    assert first == derive_thread_id(Part("sess_1", message="x"))
    assert len({first, derive_thread_id(Part("sess_2")), derive_thread_id(Part("sess_1", "red"))}) == 3
    assert "sess_1" not in first


def test_token_and_properties_may_be_functions_of_the_part() -> None:
    peer = Peer(run(*say("One.")), run(*say("Two.")))

    async def make_token(part: Part) -> str:
        return f"token-for-{part.message}"

    async def act(session: RuntimeHarness) -> None:
        await session.say("Hi")
        await session.say("More")

    talk(
        peer,
        act,
        token=make_token,
        headers={"X-Tenant": "acme"},
        forwarded_props=lambda part: {"said": part.message},
    )
    assert [headers["authorization"] for headers in peer.headers] == [
        "Bearer token-for-Hi",
        "Bearer token-for-More",
    ]
    assert peer.headers[0]["x-tenant"] == "acme"
    assert [body["forwardedProps"] for body in peer.bodies] == [{"said": "Hi"}, {"said": "More"}]


def test_token_that_no_header_can_carry_fails_the_turn() -> None:
    async def act(session: RuntimeHarness) -> None:
        await session.say("Hi")
        assert (await session.end_of("Lead")).stop_reason == "error"

    peer = Peer()
    talk(peer, act, token=lambda _: "a\r\nx-evil: 1")
    assert peer.bodies == []


# answers


def test_tools_of_the_page_are_offered_and_answered_by_tool_messages() -> None:
    peer = Peer(run(*say("Sure? "), *call("c1")), run(*say("Done.", "m2")))

    async def act(session: RuntimeHarness) -> None:
        await session.say("Hi")
        [question] = await session.find(ToolAwait)
        assert [item.call_id for item in question.calls] == ["c1"]
        await session.restart()
        await session.answer("c1", {"ok": True})
        assert (await session.end_of("Lead")).result == "Done."

    talk(peer, act, tools=[confirm])
    [offered] = peer.bodies[0]["tools"]
    assert (offered["name"], offered["description"]) == ("confirm", "Ask the person.")
    assert offered["parameters"]["required"] == ["question"]
    assert roles(peer.bodies[1]) == ["user", "assistant", "assistant", "tool"]
    assert peer.bodies[1]["messages"][-1]["content"] == '{"ok":true}'


def test_call_whose_id_no_event_can_carry_is_answered_under_its_own() -> None:
    odd = "an id with spaces " + "x" * 300
    peer = Peer(run(*call(odd)), run(*say("Done.")))

    async def act(session: RuntimeHarness) -> None:
        await session.say("Hi")
        [question] = await session.find(ToolAwait)
        await session.answer(question.calls[0].call_id, "yes")

    talk(peer, act)
    assert peer.bodies[1]["messages"][-1]["toolCallId"] == odd


@for_each_row(
    ("answer", "payload"),
    [(True, {"approved": True}), (False, {"approved": False, "notes": "a person said no"})],
)
def test_approval_is_resumed_in_the_form_of_its_schema(answer: bool, payload: Json) -> None:
    schema = {"properties": {"approved": {"type": "boolean"}, "notes": {"type": "string"}}}
    first = run(*call("c1", "delete"), outcome=ask("c1", reason="tool_call", responseSchema=schema))
    peer = Peer(first, run(event("TOOL_CALL_RESULT", messageId="t", toolCallId="c1", content="done")))

    async def act(session: RuntimeHarness) -> None:
        await session.say("Hi")
        assert [request.tool for request in await session.find(ApprovalRequest)] == ["delete"]
        await session.restart()
        await session.answer("c1", answer)

    talk(peer, act)
    assert peer.bodies[1]["resume"] == [{"interruptId": "i-c1", "status": "resolved", "payload": payload}]


def test_question_for_a_value_is_resumed_with_it() -> None:
    first = run(*call("c1"), outcome=ask("c1", reason="input_required", message="Which one?"))
    peer = Peer(first, run(*say("Done.")))

    async def act(session: RuntimeHarness) -> None:
        await session.say("Hi")
        await session.answer("c1", {"city": "Oslo"})

    talk(peer, act)
    [entry] = peer.bodies[1]["resume"]
    assert (entry["interruptId"], entry["status"]) == ("i-c1", "resolved")
    assert entry["payload"] == {"city": "Oslo"}


def test_decisions_of_langgraph_are_one_list() -> None:
    actions = [{"name": "delete", "args": {"p": number}} for number in (1, 2)]
    metadata = {"langgraph": {"raw": {"action_requests": actions}}}
    outcome = {"type": "interrupt", "interrupts": [{"id": "i1", "metadata": metadata}]}
    first = run(*call("c1", "delete", '{"p": 1}'), *call("c2", "delete", '{"p": 2}'), outcome=outcome)
    peer = Peer(first, run(*say("Done.")))

    async def act(session: RuntimeHarness) -> None:
        await session.say("Hi")
        await session.answer("c2", False)
        await session.answer("c1", True)

    talk(peer, act, history="thread")
    [entry] = peer.bodies[1]["resume"]
    assert entry["payload"] == {
        "decisions": [{"type": "approve"}, {"type": "reject", "message": "a person said no"}]
    }


def test_question_of_a_custom_event_is_resumed_by_a_command() -> None:
    custom = event("CUSTOM", name="on_interrupt", value="Which one?")
    peer = Peer(run(custom), run(*say("Done.")))

    async def act(session: RuntimeHarness) -> None:
        await session.say("Hi")
        [question] = await session.find(ToolAwait)
        await session.answer(question.calls[0].call_id, "Oslo")

    talk(peer, act, forwarded_props={"plan": "pro"})
    assert peer.bodies[1]["forwardedProps"] == {"plan": "pro", "command": {"resume": "Oslo"}}
    assert "resume" not in peer.bodies[1]


def test_message_instead_of_an_answer_closes_the_calls_in_the_history() -> None:
    first = run(*call("c1", "delete"), outcome=ask("c1", reason="tool_call"))
    peer = Peer(first, run(*say("Fine.")))

    async def act(session: RuntimeHarness) -> None:
        await session.say("Hi")
        await session.say("Never mind")
        assert (await session.end_of("Lead")).result == "Fine."

    talk(peer, act)
    assert roles(peer.bodies[1]) == ["user", "assistant", "tool", "user"]
    assert peer.bodies[1]["messages"][2]["error"]
    assert "resume" not in peer.bodies[1]


def test_message_instead_of_an_answer_is_denied_first_if_the_server_keeps_the_thread() -> None:
    first = run(*call("c1", "delete"), *call("c2"), outcome=ask("c1", reason="input_required"))
    denied = event("TOOL_CALL_RESULT", messageId="t1", toolCallId="c1", content="cancelled")
    peer = Peer(first, run(denied, *say("I see. ")), run(*say("Fine.", "m2")))

    async def act(session: RuntimeHarness) -> None:
        await session.say("Hi")
        await session.say("Never mind")
        assert (await session.end_of("Lead")).result == "Fine."

    talk(peer, act, history="thread", tools=[confirm])
    assert peer.bodies[1]["resume"] == [{"interruptId": "i-c1", "status": "cancelled"}]
    assert [roles(body) for body in peer.bodies] == [["user"], ["tool"], ["user"]]


def test_call_that_a_failed_run_left_open_is_closed_before_the_next_message() -> None:
    failed = [event("RUN_STARTED"), *call("c1", "look"), event("RUN_ERROR", message="No ink.")]
    for history, expected in (
        ("messages", ["user", "assistant", "tool", "user"]),
        ("thread", ["tool", "user"]),
    ):
        peer = Peer(failed, run(*say("Fine.")))

        async def act(session: RuntimeHarness) -> None:
            await session.say("Hi")
            await session.restart()
            await session.say("Again")

        talk(peer, act, history=history)
        assert roles(peer.bodies[1]) == expected


def test_calls_of_a_stopped_turn_are_not_reported_again_by_a_server_that_keeps_the_thread() -> None:
    asking = run(*call("c1", "delete"), *call("c2", "look"), outcome=ask("c1", reason="tool_call"))
    denied = event("TOOL_CALL_RESULT", messageId="t1", toolCallId="c1", content="denied")
    peer = Peer(asking, run(*call("c1", "delete"), *call("c2", "look"), denied), run(*say("Fine.")))

    async def act(session: RuntimeHarness) -> None:
        await session.say("Hi")
        await session.stop()
        await session.restart()
        await session.say("Again")
        assert [item.call_id for item in await session.find(ToolCall)] == ["c1", "c2"]

    talk(peer, act, history="thread")
    assert peer.bodies[1]["resume"][0]["payload"]["approved"] is False


# stops and failures


def test_stop_closes_the_request_and_keeps_the_partial_text() -> None:
    closed = asyncio.Event()
    peer = Peer(
        hang_after(event("RUN_STARTED"), *say("I was about ")[:2], closed=closed), run(*say("Yes.", "m2"))
    )

    async def act(session: RuntimeHarness) -> None:
        await session.send("Hi")
        await session.wait_for_text("I was about ")
        await session.stop()
        await closed.wait()
        [end] = [end for end in await session.find(BlockEnd) if end.status == "aborted"]
        assert end.text == "I was about "
        await session.say("Again")

    talk(peer, act)
    assert [message["content"] for message in peer.bodies[1]["messages"]] == ["Hi", "I was about ", "Again"]


def test_response_is_closed_after_the_end_of_the_run() -> None:
    closed = asyncio.Event()
    peer = Peer(hang_after(*run(*say("Hello.")), closed=closed))

    async def act(session: RuntimeHarness) -> None:
        await session.say("Hi")
        await closed.wait()

    talk(peer, act)


@pytest.mark.parametrize(
    ("answer", "problem"),
    [
        ([event("RUN_STARTED"), *say("Hello.")], "the stream ended before the end of its run"),
        ([event("RUN_STARTED"), event("RUN_ERROR", message="No ink.", code="ink")], "ink: No ink."),
        (respond(b"{}", 500), "expected status 200, got 500"),
        (respond(b"{}", content_type="application/json"), "expected text/event-stream"),
        (respond(b"x", content_encoding="gzip"), "without compression"),
        (respond(b"data: {]\n\n"), "expected an event of AG-UI"),
        (respond(b"data: [1]\n\n"), "expected an event of AG-UI"),
        (respond(b"data: [DONE]\n\n"), "expected an event of AG-UI"),
        (
            respond(encode(event("CUSTOM", name="x", value=None)).replace(b"null", b"[" * 40 + b"]" * 40)),
            "levels",
        ),
        (
            respond(b'data: {"type": "CUSTOM", "value": ' + b"[" * 9000 + b"]" * 9000 + b"}\n\n"),
            "expected an event",
        ),
        (respond(b"", 302, location="/other"), "expected status 200, got 302"),
        (respond(b"", 307, location="//127.0.0.2:9/agent"), "expected no redirect to another origin"),
        (respond(b"", 307, location="https://127.0.0.1/agent"), "expected no redirect to another origin"),
    ],
)
def test_server_that_breaks_the_protocol_fails_the_turn(
    answer: Any, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    peer = Peer(answer, run(*say("Fine.", "m2")))

    async def act(session: RuntimeHarness) -> None:
        await session.say("Hi")
        assert [error.code for error in await session.find(SessionError)] == ["agent_failed"]
        await session.say("Again")
        assert [end.stop_reason for end in await session.find(AgentEnd)] == ["error", "end_turn"]

    talk(peer, act)
    assert problem in failure_text(caplog)
    assert len(peer.bodies) == 2


def failure_text(caplog: pytest.LogCaptureFixture) -> str:
    """Return the text of the error that failed a turn, which members do not read."""
    [record] = [record for record in caplog.records if record.name == "turnlog.agents"]
    assert record.exc_info is not None
    return str(record.exc_info[1])


def test_server_that_cannot_be_reached_fails_the_turn() -> None:
    async def scenario() -> None:
        listener = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
        port = listener.sockets[0].getsockname()[1]
        listener.close()
        await listener.wait_closed()
        events = [entry async for entry in adapters.ag_ui(f"http://127.0.0.1:{port}/").run("Hi")]
        ends = [entry.payload for entry in events if isinstance(entry.payload, AgentEnd)]
        assert [end.stop_reason for end in ends] == ["error"]

    asyncio.run(scenario())


def test_silent_server_fails_the_turn() -> None:
    closed = asyncio.Event()
    peer = Peer(hang_after(event("RUN_STARTED"), closed=closed))

    async def act(session: RuntimeHarness) -> None:
        await session.say("Hi")
        assert (await session.end_of("Lead")).stop_reason == "error"
        await closed.wait()

    talk(peer, act, silence_timeout_s=0.1)


# redirects


def test_redirect_within_the_origin_is_followed() -> None:
    peer = Peer(
        respond(b"", 307, location="/agent/"), respond(b"", 308, location="../run?x=1"), run(*say("Hello."))
    )

    async def act(session: RuntimeHarness) -> None:
        await session.say("Hi")
        assert [message.text for message in await session.find(AssistantMessage)] == ["Hello."]

    talk(peer, act, token="secret")
    assert [headers["authorization"] for headers in peer.headers] == ["Bearer secret"] * 3
    assert peer.bodies[0] == peer.bodies[2]


def test_redirects_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    peer = Peer(*[respond(b"", 307, location="/again")] * 9)

    async def act(session: RuntimeHarness) -> None:
        await session.say("Hi")

    talk(peer, act)
    assert len(peer.bodies) == ag_ui_request.MAX_REDIRECTS + 1
    assert "redirects" in failure_text(caplog)


@pytest.mark.parametrize("is_defended", [True, False])
def test_redirect_to_another_origin_gets_nothing(is_defended: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """With an HTTP client that follows redirects the other server gets the message: the control."""
    other = Peer(run(*say("Thank you.")))
    if not is_defended:
        open_client = ServerClient._open_client

        def open_following(client: ServerClient) -> Any:
            opened = open_client(client)
            opened.follow_redirects = True
            return opened

        monkeypatch.setattr(ServerClient, "_open_client", open_following)

    async def scenario() -> None:
        async with asyncio.timeout(60), LoopbackServers() as servers:
            other_url = servers.start(other.application)
            url = servers.start(Peer(respond(b"", 307, location=f"{other_url}/agent")).application)
            endpoint = AgUiEndpoint(f"{url}/agent", "secret", {}, 60.0)
            with suppress(PeerError):
                [event async for event in endpoint.run(Part("sess_1"), {"messages": ["private"]})]

    asyncio.run(scenario())
    assert bool(other.bodies) == (not is_defended)
