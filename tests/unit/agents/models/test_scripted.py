"""The offline model: its script, part by part."""

import asyncio
from collections.abc import Callable
from itertools import count

import pytest

from turnlog.agents.models import (
    Cite,
    EndMessage,
    Fail,
    Files,
    Model,
    ModelError,
    ProviderCall,
    Request,
    Scripted,
    ScriptPart,
    Thinking,
    ToolUse,
    UsageReport,
)
from turnlog.events import (
    AssistantFiles,
    AssistantMessage,
    AssistantThinking,
    BlockDelta,
    Citation,
    ErrorInfo,
    File,
    ParseReject,
    Payload,
    ToolCall,
    ToolResult,
    Usage,
)
from turnlog.parse import blocks
from turnlog.parse.reply import ReplyBuilder
from turnlog.state.history import Message

SOURCE = Citation(type="char_location", cited_text="green", document_index=0)


def numbered() -> Callable[[str], str]:
    numbers = count(1)
    return lambda prefix: f"{prefix}{next(numbers)}"


async def streamed(model: Model, messages: list[Message], reply: ReplyBuilder) -> list[list[Payload]]:
    return [batch async for batch in model.stream(Request("Be brief.", messages), reply)]


def spoken(*script: ScriptPart) -> tuple[ReplyBuilder, list[list[Payload]]]:
    reply = ReplyBuilder(numbered())
    return reply, asyncio.run(streamed(Scripted(lambda messages: script), [], reply))


def flat(batches: list[list[Payload]]) -> list[Payload]:
    return [payload for batch in batches for payload in batch]


def texts(batches: list[list[Payload]]) -> list[str]:
    return [payload.text for payload in flat(batches) if isinstance(payload, BlockDelta)]


def kinds(batches: list[list[Payload]]) -> list[str]:
    names = [type(payload).TYPE for payload in flat(batches)]
    return [name for name in names if not name.startswith("block.")]


def test_a_text_comes_word_by_word_and_the_end_last() -> None:
    reply, batches = spoken("Let me see.")
    assert texts(batches) == ["Let ", "me ", "see."]
    assert len(batches) == 4
    assert (reply.complete, reply.stop_reason, reply.model) == (True, "end_turn", "scripted")
    assert reply.usage == Usage(input_tokens=0, output_tokens=0)


def test_texts_and_calls_keep_their_order() -> None:
    reply, batches = spoken("One.", ToolUse("weather", {"city": "Oslo"}), "Two.")
    assert kinds(batches) == ["assistant.message", "tool.call", "assistant.message"]
    assert isinstance(batches[-1][1], ToolCall)
    assert reply.calls == [batches[-1][1]]
    assert (reply.calls[0].args, reply.stop_reason) == ({"city": "Oslo"}, "tool_use")


def test_a_call_may_have_an_id_and_no_arguments() -> None:
    reply, _ = spoken(ToolUse("trips", call_id="toolu_1"))
    assert [(call.call_id, call.args) for call in reply.calls] == [("toolu_1", {})]


@pytest.mark.parametrize("text", ["one", "one two\n\nthree ", "- a\n- b\n", "ünï €😀\u2028x", "a\u00a0b"])
def test_the_words_joined_are_the_text(text: str) -> None:
    reply, batches = spoken(text)
    assert "".join(texts(batches)) == reply.text_so_far == text


@pytest.mark.parametrize("script", [(), ("",), (" \n",)])
def test_a_blank_script_only_ends(script: tuple[str, ...]) -> None:
    reply, batches = spoken(*script)
    assert ([payload for batch in batches for payload in batch], reply.complete) == ([], True)


def test_white_space_between_words_is_said_too() -> None:
    assert spoken("one", " ", "two", "\n\n", "three")[0].text_so_far == "one two\n\nthree"


def test_a_thinking_comes_before_the_text_with_its_signature() -> None:
    _, batches = spoken(Thinking("Hm, grass.", "c2ln"), "Green.", Thinking("Done."))
    first, said, second = [item for item in flat(batches) if not type(item).TYPE.startswith("block.")]
    assert isinstance(first, AssistantThinking)
    assert (first.text, first.signature) == ("Hm, grass.", "c2ln")
    assert isinstance(said, AssistantMessage)
    assert isinstance(second, AssistantThinking)
    assert second.signature is None
    assert texts(batches) == ["Hm, ", "grass.", "Green.", "Done."]


def test_a_source_belongs_to_the_text_before_it() -> None:
    _, batches = spoken("Green.", Cite(SOURCE))
    [said] = [payload for payload in flat(batches) if isinstance(payload, AssistantMessage)]
    assert said.citations == (SOURCE,)
    _, batches = spoken(Cite(SOURCE))
    assert [type(payload) for payload in flat(batches)] == [ParseReject]


def test_the_providers_tools_answer_inside_the_message() -> None:
    reply, batches = spoken(
        "Let me see.", ProviderCall("web_search", {"query": "grass"}, ["a page"]), "Green."
    )
    assert kinds(batches) == ["assistant.message", "tool.call", "tool.result", "assistant.message"]
    [call] = [payload for payload in flat(batches) if isinstance(payload, ToolCall)]
    [result] = [payload for payload in flat(batches) if isinstance(payload, ToolResult)]
    assert (call.executor, call.args, call.call_id) == ("provider", {"query": "grass"}, result.call_id)
    assert (result.ok, result.result, result.kind) == (True, ["a page"], "web_search_tool_result")
    assert (reply.calls, reply.stop_reason) == ([], "end_turn")


def test_the_providers_tools_fail_with_a_code() -> None:
    _, batches = spoken(
        ProviderCall("search", result="no", kind="odd_tool_result", error="max_uses_exceeded")
    )
    [result] = [payload for payload in flat(batches) if isinstance(payload, ToolResult)]
    assert (result.ok, result.result, result.kind) == (False, None, "odd_tool_result")
    details = {"content": "no"}
    assert result.error == ErrorInfo(code="max_uses_exceeded", message="max_uses_exceeded", details=details)


def test_a_call_for_which_there_is_no_room_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "MAX_REPLY_VALUE_BYTES", 10)
    _, batches = spoken(ProviderCall("web_search", {"query": "grass"}, []), "Green.")
    assert kinds(batches) == ["assistant.message"]


def test_files_stand_in_their_place() -> None:
    files = (File(file_id="file_1", filename="a.pdf", storage_location="provider:file_1"),)
    _, batches = spoken("One.", Files(files), "Two.")
    assert kinds(batches) == ["assistant.message", "assistant.files", "assistant.message"]
    assert AssistantFiles(files=files) in flat(batches)


def test_a_message_ends_where_and_as_the_script_says_and_costs_what_it_says() -> None:
    usage = Usage(input_tokens=7, output_tokens=9, cache_read_tokens=5)
    reply, batches = spoken(UsageReport(usage), "One.", EndMessage("max_tokens"), "Two.")
    assert (texts(batches), reply.stop_reason, reply.usage) == (["One."], "max_tokens", usage)


def test_a_fault_comes_after_what_was_said() -> None:
    usage = Usage(input_tokens=7, output_tokens=2)
    script: list[ScriptPart] = [
        UsageReport(usage),
        "One two.",
        Fail("rate_limit_error", retry_after_s=3.0),
        "Three.",
    ]
    heard: list[Payload] = []
    reply = ReplyBuilder(numbered())

    async def play() -> None:
        async for batch in Scripted(lambda messages: script).stream(Request("", []), reply):
            heard.extend(batch)

    with pytest.raises(ModelError) as caught:
        asyncio.run(play())
    fault = caught.value
    assert (fault.code, fault.retriable, fault.retry_after_s) == ("rate_limit_error", True, 3.0)
    assert (texts([heard]), reply.complete, reply.usage) == (["One ", "two."], False, usage)
    assert len(reply.block_ids) == 1


def test_the_script_reads_the_conversation() -> None:
    conversation = [Message("user", [{"type": "text", "text": "Oslo"}])]
    model = Scripted(lambda messages: [str(messages[0].content[0]["text"])])
    assert texts(asyncio.run(streamed(model, conversation, ReplyBuilder(numbered())))) == ["Oslo"]


def test_a_script_that_breaks_breaks_after_what_it_said() -> None:
    def script(messages: list[Message]) -> list[ScriptPart]:
        raise ConnectionError("the line is dead")

    with pytest.raises(ConnectionError):
        asyncio.run(streamed(Scripted(script), [], ReplyBuilder(numbered())))


def test_it_speaks_at_its_pace(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[float] = []

    async def wait(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("turnlog.agents.models.scripted.asyncio.sleep", wait)
    script: list[ScriptPart] = [Thinking("a b"), "c d", ToolUse("weather")]
    asyncio.run(
        streamed(Scripted(lambda messages: script, 0.25, initial_delay_s=2.0), [], ReplyBuilder(numbered()))
    )
    assert waits == [2.0, 0.25, 0.25, 0.25, 0.25]


def test_it_has_a_name_for_the_log() -> None:
    assert Scripted(lambda messages: []).name == "scripted"
    assert Scripted(lambda messages: [], name="rehearsed").name == "rehearsed"
