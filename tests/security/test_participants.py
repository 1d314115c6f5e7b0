"""Row 42: a guest's traffic has the conversation, and nothing of how the application works."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import ClassVar

import pytest

from tests.security.desk import Desk, desk, run
from tests.support.invitations import FORM, redemption
from turnlog import Agent, App, Vocabulary, tool
from turnlog.agents import Scripted, ToolContext, ToolUse, WaitForInput
from turnlog.agents.models.scripted import Emit, ScriptPart, Thinking
from turnlog.agents.tools import ImageContent
from turnlog.app import Roles
from turnlog.app.app import EVERYTHING, RoleView
from turnlog.events import Payload
from turnlog.events.payload import ANY_ORIGIN
from turnlog.state.history import Message
from turnlog.wire.sse import Decoder

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 32
DIALECTS = ("turnlog", "blocks", "blocks-xml", "blocks-raw", "office", "agentic", "ag-ui", "ai-sdk")
# Every text of an internal event, and the types that no participant gets.
INTERNAL = (
    "hidden",
    "look_up",
    "agent.usage",
    "process.start",
    "process_start",
    "session.invite",
    "assistant.thinking",
    "case.finding",
    '"model":"scripted"',
)
SHOWN = "Lissabon"  # one word: a dialect may cut a text between words


class Finding(Payload, frozen=True, kw_only=True):
    """The application has found something out."""

    ORIGINS: ClassVar = ANY_ORIGIN
    EXAMPLE: ClassVar = {"text": "late"}

    text: str


class Promise(Payload, frozen=True, kw_only=True):
    """The application promises something to the customer."""

    ORIGINS: ClassVar = ANY_ORIGIN
    EXAMPLE: ClassVar = {"day": "Monday"}

    day: str


@tool
def look_up(key: str) -> ImageContent:
    """Look something up."""
    return ImageContent(PNG, "image/png")


@tool
def recall(text: str) -> str:
    """What a document says."""
    return f"hidden result of {text}"


@tool(executor="frontend")
def confirm(question: str) -> bool:
    """Ask the page."""
    raise NotImplementedError


@tool(executor="frontend", roles=("clerk",))
def ask_clerk(question: str) -> str:
    """Ask a clerk."""
    raise NotImplementedError


@tool(roles=("clerk",))
def read_file(context: ToolContext) -> str:
    """Ask a clerk for a number."""
    if context.values is None:
        raise WaitForInput({"number": {"type": "field.text", "label": "Number"}})
    return "read"


def child_script(messages: list[Message]) -> Iterator[ScriptPart]:
    yield "hidden words of a called agent"


def script(messages: list[Message]) -> Iterator[ScriptPart]:
    last = messages[-1].content[-1]
    if last["type"] == "tool_result":
        yield Thinking("hidden thought after the result")
        yield SHOWN
        yield Emit(Finding(text="hidden finding"))
        yield Emit(Promise(day="Monday"))
    elif last.get("text") == "ask me":
        yield ToolUse("confirm", {"question": "Is it yours?"})
    elif last.get("text") == "ask a clerk":
        yield ToolUse("ask_clerk", {"question": "hidden question"})
    elif last.get("text") == "ask for a number":
        yield ToolUse("read_file", {})
    else:
        yield Thinking("hidden thought")
        yield ToolUse("look_up", {"key": "hidden argument"})
        yield ToolUse("recall", {"text": "hidden argument"})
        yield ToolUse("courier", {"prompt": "hidden prompt"})


def make(roles: Roles = Roles()) -> App:  # noqa: B008
    courier = Agent("Courier", "hidden instructions", Scripted(child_script))
    clerk = Agent(
        "Clerk",
        "hidden instructions",
        Scripted(script),
        tools=[look_up, recall, confirm, ask_clerk, read_file],
        agents=[courier],
    )
    return App(
        "parcels",
        clerk,
        vocabulary=Vocabulary("case", [Finding, Promise]),
        reducers={Finding: lambda state, payload, _: {**state, "finding": payload.text}},
        roles=roles,
    )


OPEN = make(Roles(event_views={"guest": EVERYTHING}))


class Guest:
    """A guest of ada's session who came by a link."""

    def __init__(self, at: Desk, session: str, headers: dict[str, str]) -> None:
        self.at = at
        self.session = session
        self.headers = headers

    async def get(self, path: str) -> bytes:
        answer = await self.at.ask(None, "GET", path, None, self.headers)
        assert answer.status in (200, 204), (path, answer.body)
        return answer.body

    async def stream(self, query: str) -> bytes:
        """A whole stream of a session that is closed."""
        call = self.at.call(None, "GET", f"/api/events?session={self.session}{query}", None, self.headers)
        return (await call.end()).body

    async def close(self) -> None:
        closed = await self.at.post("ada", "/api/sessions/close", {"session": self.session})
        assert closed.status == 204, closed.body

    async def post(self, path: str, body: object) -> bytes:
        answer = await self.at.ask(None, "POST", path, body, self.headers)
        assert answer.status in (200, 202), (path, answer.body)
        return answer.body


@asynccontextmanager
async def guest_of(app: App, *others: App) -> AsyncIterator[Guest]:
    """A guest in a session in which one turn is over."""
    async with desk([app, *others]) as at:
        session = await at.session("ada", app.name)
        link = await at.post("ada", "/api/links", {"session": session, "roles": ["guest"]})
        path, body = redemption(link.value["path"])
        redeemed = await at.ask(None, "POST", path, body, {"content-type": FORM})
        assert redeemed.header("location") == f"/talk/{session}"
        headers = {"cookie": redeemed.header("set-cookie").partition(";")[0]}
        await at.post("ada", "/api/links", {"session": session, "roles": ["guest"], "name": "hidden name"})
        await at.send("ada", session, "Where is it?")
        await at.told("ada", session, "agent.end", 2)
        yield Guest(at, session, headers)


async def read_everything(guest: Guest) -> dict[str, bytes]:
    """Return what a guest gets from every route that has something of the session."""
    session = guest.session
    [turn] = {event["trace_id"] for event in await guest.at.told("ada", session, "agent.start", 2)}
    options = "&stream_meta_history_and_tool_results=true"
    bodies = {
        "turn": await guest.get(f"/api/events?session={session}&turn={turn}"),
        "turn in blocks": await guest.get(f"/api/events?session={session}&turn={turn}&dialect=blocks"),
        "state": await guest.get(f"/api/state?session={session}&include=transcript,meters,open,roster"),
        "state before": await guest.get(f"/api/state?session={session}&at=5"),
        "sessions": await guest.get(f"/api/sessions?session={session}"),
        "me": await guest.get("/api/me"),
        "capabilities": await guest.get("/ag-ui/parcels/capabilities"),
        "ag-ui attached": await guest.get(f"/ag-ui/parcels/{session}"),
        "ai-sdk messages": await guest.get(f"/ai-sdk/parcels/chat/{session}"),
        "ai-sdk stream": await guest.get(f"/ai-sdk/parcels/chat/{session}/stream"),
        "chat": await guest.post("/api/chat/guest", {"sessionId": session, "userMessage": "And now?"}),
        "run": await guest.post("/agent/run", {"agent_uuid": session, "user_prompt": "And now?"}),
        "ag-ui run": await guest.post("/ag-ui/parcels", ag_ui_body(session)),
        "ai-sdk run": await guest.post("/ai-sdk/parcels/chat", ai_sdk_body(session)),
    }
    await guest.close()
    bodies |= {dialect: await guest.stream(f"&dialect={dialect}") for dialect in DIALECTS}
    return bodies | {
        "history": await guest.stream(f"&dialect=blocks{options}"),
        "types": await guest.stream("&types=assistant,tool,agent,block"),
        "log": await guest.get(f"/api/log?session={session}"),
        "log from inside": await guest.get(f"/api/log?session={session}&after=6"),
        "documents": await guest.get(f"/api/documents?session={session}"),
        "apps": await guest.get("/api/apps"),
        "durable stream, live": await guest.get(f"/v1/stream/{session}?offset=-1&live=sse"),
        "durable stream": await guest.get(f"/v1/stream/{session}?offset=-1"),
    }


def ag_ui_body(session: str) -> dict[str, object]:
    message = {"id": "m1", "role": "user", "content": "And now?"}
    return {"threadId": session, "runId": "run-1", "messages": [message], "protocolVersion": "1.0"}


def ai_sdk_body(session: str) -> dict[str, object]:
    return {
        "id": session,
        "messages": [{"id": "m2", "role": "user", "parts": [{"type": "text", "text": "Hm?"}]}],
    }


def internals_in(body: bytes) -> list[str]:
    return [word for word in INTERNAL if word.encode() in body]


# What has no words of agents.
SILENT = {"state before", "documents", "sessions", "apps", "me", "capabilities"}


def test_a_guest_gets_no_internal_event_on_any_way() -> None:
    async def scenario() -> None:
        async with guest_of(make()) as guest:
            bodies = await read_everything(guest)
            assert {name: internals_in(body) for name, body in bodies.items() if internals_in(body)} == {}
            silent = [name for name, body in bodies.items() if SHOWN.encode() not in body]
            assert set(silent) <= SILENT

    run(scenario())


def test_control_a_guest_whose_role_sees_everything_gets_internal_events() -> None:
    async def scenario() -> None:
        async with guest_of(OPEN) as guest:
            bodies = await read_everything(guest)
            leaking = {name for name, body in bodies.items() if internals_in(body)}
            # An export from a cursor has the rest, and a list of sessions has no events.
            assert bodies.keys() - leaking <= {"sessions", "ai-sdk stream", "state before", "me"}

    run(scenario())


def test_a_member_with_a_token_and_a_normal_role_sees_what_it_saw() -> None:
    async def scenario() -> None:
        async with guest_of(make()) as guest:
            at, session = guest.at, guest.session
            await at.enrol("ada", session, "bob", "owner")
            stored = await at.get("ada", f"/api/log?session={session}")
            assert (await at.get("bob", f"/api/log?session={session}")).body == stored.body
            assert internals_in(stored.body)

    run(scenario())


def test_an_application_chooses_which_of_its_events_a_role_sees() -> None:
    async def scenario() -> None:
        roles = Roles(
            event_views={"guest": RoleView(events=[Promise])},
            state_views={"guest": lambda state: {"known": len(state)}},
        )
        async with guest_of(make(roles)) as guest:
            lines = (await guest.get(f"/api/log?session={guest.session}")).split(b"\n")[1:]
            types = [json.loads(line)["type"] for line in lines if line]
            assert "case.promise" in types
            assert "case.finding" not in types
            state = json.loads(await guest.get(f"/api/state?session={guest.session}"))
            assert state["state"] == {"known": 1}

    run(scenario())


def test_a_guest_learns_of_the_applications_of_its_sessions_only() -> None:
    async def scenario() -> None:
        other = App("hidden-application", Agent("Judge", "Judge.", Scripted(child_script)))
        async with guest_of(make(), other) as guest:
            for path in ("/api/apps", "/api/me"):
                assert b"parcels" in await guest.get(path)
                assert b"hidden-application" not in await guest.get(path)
                assert b"hidden-application" in (await guest.at.get("ada", path)).body
            path = "/ag-ui/hidden-application/capabilities"
            assert (await guest.at.ask(None, "GET", path, None, guest.headers)).status == 404
            assert (await guest.at.get("ada", path)).status == 200

    run(scenario())


def test_a_guest_reads_the_blobs_of_the_conversation_only() -> None:
    async def scenario() -> None:
        async with guest_of(make()) as guest:
            at, session = guest.at, guest.session
            [result] = [
                event
                for event in await at.told("ada", session, "tool.result", 3)
                if event["payload"].get("images")
            ]
            src = "/" + result["payload"]["images"][0]["src"]
            assert (await at.get("ada", src)).status == 200
            assert (await at.ask(None, "GET", src, None, guest.headers)).status == 404

    run(scenario())


def test_control_a_guest_whose_role_sees_everything_reads_every_blob() -> None:
    async def scenario() -> None:
        async with guest_of(OPEN) as guest:
            results = await guest.at.told("ada", guest.session, "tool.result", 3)
            [src] = [image["src"] for event in results for image in event["payload"].get("images", ())]
            assert (await guest.at.ask(None, "GET", f"/{src}", None, guest.headers)).status == 200

    run(scenario())


@pytest.mark.parametrize("dialect", ["turnlog", "blocks"])
def test_a_guest_resumes_at_every_cursor_and_gets_the_rest(dialect: str) -> None:
    async def scenario() -> None:
        async with guest_of(make()) as guest:
            await guest.close()
            whole = parse_stream(await guest.stream(f"&dialect={dialect}"))
            assert len(whole) > 3
            for index, (cursor, _) in enumerate(whole[:-1]):
                rest = parse_stream(await guest.stream(f"&dialect={dialect}&after={cursor}"))
                assert without_deltas(rest) == without_deltas(whole[index + 1 :]), cursor

    run(scenario())


def parse_stream(body: bytes) -> list[tuple[str, str]]:
    """The cursor and the data of each message that has both."""
    return [(item.id, item.data) for item in Decoder().feed(body) if item.id and item.event == "message"]


def without_deltas(items: list[tuple[str, str]]) -> list[tuple[str, str]]:
    """A reader that comes inside a block gets its deltas again, one by one."""
    return [item for item in items if '"type":"block.delta"' not in item[1]]


def test_a_guest_that_comes_in_mid_sentence_gets_the_rest_of_the_text_and_no_thought() -> None:
    async def scenario() -> None:
        begun = asyncio.Event()

        def talk(messages: list[Message]) -> Iterator[ScriptPart]:
            yield Thinking("hidden " * 200)
            begun.set()
            yield "word " * 200

        agent = Agent("Clerk", "Talk.", Scripted(talk, word_delay_s=0.002))
        async with desk(App("parcels", agent)) as at:
            session = await at.session("ada", "parcels")
            link = await at.post("ada", "/api/links", {"session": session, "roles": ["guest"]})
            path, body = redemption(link.value["path"])
            redeemed = await at.ask(None, "POST", path, body, {"content-type": FORM})
            headers = {"cookie": redeemed.header("set-cookie").partition(";")[0]}
            await at.send("ada", session, "Talk.")
            await begun.wait()
            call = at.call(None, "GET", f"/api/events?session={session}&after=end", None, headers)
            await call.until(lambda answer: b'"type":"agent.end"' in answer.body)
            text = (await call.leave()).body
            assert b"hidden" not in text
            deltas = [
                event
                for event in (json.loads(data) for _, data in parse_stream(text))
                if event["type"] == "block.delta"
            ]
            assert deltas, "the deltas of the open text"

    run(scenario())


async def answer_as_clerk(guest: Guest) -> bytes:
    """Let a clerk answer two questions; return the log that the guest gets."""
    at, session = guest.at, guest.session
    await at.enrol("ada", session, "bob", "clerk")
    await at.send("bob", session, "ask a clerk")
    [asked] = (await at.told("ada", session, "tool.await", 1))[0]["payload"]["calls"]
    result = {"call_id": asked["call_id"], "tool": "ask_clerk", "ok": True, "result": "hidden answer"}
    event = {"type": "tool.result", "payload": result}
    assert (await at.post("bob", "/api/events", {"session": session, "events": [event]})).status == 202
    await at.told("ada", session, "agent.end", 3)
    await at.send("bob", session, "ask for a number")
    [asked] = (await at.told("ada", session, "tool.await", 2))[1]["payload"]["calls"]
    action = {"kind": "input.submit", "values": {"number": "hidden number"}}
    event = {"type": "ui.action", "payload": {"action": action, "call_id": asked["call_id"]}}
    assert (await at.post("bob", "/api/events", {"session": session, "events": [event]})).status == 202
    await at.told("ada", session, "agent.end", 4)
    return await guest.get(f"/api/log?session={session}")


def test_a_guest_gets_no_question_and_no_answer_of_another_role() -> None:
    async def scenario() -> None:
        async with guest_of(make()) as guest:
            body = await answer_as_clerk(guest)
            assert b"ask a clerk" in body
            assert internals_in(body) == []

    run(scenario())


def test_control_a_guest_whose_role_sees_everything_gets_questions_of_another_role() -> None:
    async def scenario() -> None:
        async with guest_of(OPEN) as guest:
            body = await answer_as_clerk(guest)
            assert b"hidden question" in body
            assert b"hidden answer" in body
            assert b"hidden number" in body

    run(scenario())


def test_a_guest_gets_a_question_to_the_page_and_answers_it() -> None:
    async def scenario() -> None:
        async with guest_of(make()) as guest:
            session = guest.session
            await guest.post("/api/send", {"session": session, "message": "ask me"})
            call = guest.at.call(None, "GET", f"/api/events?session={session}", None, guest.headers)
            answer = await call.until(lambda answer: b"tool.await" in answer.body)
            [question] = [event for event in answer.events if event["type"] == "tool.await"]
            await call.leave()
            [asked] = question["payload"]["calls"]
            assert asked["args"] == {"question": "Is it yours?"}
            result = {"call_id": asked["call_id"], "tool": "confirm", "ok": True, "result": True}
            await guest.post(
                "/api/events", {"session": session, "events": [{"type": "tool.result", "payload": result}]}
            )
            lines = (await guest.get(f"/api/log?session={session}")).split(b"\n")
            results = [json.loads(line)["payload"] for line in lines if b'"tool.result"' in line]
            assert results[-1]["result"] is True

    run(scenario())
