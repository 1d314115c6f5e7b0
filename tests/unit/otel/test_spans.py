"""Spans from the log: their tree, times, attributes, errors; the same events give the same spans."""

import asyncio
import builtins
from collections.abc import Sequence
from typing import Any

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

import turnlog
from turnlog.errors import CallerError, PeerError
from turnlog.events import AgentHandoff, AgentStart, EventDraft, Scope, SessionError, UiMessage, Usage
from turnlog.events.agent import AgentEnd, AgentUsage, Cost
from turnlog.events.tool import ToolCall, ToolResult
from turnlog.log import Log, MemoryStore
from turnlog.otel import export_session_spans
from turnlog.otel.providers import find_provider
from turnlog.otel.spans import MAX_OPEN_TURNS, build_spans
from turnlog.vocabularies import FULL_CATALOG

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


async def record_turn(log: Log, session: str) -> None:
    async with turnlog.record(log, session, prompt="Hi", name="Support", model="m") as turn:
        call = await turn.call("search", {"q": "grass"})
        usage = Usage(input_tokens=10, output_tokens=2, cache_read_tokens=3, cache_creation_tokens=4)
        await turn.complete_message(usage, model="m", duration_ms=5)
        async with turn.child("Searcher", call_id=call) as searcher:
            await turn.text("Green.", agent=searcher)
            await turn.complete_message(Usage(input_tokens=1, output_tokens=1), model="n", agent=searcher)
        await turn.result(call, "green")
        failing = await turn.call("paint")
        await turn.fail(failing, "no paint")


async def export(log: Log, session: str, after: int = -1) -> tuple[Sequence[ReadableSpan], int]:
    exporter = InMemorySpanExporter()
    last = await export_session_spans(log, session, exporter, after=after)
    return exporter.get_finished_spans(), last


def by_name(spans: Sequence[ReadableSpan]) -> dict[str, ReadableSpan]:
    named = {span.name: span for span in spans}
    assert len(named) == len(spans)
    return named


def parent_name(spans: dict[str, ReadableSpan], name: str) -> str | None:
    parent = spans[name].parent
    if parent is None:
        return None
    return next(other.name for other in spans.values() if other.context.span_id == parent.span_id)


def test_a_turn_becomes_a_tree_of_spans_with_the_names_of_the_conventions() -> None:
    async def run() -> None:
        log = Log(MemoryStore())
        session = await log.create("x")
        await record_turn(log, session)
        spans, _ = await export(log, session)
        named = by_name(spans)
        assert {name: parent_name(named, name) for name in named} == {
            "turn": None,
            "invoke_agent Support": "turn",
            "chat m": "invoke_agent Support",
            "execute_tool search": "invoke_agent Support",
            "invoke_agent Searcher": "execute_tool search",
            "chat n": "invoke_agent Searcher",
            "execute_tool paint": "invoke_agent Support",
        }
        assert len({span.context.trace_id for span in spans}) == 1
        chat = named["chat m"]
        assert chat.attributes is not None
        assert dict(chat.attributes) == {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": "turnlog",
            "gen_ai.request.model": "m",
            "gen_ai.response.model": "m",
            "gen_ai.conversation.id": session,
            "gen_ai.usage.input_tokens": 17,  # with those of the cache
            "gen_ai.usage.output_tokens": 2,
            "gen_ai.usage.cache_read.input_tokens": 3,
            "gen_ai.usage.cache_creation.input_tokens": 4,
        }
        assert chat.kind is SpanKind.CLIENT
        assert chat.end_time is not None
        assert chat.start_time == chat.end_time - 5_000_000
        assert named["execute_tool paint"].status.status_code is StatusCode.ERROR
        assert named["execute_tool paint"].attributes["error.type"] == "EXECUTION_ERROR"  # type: ignore[index]
        assert named["turn"].status.status_code is StatusCode.UNSET
        finish = named["invoke_agent Support"].attributes["gen_ai.response.finish_reasons"]  # type: ignore[index]
        assert finish == ("end_turn",)
        await log.close()

    asyncio.run(run())


def test_exporting_again_gives_the_same_ids_and_after_a_seq_only_what_is_new() -> None:
    async def run() -> None:
        log = Log(MemoryStore())
        session = await log.create("x")
        await record_turn(log, session)
        first, last = await export(log, session)
        again, _ = await export(log, session)
        assert [span.context for span in first] == [span.context for span in again]
        await record_turn(log, session)
        more, _ = await export(log, session, after=last)
        assert len(more) == len(first)
        assert not {span.context.span_id for span in more} & {span.context.span_id for span in first}
        await log.close()

    asyncio.run(run())


def test_a_failed_turn_has_the_error_of_its_session() -> None:
    async def fail(log: Log, session: str) -> None:
        async with turnlog.record(log, session, prompt="Hi"):
            raise ValueError("broken")

    async def run() -> None:
        log = Log(MemoryStore())
        session = await log.create("x")
        with pytest.raises(ValueError, match="broken"):
            await fail(log, session)
        named = by_name((await export(log, session))[0])
        for name in ("turn", "invoke_agent Agent"):
            assert named[name].status.status_code is StatusCode.ERROR
            assert named[name].attributes["error.type"] == "agent_failed"  # type: ignore[index]
        await log.close()

    asyncio.run(run())


class Story:
    """Entries of one session, at one second each."""

    def __init__(self) -> None:
        self.entries: list[Any] = []

    def add(self, payload: Any, origin: Any = "system", *, ts_s: int | None = None, **scope: Any) -> None:
        from turnlog.events import decode_envelope, encode_envelope

        number = len(self.entries)
        event = EventDraft(payload, Scope(**scope), origin).build(FULL_CATALOG, f"evt_{number}")
        seconds = number if ts_s is None else ts_s
        line = encode_envelope(event, session_id="sess_1", seq=number, ts_ms=seconds * 1000)
        self.entries.append(FULL_CATALOG.decode_entry(decode_envelope(line)))


def test_a_traceparent_is_continued() -> None:
    story = Story()
    story.add(UiMessage(text="Hi", traceparent=TRACEPARENT), "ui", trace_id="tr_1")
    story.add(AgentStart(name="A", via="prompt"), trace_id="tr_1", agent_id="agt_1")
    story.add(AgentEnd(stop_reason="end_turn"), trace_id="tr_1", agent_id="agt_1")
    agent, turn = build_spans("sess_1", story.entries)
    assert (turn.trace_id, turn.parent_span_id) == (TRACEPARENT[3:35], TRACEPARENT[36:52])
    assert agent.trace_id == turn.trace_id
    assert (turn.start_ns, turn.end_ns) == (0, 2_000_000_000)


def test_a_hand_off_stays_in_its_turn_and_costs_are_kept() -> None:
    story = Story()
    story.add(AgentStart(name="A", via="prompt"), trace_id="tr_1", agent_id="agt_1")
    story.add(AgentHandoff(to="B", to_agent_id="agt_2"), trace_id="tr_1", agent_id="agt_1")
    story.add(AgentEnd(stop_reason="handoff"), trace_id="tr_1", agent_id="agt_1")
    story.add(AgentStart(name="B", via="handoff"), trace_id="tr_1", agent_id="agt_2")
    usage = Usage(input_tokens=1, output_tokens=1)
    completion = AgentUsage(model="m", usage=usage, cost=Cost(total_cost=0.5))
    story.add(completion, trace_id="tr_1", agent_id="agt_2")
    story.add(AgentEnd(stop_reason="timeout", usage=usage), ts_s=0, trace_id="tr_1", agent_id="agt_2")
    spans = build_spans("sess_1", story.entries)
    assert [span.name for span in spans] == ["invoke_agent A", "chat m", "invoke_agent B", "turn"]
    assert spans[1].attributes["turnlog.cost_usd"] == 0.5
    assert spans[2].error == "timeout"
    assert spans[2].start_ns == spans[2].end_ns  # the clock was set back
    assert spans[2].attributes["gen_ai.usage.input_tokens"] == 1


def test_a_turn_that_ends_well_after_the_error_of_a_sub_agent_has_no_error() -> None:
    story = Story()
    story.add(AgentStart(name="A", via="prompt"), trace_id="tr_1", agent_id="agt_1")
    child = AgentStart(name="B", via="call", parent_id="agt_1")
    story.add(child, trace_id="tr_1", agent_id="agt_2", depth=1)
    story.add(SessionError(code="agent_failed", message="x"), trace_id="tr_1", agent_id="agt_2", depth=1)
    story.add(AgentEnd(stop_reason="error"), trace_id="tr_1", agent_id="agt_2", depth=1)
    story.add(AgentEnd(stop_reason="end_turn"), trace_id="tr_1", agent_id="agt_1")
    spans = build_spans("sess_1", story.entries)
    assert [(span.name, span.error) for span in spans] == [
        ("invoke_agent B", "agent_failed"),
        ("invoke_agent A", None),
        ("turn", None),
    ]


@pytest.mark.parametrize(
    ("model", "provider"),
    [
        ("claude-sonnet-4-5", "anthropic"),
        ("anthropic:claude-sonnet-4-5", "anthropic"),
        ("gpt-5", "openai"),
        ("openai/gpt-5", "openai"),
        ("openrouter/openai/gpt-5", "openai"),
        ("o3", "openai"),
        ("google-gla:gemini-2.5-pro", "gcp.gemini"),
        ("bedrock:anthropic.claude-v2", "aws.bedrock"),
        ("mistral-large-latest", "mistral_ai"),
        ("gptx", "turnlog"),
        ("scripted", "turnlog"),
        (":", "turnlog"),
        ("", "turnlog"),
        (None, "turnlog"),
    ],
)
def test_provider_of_a_span_is_known_from_the_name_of_the_model(model: str | None, provider: str) -> None:
    assert find_provider(model) == provider


def test_spans_name_the_provider_of_their_model() -> None:
    story = Story()
    story.add(AgentStart(name="A", via="prompt", model="gpt-5"), trace_id="tr_1", agent_id="agt_1")
    completion = AgentUsage(model="claude-opus-4-1", usage=Usage(input_tokens=1, output_tokens=1))
    story.add(completion, trace_id="tr_1", agent_id="agt_1")
    story.add(AgentEnd(stop_reason="end_turn"), trace_id="tr_1", agent_id="agt_1")
    chat, agent, _ = build_spans("sess_1", story.entries)
    assert chat.attributes["gen_ai.provider.name"] == "anthropic"
    assert agent.attributes["gen_ai.provider.name"] == "openai"


def test_events_that_belong_to_nothing_open_make_no_spans() -> None:
    story = Story()
    usage = Usage(input_tokens=1, output_tokens=1)
    story.add(AgentUsage(model="m", usage=usage))  # without a turn
    result = ToolResult(call_id="c", tool="t", ok=True)
    story.add(result, "tool", trace_id="tr_1", agent_id="agt_1")  # after the end of its turn
    story.add(UiMessage(text="Hi"), "ui", trace_id="tr_2")
    story.add(AgentUsage(model="m", usage=usage), trace_id="tr_2", agent_id="agt_2")
    call = ToolCall(call_id="c", tool="t", args={}, executor="backend")
    story.add(call, "model", trace_id="tr_2", agent_id="agt_2")
    story.add(result, "tool", trace_id="tr_2", agent_id="agt_2")
    story.add(AgentEnd(stop_reason="end_turn"), trace_id="tr_2", agent_id="agt_2")
    assert build_spans("sess_1", story.entries) == []


def test_turns_that_never_end_are_dropped_at_a_limit() -> None:
    story = Story()
    for number in range(MAX_OPEN_TURNS + 1):
        story.add(AgentStart(name="A", via="prompt"), trace_id=f"tr_{number}", agent_id=f"agt_{number}")
    story.add(AgentEnd(stop_reason="end_turn"), trace_id="tr_0", agent_id="agt_0")
    assert build_spans("sess_1", story.entries) == []
    story.add(AgentEnd(stop_reason="end_turn"), trace_id="tr_1", agent_id="agt_1")
    assert len(build_spans("sess_1", story.entries)) == 2


class Refusing(SpanExporter):
    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        return SpanExportResult.FAILURE


def test_an_exporter_that_fails_and_a_missing_sdk_are_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        log = Log(MemoryStore())
        session = await log.create("x")
        await record_turn(log, session)
        with pytest.raises(PeerError, match="Refusing did not accept 7 spans"):
            await export_session_spans(log, session, Refusing(), resource=Resource.create({}))
        load = builtins.__import__

        def refuse(name: str, *rest: Any, **more: Any) -> Any:
            if name.startswith("opentelemetry.sdk.resources"):
                raise ImportError(name)
            return load(name, *rest, **more)

        monkeypatch.setattr(builtins, "__import__", refuse)
        with pytest.raises(CallerError, match=r"turnlog\[otel\]"):
            await export_session_spans(log, session, InMemorySpanExporter())
        monkeypatch.undo()
        await log.close()

    asyncio.run(run())
