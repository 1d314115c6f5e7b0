"""The dialect `ag-ui` on legal logs, judged by the protocol's own client: its checks and its reducer."""

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.foreign_clients.node import Client, running_client
from tests.support.examples import examples
from tests.support.random_logs import Legal, expected, logs, pruned
from tests.support.written_logs import Item
from turnlog.wire.dialects.ag_ui.dialect import AgUi
from turnlog.wire.dialects.ag_ui.writer import AgUiRun
from turnlog.wire.dialects.base import DialectOptions, no_history

quick = examples(14)
cuts = st.integers(0, 2**16)
Placed = tuple[int, int, bytes]  # a seq, the number within the event, and the message


class Judge(NamedTuple):
    """A client of AG-UI, and the options for its version."""

    client: Client
    options: DialectOptions


@pytest.fixture(scope="module", params=["0", "1"])
def judge(request: pytest.FixtureRequest) -> Iterator[Judge]:
    with running_client("ag_ui.mjs", f"ag-ui-{request.param}") as client:
        yield Judge(client, DialectOptions(ag_ui=request.param))


def convert(dialect: AgUi, items: list[Item]) -> list[Placed]:
    return [
        (envelope.seq, number, message)
        for envelope, payload in items
        for number, message in enumerate(dialect.convert(envelope, payload))
    ]


def replay(judge: Judge, messages: list[bytes], earlier: list[Any] | None = None) -> list[Any]:
    """Give messages to the real client. Return its messages; it must neither refuse nor warn."""
    events = [json.loads(message) for message in messages]
    report = judge.client.do("replay", events=events, messages=earlier or [])
    assert (report["warnings"], report.get("failure")) == ([], None)
    return list(report["messages"])


def respond(judge: Judge, items: list[Item], cut: int, **fields: Any) -> list[bytes]:
    """Return a response that begins after `cut` events."""
    dialect = AgUi(judge.options, no_history, AgUiRun("thread", "run", **fields))
    assert convert(dialect, items[:cut]) == []
    messages = dialect.begin()
    messages += [message for _, _, message in convert(dialect, items[cut:])]
    return messages + dialect.close()


def standing(messages: list[Any]) -> dict[str, str]:
    """Return the texts of each sub-agent; those of other agents together."""
    texts: dict[str, str] = {}
    for message in messages:
        if message["role"] == "assistant" and message.get("content"):
            owner = message.get("subagentRunId", "")
            texts[owner] = texts.get(owner, "") + message["content"]
    return texts


@quick
@given(legal=logs(), cut=cuts)
def test_a_reader_that_comes_back_misses_and_repeats_nothing(legal: Legal, cut: int) -> None:
    whole = convert(AgUi(), legal.items)
    seq, number, _ = whole[cut % len(whole)]
    complete = cut % len(whole) == len(whole) - 1 or whole[cut % len(whole) + 1][0] > seq
    start = legal.turn_start(seq if complete else seq - 1)
    again = convert(AgUi(), legal.items[start:])
    before = [one for one in whole if one[:2] <= (seq, number)]
    assert before + [one for one in again if one[:2] > (seq, number)] == whole


@quick
@given(legal=logs())
def test_between_turns_nothing_is_open(legal: Legal) -> None:
    dialect = AgUi()
    begins = {first for first, _ in legal.turns}
    for envelope, payload in legal.items:
        if envelope.seq in begins:
            assert dialect.idle
        dialect.convert(envelope, payload)
    assert dialect.idle
    assert dialect.close() == []


@quick
@given(legal=logs())
def test_the_client_takes_a_whole_session(judge: Judge, legal: Legal) -> None:
    replay(judge, [message for _, _, message in convert(AgUi(judge.options), legal.items)])


@quick
@given(legal=logs(), cut=cuts, end=cuts)
def test_the_client_takes_a_response_that_begins_and_ends_anywhere(
    judge: Judge, legal: Legal, cut: int, end: int
) -> None:
    items = legal.items[: end % (len(legal.items) + 1)]
    replay(judge, respond(judge, items, cut % (len(items) + 1)))


@quick
@given(legal=logs(), cut=cuts)
def test_attaching_anywhere_gives_the_messages_of_the_thread(judge: Judge, legal: Legal, cut: int) -> None:
    at_start = replay(judge, respond(judge, legal.items, 0, sends_messages=True))
    at_end = replay(judge, respond(judge, legal.items, len(legal.items), sends_messages=True))
    attached = replay(judge, respond(judge, legal.items, cut % (len(legal.items) + 1), sends_messages=True))
    assert without_empty(attached) == without_empty(at_start) == without_empty(at_end)


def without_empty(messages: list[Any]) -> list[Any]:
    """Retracted reasoning is an empty message, unless it was never sent."""
    return [message for message in messages if message.get("content") != ""]


@quick
@given(legal=logs())
def test_the_texts_are_what_the_log_says_with_and_without_deltas(judge: Judge, legal: Legal) -> None:
    said = expected(legal.items)
    wanted = "".join(sorted(text for mine in said.values() for kind, text in mine if kind == "text"))
    for items in (legal.items, pruned(legal.items)):
        texts = standing(replay(judge, respond(judge, items, 0, sends_messages=True)))
        assert sorted("".join(texts.values())) == sorted(wanted)


@quick
@given(legal=logs())
def test_a_message_is_one_object_on_one_line(legal: Legal) -> None:
    for _, _, message in convert(AgUi(), legal.items):
        assert b"\n" not in message
        assert b":null" not in message.replace(b'\\":null', b"")
