"""Whatever comes: the readers in Python and JavaScript agree, nothing is doubled, agents stay apart."""

import json

from hypothesis import given
from hypothesis import strategies as st

from tests.support.blocks_readers import Ask, Message, assemble, exact
from tests.support.examples import examples
from turnlog.client.assembler import BLOCK_HANDLERS, Assembler
from turnlog.errors import BadInput
from turnlog.events.surrogates import replace_lone_surrogates
from turnlog.wire.chunks import chunk
from turnlog.wire.sse import Decoder

quick = examples(27)
thorough = examples(43)

hostile = st.sampled_from('{}[]":,\\u\n\r\t\0x1.e-é€😀\u2028\ufeff\ud83d\ude00')
texts = st.text(hostile, max_size=8) | st.text(st.characters(exclude_categories=()), max_size=4)
numbers = st.integers(-(2**54), 2**54) | st.floats() | st.sampled_from([0.5, 3.0])
values = st.recursive(
    st.none() | st.booleans() | numbers | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
calls = st.lists(
    st.fixed_dictionaries(
        {"tool_use_id": st.sampled_from("12")}, optional={"name": texts, "input": values, "agent": texts}
    ),
    max_size=3,
)
payloads = (
    texts
    | values.map(json.dumps)
    | calls.map(json.dumps)
    | st.fixed_dictionaries({"blocks": st.integers(-1, 4) | values}).map(json.dumps)
    | st.fixed_dictionaries({"files": st.lists(values, max_size=2) | values}).map(json.dumps)
    | st.fixed_dictionaries({"model": texts, "user_query": texts, "stop_reason": texts}).map(json.dumps)
)

often = ["text", "citation", "tool_call", "tool_result", "rollback"]
types = st.sampled_from([*BLOCK_HANDLERS, *often, *often, "hologram"])
agents = st.sampled_from(["a", "a", "b", "", "\ud800"])
extras = st.fixed_dictionaries(
    {},
    optional={
        "id": st.sampled_from(["1", "2", ""]) | values,
        "name": texts,
        "index": st.integers(-1, 2) | values,
        "src": texts,
        "media_type": texts,
        "title": texts,
        "url": texts,
    },
)
ids = (
    st.just("")
    | st.builds("{}:k1".format, st.integers(0, 5))
    | st.from_regex(r"\A(k[12]:)?(-1|[0-9]{1,2})(\.[0-3])?\Z")
    | texts
)


def written(type: str, agent: str, final: object, delta: object, extra: dict[str, object]) -> str:
    return json.dumps({"type": type, "agent": agent, "final": final, "delta": delta, **extra})


def in_chunks(type: str, agent: str, payload: str, id: str | None, final: bool) -> list[str]:
    return [text.decode() for text in chunk(type, agent, payload, 90 + len(type), final=final, id=id)]


singles = st.builds(written, types, agents, st.booleans(), payloads, extras).map(lambda text: [text])
cut = st.builds(
    in_chunks,
    st.sampled_from([kind for kind in BLOCK_HANDLERS if kind != "tool_result_image"]),
    st.sampled_from("ab"),
    payloads,
    st.sampled_from(["1", "2", None]),
    st.booleans(),
)
waste = (
    st.sampled_from(["[DONE]", "[PING]", ":", "", "{", " {}", '{"type":"reset"}', '{"type":"heartbeat"}'])
    | st.builds(written, types, agents | values, st.booleans() | values, payloads | values, extras)
    | texts
).map(lambda text: [text])
streams = st.lists(st.tuples(singles | cut | waste, ids), max_size=12).map(
    lambda parts: [(text, place) for part, place in parts for text in part]
)


def interleaved(parts: list[list[str]], turns: list[int]) -> list[str]:
    """The messages of several sources, each in its own order."""
    queues, mixed = [list(part) for part in parts], []
    for turn in turns:
        queue = queues[turn % len(queues)] if queues else []
        mixed += [queue.pop(0)] if queue else []
    return mixed + [message for queue in queues for message in queue]


turns = st.lists(st.integers(0, 9), max_size=30)
mixes = st.builds(interleaved, st.lists(cut, min_size=1, max_size=5), turns)

words = st.text("xyz", max_size=2)
flags = st.booleans()


def text_step(agent: str, deltas: list[str], final: bool, cited: list[tuple[str, int, bool]]) -> list[str]:
    """A text, and citations of which some are chunks of the one before."""
    deltas_said = [written("text", agent, False, delta, {}) for delta in deltas]
    end = [written("text", agent, True, "", {})] if final else []
    sources = [written("citation", agent, last, delta, {"index": index}) for delta, index, last in cited]
    return deltas_said + end + sources


def call_step(agent: str, id: str, called: bool, deltas: list[str], final: bool) -> list[str]:
    """A call and its result with an image, either of which may be missing or cut short."""
    call = [written("tool_call", agent, True, "{}", {"id": id, "name": "t"})] if called else []
    call += [written("server_tool_result", agent, final, "s", {"id": id})] if deltas == ["x"] else []
    result = [written("tool_result", agent, False, delta, {"id": id, "name": "t"}) for delta in deltas]
    image = [written("tool_result_image", agent, False, "", {"id": id, "src": "/1"})] if deltas else []
    return call + result + image + ([written("tool_result", agent, True, "", {"id": id})] if final else [])


def rollback_step(agent: str, count: int) -> list[str]:
    return [written("rollback", agent, True, json.dumps({"blocks": count}), {})]


names = st.sampled_from("ab")
cited = st.lists(st.tuples(words, st.integers(0, 1), flags), max_size=3)
steps = (
    st.builds(text_step, names, st.lists(words, max_size=2), flags, cited)
    | st.builds(call_step, names, st.sampled_from("12"), flags, st.lists(words, max_size=2), flags)
    | st.builds(rollback_step, names, st.integers(0, 3))
    | st.builds(lambda agent: [written("awaiting_frontend_tools", agent, True, WAIT, {})], names)
)
sessions = st.lists(steps, max_size=10).map(lambda parts: [text for part in parts for text in part])
WAIT = '[{"tool_use_id":"1","name":"t"},{"tool_use_id":"2"}]'


def read(messages: list[str]) -> dict[str, object]:
    assembler = Assembler()
    for message in messages:
        assembler.feed(message)
    return assembler.as_json()


def blocks_of(messages: list[str], agent: str) -> list[object]:
    blocks = read(messages)["blocks"]
    assert isinstance(blocks, list)
    return [block for block in blocks if block["agent"] == agent]


@thorough
@given(messages=streams)
def test_python_and_javascript_assemble_anything_alike(ask: Ask, messages: list[Message]) -> None:
    assert exact(ask({"messages": messages})) == exact(assemble(messages))


@thorough
@given(session=sessions, ids=st.lists(st.integers(0, 40), max_size=40))
def test_python_and_javascript_agree_on_sessions(ask: Ask, session: list[str], ids: list[int]) -> None:
    places = [f"{seq // 3}.{seq % 3}:k1" if seq % 3 else f"{seq // 3}:k1" for seq in sorted(ids)]
    messages = [(text, places[at] if at < len(places) else "") for at, text in enumerate(session)]
    assert exact(ask({"messages": messages})) == exact(assemble(messages))


@quick
@given(mixed=mixes)
def test_python_and_javascript_agree_on_chunks(ask: Ask, mixed: list[str]) -> None:
    messages = [(text, "") for text in mixed]
    assert exact(ask({"messages": messages})) == exact(assemble(messages))


lines = st.sampled_from(
    [
        b"data: x\n",
        b"data: \xc3\xa9\xc3\xa9\r",
        b"data\r\n",
        b"id: 4\n",
        b"id\n",
        b"event: e\r\n",
        b": ping\n",
    ]
)
ends = st.sampled_from([b"\n", b"\r", b"\r\n", b"\n\n", b"\r\n\r\n"])
bits = st.sampled_from(
    [b"data", b"event", b"id", b"retry: 7", b":", b" ", b"7777777", b"\0", b"\xef\xbb\xbf"]
)
broken = st.sampled_from([b"\xc3", b"\xa9", b"\xe2\x80\xa8", b"\xed\xa0\x80", b"\xf0\x9f"]) | st.binary(
    max_size=4
)


@thorough
@given(
    pieces=st.lists(lines | ends | bits | broken, max_size=30),
    limit_bytes=st.sampled_from([8, 20, 1 << 20]),
)
def test_python_and_javascript_decode_anything_alike(ask: Ask, pieces: list[bytes], limit_bytes: int) -> None:
    decoder, messages, refused = Decoder(limit_bytes), [], False
    try:
        for piece in pieces:
            messages += decoder.feed(piece)
        decoder.flush()
    except BadInput:
        refused = True
    assert ask({"pieces": [piece.hex() for piece in pieces], "limitBytes": limit_bytes}) == {
        "messages": [
            {"data": message.data, "event": message.event, "id": message.id, "retryMs": message.retry_ms}
            for message in messages
        ],
        "lastId": decoder.last_id,
        "retryMs": decoder.retry_ms,
        "refused": refused,
    }


@quick
@given(payload=texts | payloads, limit_bytes=st.integers(90, 200), streamed=st.booleans())
def test_chunks_join(payload: str, limit_bytes: int, streamed: bool) -> None:
    assembler = Assembler()
    for message in chunk("tool_result", "a", payload, limit_bytes, final=not streamed, id="1"):
        assembler.feed(message)
    if streamed:
        assembler.feed(written("tool_result", "a", True, "", {"id": "1"}))
    [block] = assembler.blocks
    assert (block.text, block.complete) == (replace_lone_surrogates(payload), True)


@quick
@given(mixed=mixes, cuts=st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40)), max_size=4))
def test_reconnecting_anywhere_doubles_nothing(mixed: list[str], cuts: list[tuple[int, int]]) -> None:
    messages = [(text, f"{seq}:k1") for seq, text in enumerate(mixed)]
    assembler, at = Assembler(), 0
    for end, back in sorted(cuts):
        for message in messages[at:end]:
            assembler.feed(*message)
        at = max(at, end)
        for message in messages[:end][-back:]:
            assert assembler.feed(*message) == []
    for message in messages[at:]:
        assembler.feed(*message)
    assert assembler.as_json() == read(mixed)


@quick
@given(mixed=mixes)
def test_agents_do_not_know_each_other(mixed: list[str]) -> None:
    for agent in ("a", "b"):
        own = [message for message in mixed if json.loads(message)["agent"] == agent]
        assert blocks_of(mixed, agent) == blocks_of(own, agent)


complete = st.lists(
    st.tuples(st.sampled_from(["text", "tool_call", "server_tool_result"]), texts.filter(len)), max_size=4
)


@quick
@given(before=complete, after=complete, open_text=st.booleans())
def test_what_is_rolled_back_was_never_said(
    before: list[tuple[str, str]], after: list[tuple[str, str]], open_text: bool
) -> None:
    kept = [written(kind, "a", True, text, {"id": str(at)}) for at, (kind, text) in enumerate(before)]
    void = [written(kind, "a", True, text, {"id": "0"}) for kind, text in after]
    void += [written("text", "a", False, "par", {})] if open_text else []
    rollback = written("rollback", "a", True, json.dumps({"blocks": len(void)}), {})
    said = read([*kept, *void, rollback])
    assert said["blocks"] == read(kept)["blocks"]
