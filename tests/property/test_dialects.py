"""The block dialects on legal logs: bounds, what a reader has at the end, resuming anywhere, both readers."""

import asyncio
import json
from itertools import pairwise
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

import turnlog
from tests.support.blocks_readers import Ask, assemble, exact
from tests.support.examples import examples
from tests.support.random_logs import Legal, Said, expected, logs, pruned, standing
from tests.support.written_logs import Item
from turnlog import events as ev
from turnlog.client.assembler import Assembler
from turnlog.log import open_log
from turnlog.state.content_parts import result_text
from turnlog.state.history import History
from turnlog.vocabularies import DIALECTS
from turnlog.wire import sse
from turnlog.wire.chunks import MAX_MESSAGE_BYTES
from turnlog.wire.dialects.base import DONE, DialectOptions
from turnlog.wire.dialects.blocks import Blocks
from turnlog.wire.dialects.framing import encode_frames
from turnlog.wire.dialects.registry import DialectRequest, DialectWithHistory

quick = examples(13)
thorough = examples(25)
options = st.builds(
    DialectOptions, stream_meta_history_and_tool_results=st.booleans(), stream_tool_results=st.booleans()
)
BLOCK_DIALECTS = ("blocks", "blocks-xml", "blocks-raw")
EACH = pytest.mark.parametrize("name", BLOCK_DIALECTS)


class Placed(NamedTuple):
    """A message and its place: the seq and the number within the event."""

    seq: int
    number: int
    message: bytes


def convert(told: DialectWithHistory, items: list[Item]) -> list[Placed]:
    return [
        Placed(envelope.seq, number, message)
        for envelope, payload in items
        for number, message in enumerate(told.convert(envelope, payload))
    ]


def begun(wanted: DialectRequest, items: list[Item], start: int) -> DialectWithHistory:
    """A projection that begins at a seq, with the history before it."""
    told = DialectWithHistory(wanted)
    for item in items[:start]:
        told.history.apply(*item)
    return told


@EACH
@thorough
@given(legal=logs(), asked=options, cuts=st.lists(st.integers(0, 2**16), min_size=1, max_size=4))
def test_a_reader_that_comes_back_misses_and_repeats_nothing(
    name: str, legal: Legal, asked: DialectOptions, cuts: list[int]
) -> None:
    items, wanted = legal.items, DIALECTS.request(name, asked)
    whole = convert(DialectWithHistory(wanted), items)
    for cut in cuts:
        seq, number, _ = whole[cut % len(whole)]
        complete = cut % len(whole) == len(whole) - 1 or whole[cut % len(whole) + 1].seq > seq
        start = legal.turn_start(seq if complete else seq - 1)
        again = convert(begun(wanted, items, start), items[start:])
        assert [one for one in whole if one[:2] <= (seq, number)] + [
            one for one in again if one[:2] > (seq, number)
        ] == whole


@EACH
@quick
@given(legal=logs(), asked=options)
def test_between_turns_nothing_is_kept_and_a_response_ends(
    name: str, legal: Legal, asked: DialectOptions
) -> None:
    dialect = DIALECTS.definitions[name].factory(asked, History().messages)
    begins = {first for first, _ in legal.turns}
    for envelope, payload in legal.items:
        if envelope.seq in begins:
            assert dialect.idle
        dialect.convert(envelope, payload)
    assert dialect.idle
    assert dialect.close() == [DONE]


@EACH
@quick
@given(legal=logs(), asked=options, cut=st.integers(0, 2**16))
def test_a_response_may_end_anywhere(name: str, legal: Legal, asked: DialectOptions, cut: int) -> None:
    told = DialectWithHistory(DIALECTS.request(name, asked))
    convert(told, legal.items[: cut % (len(legal.items) + 1)])
    *ends, done = told.close()
    assert done == DONE
    assert DONE not in ends


@thorough
@given(legal=logs(), asked=options)
def test_every_message_of_blocks_is_complete_and_small(legal: Legal, asked: DialectOptions) -> None:
    for placed in convert(DialectWithHistory(DIALECTS.request("blocks", asked)), legal.items):
        assert list(json.loads(placed.message))[:4] == ["type", "agent", "final", "delta"]
        assert len(placed.message) <= MAX_MESSAGE_BYTES
        assert b"\n" not in placed.message


@thorough
@given(legal=logs())
def test_the_chunks_of_an_event_join_to_what_it_says(legal: Legal) -> None:
    blocks = Blocks()
    for envelope, payload in legal.items:
        messages = [json.loads(message) for message in blocks.convert(envelope, payload)]
        joined = "".join(message["delta"] for message in messages)
        match payload:
            case ev.AgentStart(prompt=prompt):
                assert json.loads(joined)["user_query"] == (prompt or "")
            case ev.BlockDelta(text=text) if messages:
                assert joined == text
            case ev.ToolCall(args=args, incomplete=incomplete):
                assert json.loads(joined) == (args if incomplete is None else incomplete)
            case ev.ToolResult():
                assert joined == result_text(payload)
            case ev.AssistantFiles(files=files):
                assert json.loads(joined)["files"][0]["filename"] == files[0].filename
            case ev.SessionError(message=text):
                assert json.loads(joined)["message"] == text


def spoken(messages: list[bytes]) -> Said:
    """What stands of each agent's output, as the reader has it."""
    assembler, said = Assembler(), Said()
    for message in messages:
        assembler.feed(message)
    for agent in assembler.agents.values():
        mine = said.setdefault(agent.id, [])
        for block in agent.model_blocks:
            kind = {"server_tool_result": "result", "tool_call": "call", "server_tool_call": "call"}
            value = block.value if block.type in ("tool_call", "server_tool_call") else block.text
            mine.append((kind.get(block.type, block.type), value))
            assert block.complete
    assert assembler.dropped == 0
    return standing(said)


@thorough
@given(legal=logs())
def test_the_reader_has_what_the_log_says(legal: Legal) -> None:
    said = expected(legal.items)
    wanted = standing({agent: [item for item in mine if item[0] != "other"] for agent, mine in said.items()})
    told = [
        placed.message
        for placed in convert(DialectWithHistory(DIALECTS.request("blocks", DialectOptions())), legal.items)
    ]
    assert spoken(told) == wanted
    told = [
        placed.message
        for placed in convert(
            DialectWithHistory(DIALECTS.request("blocks", DialectOptions())), pruned(legal.items)
        )
    ]
    assert spoken(told) == wanted, "the deltas are gone"


@thorough
@given(
    legal=logs(),
    asked=options,
    back=st.lists(st.tuples(st.integers(0, 2**16), st.integers(1, 30)), max_size=3),
)
def test_python_and_javascript_read_a_log_alike(
    ask: Ask, legal: Legal, asked: DialectOptions, back: list[tuple[int, int]]
) -> None:
    placed = convert(DialectWithHistory(DIALECTS.request("blocks", asked)), legal.items)
    messages = sent(placed)
    for cut, count in back:  # a reader that comes back gets some of it again
        at = cut % len(messages)
        messages[at:at] = messages[max(0, at - count) : at]
    assert exact(ask({"messages": messages})) == exact(assemble(messages))
    assert assemble(messages)["json"] == assemble(sent(placed))["json"], "nothing is doubled"


def sent(placed: list[Placed]) -> list[tuple[str, str]]:
    """Messages with their ids, as they come out of frames."""
    by_seq: dict[int, list[bytes]] = {}
    for one in placed:
        by_seq.setdefault(one.seq, []).append(one.message)
    body = b"".join(frame for seq, messages in by_seq.items() for frame in encode_frames(messages, seq, "k1"))
    return [(message.data, message.id) for message in sse.Decoder().feed(body)]


@EACH
@quick
@given(legal=logs(), cuts=st.lists(st.integers(0, 2**20), max_size=8))
def test_frames_come_back_as_they_were_however_they_are_cut(name: str, legal: Legal, cuts: list[int]) -> None:
    placed = convert(DialectWithHistory(DIALECTS.request(name, DialectOptions())), legal.items)
    body = b"".join(sse.encode(one.message, id=f"{one.seq}.{one.number}:k1") for one in placed)
    places = [0, *sorted(cut % (len(body) + 1) for cut in cuts), len(body)]
    decoder = sse.Decoder()
    read = [message for start, end in pairwise(places) for message in decoder.feed(body[start:end])]
    assert [(message.data.encode(), message.id) for message in read] == [
        (one.message, f"{one.seq}.{one.number}:k1") for one in placed
    ]


def again(envelope: ev.Envelope, payload: ev.Payload | ev.UnknownPayload) -> ev.Event:
    """The event that an envelope was."""
    assert isinstance(payload, ev.Payload)
    at = ev.Scope(trace_id=envelope.trace_id, agent_id=envelope.agent_id, depth=envelope.depth)
    return turnlog.event(payload, origin=envelope.origin, scope=at)


@examples(6)
@given(legal=logs())
def test_a_log_knows_the_same_oldest_open_turn(legal: Legal) -> None:
    async def starts() -> list[int]:
        log = await open_log("memory:")
        session = await log.create("t")
        await log.append(session, [again(*item) for item in legal.items])
        found = [await log.oldest_open_turn_start(session, seq) for seq in range(-1, len(legal.items))]
        await log.close()
        return found

    wanted = [legal.turn_start(seq) for seq in range(-1, len(legal.items))]
    assert asyncio.run(starts()) == wanted
