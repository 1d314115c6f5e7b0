"""Whatever a process prints: no exception, everything closed, any cutting equal; markers lose no text."""

import sys
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.support.claude_vectors import VECTORS, assert_lawful, bytes_of, counting
from tests.support.examples import examples
from turnlog.events import AssistantMessage, AssistantThinking, BlockDelta, BlockEnd, EventDraft, ToolCall
from turnlog.parse import CliParser, SentMessage
from turnlog.parse.claude.parser import LINE_READERS, SYSTEM_READERS
from turnlog.parse.inline.parsed_text import ParsedText
from turnlog.team.markers import MARKERS, MarkerParser, TagAndMarkerParser
from turnlog.team.tool_effects import TeamToolEffects

words = st.text(max_size=6)
scalars = st.none() | st.booleans() | st.integers(-2, 2**64) | st.floats(allow_nan=False) | words
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)
call_ids = st.sampled_from(["toolu_1", "toolu_2", "toolu_3"])
uuids = st.sampled_from(["u-1", "u-2", "l-1", "l-2"])
parents = st.none() | call_ids
keys = st.sampled_from(["msg_1", "msg_2"])
texts = st.sampled_from(
    ["", "Hi.", " a ", "[AGENT_STATUS]", '[AGENT_STATUS] {"agents":[]}', "`", "<agent-event"]
)
blocks = st.one_of(
    st.builds(lambda text: {"type": "text", "text": text}, texts),
    st.builds(
        lambda key: {"type": "tool_use", "id": key, "name": "Task", "input": {"prompt": "x"}}, call_ids
    ),
    st.just({"type": "thinking", "thinking": "Hm.", "signature": "s"}),
    st.just({"type": "hologram"}),
    values,
)
results = st.builds(
    lambda key, content, error: {
        "type": "tool_result", "tool_use_id": key, "content": content, "is_error": error,
    },
    call_ids, values, st.booleans(),
)  # fmt: skip
messages = st.builds(
    lambda key, content: {"id": key, "model": "m", "content": content},
    keys | st.none(),
    st.lists(blocks, max_size=2),
)
index = st.integers(0, 2)
events = st.one_of(
    st.builds(lambda key: {"type": "message_start", "message": {"id": key}}, keys),
    st.builds(lambda i, b: {"type": "content_block_start", "index": i, "content_block": b}, index, blocks),
    st.builds(
        lambda i, t: {"type": "content_block_delta", "index": i, "delta": {"type": "text_delta", "text": t}},
        index, texts,
    ),
    st.builds(lambda i: {"type": "content_block_stop", "index": i}, index),
    st.just({"type": "message_stop"}),
    values,
)  # fmt: skip
KINDS = [(key, "", "") for key in [*LINE_READERS, "hologram"]]
KINDS += [("system", "", key) for key in [*SYSTEM_READERS, "hologram"]]
FIELDS = {
    "session_id": st.just("s-1"),
    "uuid": uuids,
    "user_message_uuid": uuids,
    "user_message_uuids": st.lists(uuids, max_size=2),
    "command_uuid": uuids,
    "state": st.sampled_from(["queued", "started", "cancelled", "completed"]),
    "parent_tool_use_id": parents,
    "message": messages | st.fixed_dictionaries({"content": st.lists(results | blocks, max_size=2)}),
    "event": events,
    "abandoned_blocks": st.builds(lambda i: {"from_block_index": i}, index),
    "aborted": st.booleans(),
    "isReplay": st.booleans(),
    "supersedes": st.lists(uuids, max_size=2),
    "retracted_message_uuids": st.lists(uuids, max_size=2),
    "tool_use_id": call_ids,
    "task_id": st.sampled_from(["t-1", "t-2"]),
    "agent_id": st.sampled_from(["t-1", "t-2"]),
    "subagent_type": st.just("a"),
    "is_backgrounded": st.booleans(),
    "status": st.sampled_from(["completed", "failed", "stopped"]),
    "patch": st.sampled_from([{"status": "failed"}, {"is_backgrounded": True}, {}]),
    "request_id": st.sampled_from(["r-1", "r-2"]),
    "request": st.builds(
        lambda key, args: {"subtype": "can_use_tool", "tool_name": "Bash", "input": args, "tool_use_id": key},
        call_ids, st.dictionaries(words, scalars, max_size=1),
    ),
    "is_error": st.booleans(),
    "total_cost_usd": st.floats(0, 1),
    "modelUsage": st.dictionaries(st.just("m"), st.fixed_dictionaries({"inputTokens": st.integers(0, 9)})),
    "num_turns": st.integers(0, 3),
    "result_index": st.integers(0, 2),
}  # fmt: skip
lines = st.builds(
    lambda kind, fields: {**fields, "type": kind[0], **({"subtype": kind[2]} if kind[2] else {})},
    st.sampled_from(KINDS),
    st.fixed_dictionaries({}, optional={name: right | values for name, right in FIELDS.items()}),
)
usual = st.one_of(
    st.just({"type": "system", "subtype": "init", "session_id": "s-1", "tools": ["Bash"], "model": "m"}),
    st.builds(lambda m, p: {"type": "assistant", "message": m, "parent_tool_use_id": p}, messages, parents),
    st.builds(lambda e: {"type": "stream_event", "event": e, "parent_tool_use_id": None}, events),
    st.builds(lambda r: {"type": "user", "message": {"content": [r]}}, results),
    st.builds(lambda u: {"type": "result", "user_message_uuid": u}, uuids),
    st.builds(
        lambda c, b: {"type": "system", "subtype": "task_started", "tool_use_id": c, "subagent_type": "a",
                      "task_id": c, "is_backgrounded": b},
        call_ids, st.booleans(),
    ),
)  # fmt: skip
streams = st.lists(usual | lines, max_size=20)


def parser() -> CliParser:
    parsing = CliParser(
        counting(), make_text_parser=TagAndMarkerParser, tool_effects=TeamToolEffects("/memory", "localhost")
    )
    parsing.expect("u-1", SentMessage("tr_a"))
    parsing.expect("u-2", SentMessage("tr_b", "team", "Lyra"))
    return parsing


def run(data: bytes, cuts: list[int]) -> list[EventDraft]:
    parsing, places = parser(), [0, *sorted(cut % (len(data) + 1) for cut in cuts), len(data)]
    pieces = [data[a:b] for a, b in pairwise(places)]
    return [said for piece in pieces for said in parsing.feed(piece)] + parsing.flush()


@given(streams)
@examples(48)
def test_whatever_comes_everything_can_be_stored_and_is_closed(stream: list[Any]) -> None:
    assert_lawful(run(bytes_of(stream), []))


@given(streams, st.lists(st.integers(0, 1 << 20), max_size=6), st.booleans())
@examples(60)
def test_any_cutting_of_the_bytes_gives_the_same(stream: list[Any], cuts: list[int], whole: bool) -> None:
    data = bytes_of(stream)[: None if whole else -1]
    assert run(data, cuts) == run(data, [])


@given(st.binary(max_size=300), st.lists(st.integers(0, 300), max_size=4))
@examples(30)
def test_bytes_that_are_nothing_do_nothing(data: bytes, cuts: list[int]) -> None:
    said = run(data, cuts)
    assert said == run(data, [])
    assert_lawful(said)


@given(st.sampled_from(VECTORS))
@examples(2 * len(VECTORS))  # more than there are: all of them
def test_what_was_shown_is_what_is_kept(vector: dict[str, Any]) -> None:
    payloads = [said.payload for said in run(bytes_of(vector["lines"]), [])]
    calls = {item.block_id for item in payloads if isinstance(item, ToolCall)}
    shown = [item.text for item in payloads if isinstance(item, BlockDelta) and item.block_id not in calls]
    twins = [item.text for item in payloads if isinstance(item, AssistantMessage | AssistantThinking)]
    aborted = [item.text for item in payloads if isinstance(item, BlockEnd) and item.text]
    assert sorted("".join(shown)) == sorted("".join(twins + aborted))


markers = st.sampled_from(
    [
        '[AGENT_REGISTERED] {"name":"L","gridPosition":1}',
        '[AGENT_STATUS]\n{"agents":\n[]}',
        '[JOB_HELP]{"suggestions":{"a":"}\\"[JOB_HELP]"}}',
        '[AGENT_WORK_OFFERED] {"agentName":"L","jobNames":[]}',
    ]
)
prose = st.text(st.sampled_from("ab [J\n]{}\"'."), max_size=12)
noise = st.lists(st.sampled_from([*'[]{}"\\:,`> \nax0', *MARKERS]), max_size=40).map("".join)


def parsed(text: str, cuts: list[int]) -> ParsedText:
    parsing, places = MarkerParser(), [0, *sorted(cut % (len(text) + 1) for cut in cuts), len(text)]
    pieces = [text[a:b] for a, b in pairwise(places)]
    parts = [*(parsing.feed(piece) for piece in pieces), parsing.flush()]
    return ParsedText(
        "".join(part.display_text for part in parts),
        [event for part in parts for event in part.events],
        [reject for part in parts for reject in part.rejects],
    )


@given(st.lists(st.tuples(prose, markers), max_size=4), prose)
@examples(48)
def test_everything_but_the_markers_is_shown(parts: list[tuple[str, str]], last: str) -> None:
    found = parsed("".join(words + marker for words, marker in parts) + last, [])
    assert "".join(found.display_text.split()) == "".join("".join([*(p for p, _ in parts), last]).split())
    assert (len(found.events), found.rejects) == (len(parts), [])


@given(noise, st.lists(st.integers(0, 1000), max_size=5))
@examples(60)
def test_any_cutting_of_a_text_gives_the_same(text: str, cuts: list[int]) -> None:
    whole = parsed(text, [])
    assert parsed(text, cuts) == parsed(text, list(range(len(text)))) == whole
    if not whole.events and not whole.rejects:
        assert whole.display_text == text


def calls(work: Callable[[], Any]) -> int:
    """How many functions something calls."""
    count = 0

    def watch(*_: Any) -> None:
        nonlocal count
        count += 1

    sys.setprofile(watch)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


@given(st.sampled_from(VECTORS))
@examples(2 * len(VECTORS))  # more than there are: all of them
def test_twice_the_lines_are_twice_the_work(vector: dict[str, Any]) -> None:
    data = bytes_of(vector["lines"])
    once, twice = (calls(partial(parser().feed, data * times)) for times in (8, 16))
    assert twice <= 2.2 * once
