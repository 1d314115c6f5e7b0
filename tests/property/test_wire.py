"""Whatever the text and however it is cut: chunks join, frames come back, decoders agree."""

import json
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from turnlog.errors import BadInput, CallerError
from turnlog.wire.chunks import Scalar, chunk
from turnlog.wire.sse import Decoder, ServerSentEvent, encode

PAIR = re.compile("[\ud800-\udbff][\udc00-\udfff]")
LONE = re.compile("[\ud800-\udfff]")
LINE_END = re.compile("\r\n|\r|\n")

hostile = st.sampled_from('"\\/\n\r\t\b\f\0\x01\x1f\x7fu0x é€😀\x85\u2028\u2029\ufeff\ud83d\ude00')
anything = st.characters(exclude_categories=())
payloads = st.text(hostile | anything, max_size=60) | st.builds(
    str.__mul__, st.text(hostile, max_size=6), st.integers(1, 40)
)
names = st.text(hostile | anything, max_size=8)
extras = st.dictionaries(
    st.sampled_from(["id", "name", "src", "index"]), names | st.integers(-9, 9) | st.booleans() | st.none()
)
plain = st.text(
    st.sampled_from('data: x\n\r"\\\0é€😀\x85\u2028\ufeff') | st.characters(exclude_categories=["Cs"])
)
labels = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0"))
forging = st.tuples(plain, st.sampled_from("\r\n\0"), plain).map("".join)
fields = st.sampled_from([b"data", b"event", b"id", b"retry", b"data: x\n\n", b"xxxxxxxxxxxxxxx"])
marks = st.sampled_from([b":", b" ", b"\r", b"\n", b"\r\n", b"\n\n", b"7", b"\0"])
broken = st.sampled_from([b"\xef\xbb\xbf", b"\xc3", b"\xa9", b"\xe2\x80\xa8", b"\xff"]) | st.binary(
    max_size=4
)
streams = st.lists(fields | marks | broken).map(b"".join)


def well_formed(text: str) -> str:
    joined = PAIR.sub(lambda pair: pair[0].encode("utf-16", "surrogatepass").decode("utf-16"), text)
    return LONE.sub("\ufffd", joined)


def greedy(text: str, budget: int) -> list[str]:
    """The optimum, character by character: each delta as long as its escaped form allows."""
    deltas, room = [""], budget
    for character in text:
        size = len(json.dumps(character, ensure_ascii=False).encode()) - 2
        if size > room:
            deltas.append("")
            room = budget
        deltas[-1] += character
        room -= size
    return deltas


def pieces(stream: bytes, cuts: list[int]) -> list[bytes]:
    places = [0, *sorted(cut % (len(stream) + 1) for cut in cuts), len(stream)]
    return [stream[start:end] for start, end in pairwise(places)]


def decode(
    parts: list[bytes], limit_bytes: int = 1 << 20
) -> tuple[list[ServerSentEvent], str, int | None, bool]:
    decoder, messages, refused = Decoder(limit_bytes), [], False
    try:
        for part in parts:
            messages += decoder.feed(part)
        messages += decoder.flush()
    except BadInput:
        refused = True
    return messages, decoder.last_id, decoder.retry_ms, refused


@examples(72)
@given(names, names, payloads, st.integers(6, 40), st.booleans(), extras)
def test_chunks_join_fit_and_are_the_fewest(
    kind: str, agent: str, payload: str, budget: int, final: bool, extra: dict[str, Scalar]
) -> None:
    limit_bytes = len(chunk(kind, agent, "", 4096, final=False, **extra)[0]) + budget
    messages = chunk(kind, agent, payload, limit_bytes, final=final, **extra)
    read = [json.loads(message) for message in messages]
    assert [fields["delta"] for fields in read] == greedy(well_formed(payload), budget)
    assert [fields["final"] for fields in read] == [False] * (len(read) - 1) + [final]
    assert max(map(len, messages)) <= limit_bytes
    for fields in read:
        assert list(fields) == ["type", "agent", "final", "delta", *extra]
        assert fields["agent"] == well_formed(agent)


@examples(30)
@given(names, payloads, st.integers(0, 200), extras)
def test_a_chunk_fits_or_is_refused(
    kind: str, payload: str, limit_bytes: int, extra: dict[str, Scalar]
) -> None:
    try:
        messages = chunk(kind, "agent", payload, limit_bytes, final=True, **extra)
    except CallerError:
        return
    assert max(map(len, messages)) <= limit_bytes


@examples(30)
@given(plain, st.none() | labels, st.none() | labels, st.none() | st.integers(0, 10**15 - 1))
def test_a_frame_comes_back(text: str, id: str | None, event: str | None, retry_ms: int | None) -> None:
    frame = encode(text.encode(), id=id, event=event, retry_ms=retry_ms)
    message = ServerSentEvent(LINE_END.sub("\n", text), event or "message", id or "", retry_ms)
    assert decode([frame]) == ([message], id or "", retry_ms, False)


@examples(30)
@given(st.lists(plain), st.lists(st.integers(0, 10**6)))
def test_json_in_frames_comes_back_as_it_was(texts: list[str], cuts: list[int]) -> None:
    lines = [json.dumps({"text": text}, ensure_ascii=False) for text in texts]
    stream = b"".join(encode(line.encode(), id=f"{seq}:0") for seq, line in enumerate(lines))
    messages, _, _, refused = decode(pieces(stream, cuts))
    assert messages == [ServerSentEvent(line, id=f"{seq}:0") for seq, line in enumerate(lines)]
    assert not refused


@examples(72)
@given(streams, st.lists(st.integers(0, 10**6)), st.sampled_from([8, 20, 1 << 20]))
def test_every_chunking_of_anything_is_equal(stream: bytes, cuts: list[int], limit_bytes: int) -> None:
    whole = decode([stream], limit_bytes)
    assert decode(pieces(stream, cuts), limit_bytes) == whole
    assert decode([stream[at : at + 1] for at in range(len(stream))], limit_bytes) == whole


@examples(30)
@given(forging)
def test_labels_that_forge_fields_are_refused(label: str) -> None:
    with pytest.raises(CallerError):
        encode(b"{}", id=label)
    with pytest.raises(CallerError):
        encode(b"{}", event=label)
