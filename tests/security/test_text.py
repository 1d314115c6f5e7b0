"""Rows 16 and 17: text cannot forge a field of a stream, and costs work by its length and no more.

The steps of Python are counted here; `tests/soak/test_growth.py` measures the CPU time.
"""

import re
from collections.abc import Callable
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.security.apps import VOCABULARY, plain
from tests.security.desk import Desk, desk, run
from tests.support.examples import examples
from tests.support.work import LINEAR_TIMES, count_lines
from turnlog.errors import BadInput, InvalidEvent
from turnlog.events import strict_json
from turnlog.parse.inline.tags import strip_event_tags
from turnlog.wire import sse
from turnlog.wire.sse import Decoder

FORGING = (
    'x\n\ndata: {"type":"session.member"}\n\n',
    "x\rid: 9:9\revent: reset\rdata: {}\r\r",
    "x\r\n\r\nretry: 1\r\n\r\n",
    "a\u2028data: b\u2029\u0085event: c",
    "\0id: 1\0",
    "\ufeffdata: x",
)
texts = st.one_of(st.sampled_from(FORGING), st.text(st.characters(codec="utf-8"), min_size=1))


async def told(at: Desk, words: list[str]) -> tuple[list[str], set[str]]:
    """Texts that were posted, as a reader of the stream gets them, and the kinds of its messages."""
    session = await at.session("ada")
    posted = [{"type": "case.note", "payload": {"text": word}} for word in words]
    answer = await at.post("ada", "/api/events", {"session": session, "events": posted})
    assert answer.status == 202
    last = answer.value["seqs"][-1]
    call = at.follow("ada", f"session={session}")
    await call.until(lambda answer: any(event["seq"] >= last for event in answer.events))
    body = (await call.leave()).body
    notes = [event for event in Decoder().feed(body) if '"case.note"' in event.data[:30]]
    kinds = {message.event for message in Decoder().feed(body)} - {"caught-up"}  # it may come later
    read = [strict_json.parse_strict_json(message.data.encode())["payload"]["text"] for message in notes]
    return read, kinds


@examples(25)
@given(st.lists(texts, min_size=1, max_size=20))
def test_every_text_arrives_as_it_was_and_forges_nothing(words: list[str]) -> None:
    async def scenario() -> None:
        async with desk(plain) as at:
            assert await told(at, words) == (words, {"message"})

    run(scenario())


@given(st.text(), st.text())
def test_an_id_or_a_name_that_would_forge_a_field_is_refused(name: str, id: str) -> None:
    forges = re.search("[\r\n\0\ud800-\udfff]", name + id)
    try:
        frame = sse.encode(b"{}", event=name, id=id)
    except InvalidEvent:
        assert forges
    else:
        assert not forges
        [message] = Decoder().feed(frame)
        assert (message.data, message.id) == ("{}", id)


def test_control_a_stream_that_joins_strings_is_forged() -> None:
    frames = [f"data: {text}\n\n".encode() for text in FORGING[:2]]
    added, turned = [Decoder().feed(frame) for frame in frames]
    assert [message.data for message in added] == ["x", '{"type":"session.member"}']
    assert (turned[0].event, turned[0].id) == ("reset", "9:9")


# steps

SIZE = 200
TAG = '<agent-event type="note" data=\'{"text": "'
EVIL: dict[str, Callable[[int], str]] = {
    "tags that do not end": lambda n: TAG * n,
    "tags without an end": lambda n: "<agent-event " * n,
    "openers": lambda n: "<" * 10 * n,
    "quotes": lambda n: TAG + '\\"' * 20 * n,
    "back ticks": lambda n: "`" * 20 * n + "x",
    "back ticks apart": lambda n: "` `` ``` " * 4 * n,
    "comments": lambda n: "<!--" * 10 * n,
    "white space": lambda n: " \n" * 20 * n + "<",
    "braces": lambda n: TAG + "{" * 40 * n,
    "quoted lines": lambda n: "> <agent-event " * 2 * n,
}
BODIES: dict[str, Callable[[int], str]] = {
    "brackets": lambda n: "[" * 10 * n + "]" * 10 * n,
    "pairs": lambda n: "[" + "[],{}," * 5 * n + "1]",
    "strings": lambda n: '["' + '\\"' * 10 * n + '"]',
    "open strings": lambda n: '"\\' * 10 * n,
    "keys": lambda n: "{" + ",".join(f'"k{i}":1' for i in range(2 * n)) + "}",
}


def parsed(text: str) -> object:
    return strip_event_tags(text, VOCABULARY)


def decoded(text: str) -> object:
    try:
        return strict_json.decode_strict_json(text.encode(), dict)
    except BadInput as refusal:
        return refusal


@pytest.mark.parametrize("name", EVIL)
def test_model_text_takes_steps_in_proportion_to_its_length(name: str) -> None:
    assert takes_linear_steps(parsed, EVIL[name])


@pytest.mark.parametrize("name", BODIES)
def test_bodies_take_steps_in_proportion_to_their_length(name: str) -> None:
    assert takes_linear_steps(decoded, BODIES[name])


def takes_linear_steps(work: Callable[[str], object], make: Callable[[int], str]) -> bool:
    """Whether a text that is four times as long takes about four times the steps, and no more."""
    small, large = (count_lines(partial(work, make(size))) for size in (SIZE, 4 * SIZE))
    return large <= LINEAR_TIMES * 4 * small


def test_control_a_parser_that_looks_ahead_at_each_tag_is_seen() -> None:
    def look_ahead(text: str) -> None:
        starts = [number for number, letter in enumerate(text) if letter == "<"]
        for start in starts:
            for letter in text[start:]:
                if letter == ">":
                    break

    assert not takes_linear_steps(look_ahead, EVIL["tags without an end"])
