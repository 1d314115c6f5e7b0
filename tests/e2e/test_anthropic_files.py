"""Files that tools of the provider made, through the real `anthropic` client: kept in the log, with names."""

import asyncio
import json
from typing import Any

import anthropic

from tests.e2e.provider import Answer, Provider, refusing, serving, whole
from tests.e2e.talk import KEY, WAIT_S, block, message, text
from turnlog import Agent
from turnlog.agents import AnthropicModel
from turnlog.agents.models.files import MAX_FILE_BYTES
from turnlog.events import CATALOG, AssistantFiles, decode_envelope
from turnlog.events.assistant import File
from turnlog.log import Log, MemoryStore, envelope_json

ABOUT = {"created_at": "2026-01-08T12:00:00Z", "type": "file", "mime_type": "application/pdf"}


def making(*names: str) -> Answer:
    """An answer whose code has made files."""
    outputs = [{"type": "code_execution_output", "file_id": name} for name in names]
    result = {
        "type": "code_execution_result",
        "stdout": "",
        "stderr": "",
        "return_code": 0,
        "content": outputs,
    }
    use = {"type": "server_tool_use", "id": "srv_1", "name": "code_execution", "input": {}}
    made = {"type": "code_execution_tool_result", "tool_use_id": "srv_1", "content": result}
    return whole(message(block(0, use), block(1, made), text("Here it is.", index=2)))


def about(name: str, filename: str, size: int = 4, **more: Any) -> Answer:
    said = {**ABOUT, "id": name, "filename": filename, "size_bytes": size, **more}
    return refusing(200, json.dumps(said).encode(), "content-type: application/json\r\n")


def played(*answers: Answer) -> tuple[list[File], str, dict[str, bytes], Provider]:
    """A turn: its files as the log has them, what was said, the blobs, and what the provider was asked."""

    async def play() -> tuple[list[File], str, dict[str, bytes], Provider]:
        async with serving(*answers) as provider, asyncio.timeout(WAIT_S):
            client = anthropic.AsyncAnthropic(base_url=provider.url, api_key=KEY, timeout=WAIT_S)
            async with client:
                log = Log(MemoryStore())
                session = await log.create("t")
                model = AnthropicModel("claude-test", client=client)
                said = await Agent("Guide", "Draw.", model).ask("Go", log=log, session_id=session)
                payloads = [
                    CATALOG.decode_payload(decode_envelope(envelope_json(row)))
                    for row in await log.read(session)
                ]
                files = [file for one in payloads if isinstance(one, AssistantFiles) for file in one.files]
                places = [file.storage_location for file in files]
                names = [place.removeprefix("api/blobs/") for place in places if place.startswith("api/")]
                blobs = {name: (await log.get_blob(name)).data for name in names}
                assert all(name.startswith(f"{session}/") for name in names)
                await log.close()
                return files, said, blobs, provider

    return asyncio.run(play())


def test_a_file_has_its_name_and_can_be_had_without_the_providers_key() -> None:
    [file], said, blobs, provider = played(
        making("file_1"), about("file_1", "report.pdf"), refusing(200, b"%PDF")
    )
    assert (file.file_id, file.filename, said) == ("file_1", "report.pdf", "Here it is.")
    assert blobs == {file.storage_location.removeprefix("api/blobs/"): b"%PDF"}
    assert [asked.path.partition("?")[0] for asked in provider.asked[1:]] == [
        "/v1/files/file_1",
        "/v1/files/file_1/content",
    ]


def test_what_cannot_be_fetched_stays_with_the_provider_and_the_answer_goes_on() -> None:
    files, said, blobs, _ = played(
        making("gone", "large", "held", "broken"),
        refusing(404),
        about("large", "large.bin", MAX_FILE_BYTES + 1),
        about("held", "mine.txt", downloadable=False),
        about("broken", "b" * 300),
        refusing(500),
    )
    assert [(file.filename, file.storage_location) for file in files] == [
        ("gone", "provider:gone"),
        ("large.bin", "provider:large"),
        ("mine.txt", "provider:held"),
        ("b" * 255, "provider:broken"),
    ]
    assert (said, blobs) == ("Here it is.", {})
