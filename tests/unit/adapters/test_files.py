"""Files of a message reach agents of other frameworks and a Claude Code process, beside the text.

That they reach the model, and are remembered, is in the contract of runtimes; here is the form of each.
"""

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from ag_ui.core import UserMessage
from agents import Agent as OpenAiAgent
from claude_agent_sdk import ClaudeAgentOptions
from langchain_core.messages import HumanMessage
from langgraph.graph import END, START, MessagesState, StateGraph
from pydantic_ai import Agent, BinaryContent
from pydantic_ai.conversation import Conversation
from pydantic_ai.messages import ModelMessage, ModelRequest, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from tests.support.claude_sessions import make_app, played, room
from tests.support.runtimes.openai_agents import ScriptedModel
from tests.support.scripted_claude import LineClaude
from tests.unit.adapters.ag_ui_peer import Peer, run, talk
from tests.unit.app.desk import ADA, desk, play
from turnlog import App, adapters
from turnlog.adapters import Part, ag_ui_thread, openai_agents_files, pydantic_ai_runner
from turnlog.adapters.ag_ui_thread import ClientThread, StoredThread, trim_history
from turnlog.adapters.claude_sdk_prompt import make_claude_block
from turnlog.adapters.openai_agents_files import detach_files, make_file_item, restore_files
from turnlog.adapters.openai_agents_runner import SavedRun, read_saved_run
from turnlog.adapters.part_files import DROPPED_TEXT, PartFile, read_part_files
from turnlog.adapters.pydantic_ai_runner import decode_conversation, dump_conversation
from turnlog.agents.blob_urls import blob_url
from turnlog.events import UiMessage
from turnlog.events.content import PromptDocument, PromptImage, PromptPart, PromptText
from turnlog.log import Log, MemoryStore
from turnlog.testing.runtimes import AgentScript, ScriptRecord
from turnlog.testing.runtimes.files import BILL, FILES, PLAN, TRIP
from turnlog.testing.runtimes.files import TEXT as TRIP_TEXT
from turnlog.testing.runtimes.harness import RuntimeHarness
from turnlog.testing.runtimes.talking import say_hello

PNG = b"\x89PNG\r\n\x1a\n"
TEXT = "Two tickets."


async def make_content(log: Log, session: str) -> tuple[PromptPart, ...]:
    image = blob_url(await log.put_blob(session, PNG, "image/png"))
    document = blob_url(await log.put_blob(session, TEXT.encode(), "text/plain"))
    return (
        PromptText(text="Look."),
        PromptImage(src=image, media_type="image/png", title="plan.png"),
        PromptDocument(src=document, media_type="text/plain", title="trip.txt"),
    )


async def send_files(app: App) -> None:
    """Send a message with two files, and wait until it is answered."""
    async with desk(app) as at:
        seat = await at.sessions.create(ADA)
        content = await make_content(at.log, seat.session_id)
        sent = await at.sessions.send(seat, UiMessage(text="Look.", content=content))
        await at.sessions.watches.wait_until_settled(seat.record, sent.turn, 1.0, lambda: None)


def test_pydantic_ai_gets_binary_content() -> None:
    seen: list[Any] = []

    async def stream(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[str]:
        for message in messages:
            if isinstance(message, ModelRequest):
                seen.extend(part.content for part in message.parts if isinstance(part, UserPromptPart))
        yield "Seen."

    agent = Agent(FunctionModel(stream_function=stream), name="Lead")
    play(lambda: send_files(App("desk", adapters.pydantic_ai(agent))))
    [[text, image, document]] = seen
    assert text == "Look.\n[image: plan.png]\n[document: trip.txt]"
    assert isinstance(image, BinaryContent)
    assert (image.data, image.media_type) == (PNG, "image/png")
    assert (document.data, document.media_type) == (TEXT.encode(), "text/plain")


def test_langgraph_gets_content_blocks() -> None:
    seen: list[Any] = []

    async def answer(state: MessagesState) -> dict[str, Any]:
        seen.extend(message.content for message in state["messages"] if isinstance(message, HumanMessage))
        return {}

    builder = StateGraph(MessagesState)
    builder.add_node("answer", answer)
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    play(lambda: send_files(App("desk", adapters.langgraph(builder.compile(), name="Lead"))))
    [blocks] = seen
    assert blocks == [
        {"type": "text", "text": "Look.\n[image: plan.png]\n[document: trip.txt]"},
        {"type": "image", "base64": b64encode(PNG).decode(), "mime_type": "image/png"},
        {"type": "text", "text": f"trip.txt:\n{TEXT}"},
    ]


class EchoClaude(LineClaude):
    """Keeps the contents of the messages that it gets."""

    def __init__(self, contents: list[Any]) -> None:
        super().__init__(str(uuid4()))
        self._contents = contents

    async def play_turn(self, content: Any) -> None:
        self._contents.append(content)
        self.write_init()
        self.write_result()


def test_claude_sdk_gets_content_blocks() -> None:
    contents: list[Any] = []
    agent = adapters.claude_sdk(ClaudeAgentOptions(), make_transport=lambda _: EchoClaude(contents))
    play(lambda: send_files(App("desk", agent)))
    image = {"type": "base64", "media_type": "image/png", "data": b64encode(PNG).decode()}
    text = {"type": "text", "media_type": "text/plain", "data": TEXT}
    assert contents == [
        [
            {"type": "text", "text": "Look.\n[image: plan.png]\n[document: trip.txt]"},
            {"type": "image", "source": image},
            {"type": "document", "source": text, "title": "trip.txt"},
        ]
    ]


def test_claude_sdk_gets_the_reason_in_place_of_an_image_that_its_model_refuses() -> None:
    vector = PartFile("plan.svg", "image/svg+xml", b"<svg/>")
    reason = "[an image of type image/svg+xml, which cannot be shown]"
    assert make_claude_block(vector) == {"type": "text", "text": reason}
    pdf = make_claude_block(PartFile("", "application/pdf", b"%PDF-"))
    source = {"type": "base64", "media_type": "application/pdf", "data": b64encode(b"%PDF-").decode()}
    assert pdf == {"type": "document", "source": source}


def list_images(messages: list[ModelMessage]) -> list[Any]:
    """Return what is behind the text of each message: the bytes of an image, or a text in its place."""
    requests = [message for message in messages if isinstance(message, ModelRequest)]
    prompts = [part for request in requests for part in request.parts if isinstance(part, UserPromptPart)]
    items = [prompt.content[1] for prompt in prompts]
    return [item.data if isinstance(item, BinaryContent) else item for item in items]


def test_oldest_files_of_pydantic_ai_are_dropped_from_a_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pydantic_ai_runner, "MAX_SAVED_FILES_BYTES", 100)
    images = [bytes(size) for size in (60, 80, 20)]
    messages: list[ModelMessage] = [
        ModelRequest([UserPromptPart(["Look.", BinaryContent(image, media_type="image/png")])])
        for image in images
    ]
    kept = decode_conversation(dump_conversation(Conversation(messages=messages)))
    assert kept is not None
    assert list_images(kept.messages) == [DROPPED_TEXT, *images[1:]]
    assert list_images(messages) == images, "the run of the framework is left alone"


class Recorder(ScriptedModel):
    """A model that says hello, and keeps what it reads."""

    def __init__(self) -> None:
        super().__init__(AgentScript("Lead", say_hello), ScriptRecord())
        self.inputs: list[Any] = []

    async def stream_response(
        self, system_instructions: Any, input: Any, *args: Any, **options: Any
    ) -> AsyncIterator[Any]:
        self.inputs.append(input)
        async for event in super().stream_response(system_instructions, input, *args, **options):
            yield event


def test_openai_agents_get_images_and_files_as_content_items() -> None:
    model = Recorder()
    agent = OpenAiAgent(name="Lead", model=model)
    play(lambda: send_files(App("desk", adapters.openai_agents(agent))))
    [[message]] = model.inputs
    assert message == {
        "role": "user",
        "content": [
            {"type": "input_text", "text": "Look.\n[image: plan.png]\n[document: trip.txt]"},
            {"type": "input_image", "image_url": to_uri("image/png", PNG), "detail": "auto"},
            {"type": "input_text", "text": f"trip.txt:\n{TEXT}"},
        ],
    }
    pdf = PartFile("", "application/pdf", b"%PDF-")
    uri = to_uri("application/pdf", b"%PDF-")
    assert make_file_item(pdf) == {"type": "input_file", "filename": "file", "file_data": uri}


def to_uri(media_type: str, data: bytes) -> str:
    return f"data:{media_type};base64,{b64encode(data).decode()}"


def make_history(*sizes: int) -> list[Any]:
    """Return messages with one image each, of so many bytes."""
    uris = [to_uri("image/png", bytes([number]) * size) for number, size in enumerate(sizes)]
    return [{"role": "user", "content": [{"type": "input_image", "image_url": uri}]} for uri in uris]


def test_state_of_openai_agents_has_each_file_once_and_as_bytes() -> None:
    history = make_history(9000)
    # a run that waits has the history again, inside the framework's own state
    state = SavedRun(items=history, run={"original_input": make_history(9000), "deep": [{"x": history}]})
    saved = read_saved_run(state.dump())
    assert len(state.dump()) < 10_000
    assert len(saved.files) == 1
    assert restore_files(saved.items, saved.files) == history
    run_state = restore_files(saved.run, saved.files)
    assert run_state == {"original_input": history, "deep": [{"x": history}]}


def test_oldest_files_of_openai_agents_are_dropped_from_a_state(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(openai_agents_files, "MAX_SAVED_FILES_BYTES", 100)
    history = make_history(60, 80, 20)
    detached = detach_files([history])
    [items] = detached.values
    assert sum(len(file.data) for file in detached.files.values()) == 100
    assert items[0]["content"] == [{"type": "input_text", "text": DROPPED_TEXT}]
    assert restore_files(items, detached.files)[1:] == history[1:]
    assert history == make_history(60, 80, 20), "the run of the framework is left alone"


def test_addresses_that_are_no_data_stay_in_a_state() -> None:
    uris = ["https://example.org/a.png", "data:image/png,abc", "data:image/png;base64,?", "turnlog-file:1"]
    history = [{"type": "input_image", "image_url": uri} for uri in uris]
    detached = detach_files([history])
    assert detached == ([history], {})
    assert restore_files(history, {}) == history


# AG-UI


def send_to_peer(**options: Any) -> list[Any]:
    """Send a message with files, and one without. Return the messages of the second run."""
    peer = Peer(run(), run())

    async def act(session: RuntimeHarness) -> None:
        await session.say("Look.", FILES)
        await session.say("Again")

    talk(peer, act, **options)
    return list(peer.bodies[-1]["messages"])


LABELS = "Look.\n[image: plan.png]\n[document: bill.pdf]\n[document: trip.txt]"


def test_ag_ui_gets_media_parts() -> None:
    [first, again] = send_to_peer()
    [text, image, document, trip] = UserMessage.model_validate(first).model_dump(exclude_none=True)["content"]
    assert text == {"type": "text", "text": LABELS}
    source = {"type": "data", "value": b64encode(PLAN.data).decode(), "mime_type": "image/png"}
    assert image == {"type": "image", "source": source, "metadata": {"filename": "plan.png"}}
    assert document["type"] == "document"
    assert document["source"]["mime_type"] == BILL.media_type
    assert trip == {"type": "text", "text": f"{TRIP.name}:\n{TRIP_TEXT}"}
    assert again["content"] == "Again", "a message without files is a string"


def test_ag_ui_server_before_the_media_parts_gets_binary_parts_or_labels() -> None:
    [first, _] = send_to_peer(file_parts="binary")
    data = b64encode(PLAN.data).decode()
    assert first["content"][1] == {
        "type": "binary",
        "mimeType": "image/png",
        "data": data,
        "filename": "plan.png",
    }
    assert [part["type"] for part in first["content"]] == ["text", "binary", "binary", "text"]
    [first, _] = send_to_peer(file_parts="labels")
    assert first["content"] == LABELS


def test_ag_ui_server_that_keeps_the_thread_gets_the_files_once() -> None:
    [message] = send_to_peer(history="thread")
    assert message["content"] == "Again"


def make_message(number: int, size: int) -> Any:
    image = {"type": "image", "source": {"type": "data", "value": "x" * size, "mimeType": "image/png"}}
    content = [{"type": "text", "text": f"[image {number}]"}, image]
    return {"id": f"u{number}", "role": "user", "content": content}


def test_oldest_files_of_ag_ui_are_dropped_before_texts(monkeypatch: pytest.MonkeyPatch) -> None:
    messages = [make_message(number, 400) for number in range(4)]
    assert trim_history(messages) == messages
    monkeypatch.setattr(ag_ui_thread, "MAX_HISTORY_BYTES", 1500)
    kept = trim_history(messages)
    assert [message["id"] for message in kept] == ["u0", "u1", "u2", "u3"]
    assert [len(message["content"]) for message in kept] == [1, 1, 2, 2]
    result = {"id": "t", "role": "tool", "toolCallId": "c", "content": make_message(0, 2000)["content"][1:]}
    assert trim_history([result])[0]["content"] == DROPPED_TEXT


def test_files_of_the_last_message_are_always_sent_to_ag_ui(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ag_ui_thread, "MAX_HISTORY_BYTES", 600)
    thread = ClientThread(StoredThread(messages=[make_message(0, 400), make_message(1, 2000)]))
    assert [len(message["content"]) for message in thread.messages_to_send] == [1, 2]
    assert ClientThread(StoredThread()).messages_to_send == []


def test_a_claude_code_process_gets_content_blocks_in_its_line(tmp_path: Path) -> None:
    code = """
given = line()
init()
parts = json.dumps(given["message"]["content"])
say("assistant", message={"id": "m", "role": "assistant", "content": [{"type": "text", "text": parts}]})
say("result", subtype="success", is_error=False, result=parts)
line()
"""

    async def run() -> None:
        async with room(make_app(tmp_path, played(code))) as office:
            content = await make_content(office.desk.log, office.seat.session_id)
            sent = await office.desk.sessions.send(office.seat, UiMessage(text="Look.", content=content))
            await office.rests(sent.turn)
            [reply] = await office.bodies("assistant.message")
            image = {"type": "base64", "media_type": "image/png", "data": b64encode(PNG).decode()}
            text = {"type": "text", "media_type": "text/plain", "data": TEXT}
            assert json.loads(reply["text"]) == [
                {"type": "text", "text": "Look.\n[image: plan.png]\n[document: trip.txt]"},
                {"type": "image", "source": image},
                {"type": "document", "source": text, "title": "trip.txt"},
            ]

    play(run)


def test_a_file_that_is_gone_and_an_address_on_the_web_are_labels_only() -> None:
    async def scenario() -> None:
        log = Log(MemoryStore())
        session = await log.create("desk")
        [_, image, _] = await make_content(log, session)
        gone = PromptImage(src=f"api/blobs/{session}/{'0' * 64}")
        web = PromptImage(src="https://example.org/a.png")
        files = await read_part_files(log, [PromptText(text="Hi"), gone, web, image])
        assert files == (PartFile("plan.png", "image/png", PNG),)
        assert Part("sess_1", files=files).files[0].is_image
        await log.close()

    asyncio.run(scenario())
