"""The dialect `ai-sdk` on legal logs, judged by the clients 5, 6 and 7 themselves."""

import json
from collections.abc import Iterator
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.foreign_clients.node import Client, running_client
from tests.support.examples import examples
from tests.support.random_logs import Legal, expected, logs, pruned
from tests.support.written_logs import Item
from turnlog.wire import sse
from turnlog.wire.dialects.ai_sdk.dialect import AiSdk
from turnlog.wire.dialects.ai_sdk.messages import ChatMessages
from turnlog.wire.dialects.ai_sdk.writer import AiSdkRun
from turnlog.wire.dialects.base import DialectOptions, no_history

quick = examples(10)
cuts = st.integers(0, 2**16)
Placed = tuple[int, int, bytes]  # a seq, the number within the event, and the message


@pytest.fixture(scope="module", params=["5", "6", "7"])
def judge(request: pytest.FixtureRequest) -> Iterator[tuple[Client, DialectOptions]]:
    with running_client("ai_sdk.mjs", f"ai{request.param}") as client:
        yield client, DialectOptions(ai_sdk=request.param)


def convert(dialect: AiSdk, items: list[Item]) -> list[Placed]:
    return [
        (envelope.seq, number, message)
        for envelope, payload in items
        for number, message in enumerate(dialect.convert(envelope, payload))
    ]


def replay(client: Client, messages: list[bytes]) -> list[Any]:
    """Give a stream to the real client. Return its messages; it must neither refuse nor warn."""
    body = b"".join([sse.encode(message) for message in messages]).decode()
    report = client.do("replay", body=body)
    # an error that the stream reports is not one of the client
    errors = [json.loads(message)["errorText"] for message in messages if b'"errorText"' in message[:40]]
    assert (report["warnings"], report.get("failure")) == ([], None)
    assert all(any(text in error for text in errors) for error in report["errors"])
    return list(report["messages"])


def turn_of(items: list[Item]) -> list[Item]:
    """Return the events of the last turn: one response shows one turn."""
    trace = items[-1][0].trace_id
    return [item for item in items if item[0].trace_id == trace]


@quick
@given(legal=logs(), cut=cuts)
def test_a_reader_that_comes_back_misses_and_repeats_nothing(legal: Legal, cut: int) -> None:
    whole = convert(AiSdk(), legal.items)
    if not whole:
        return
    seq, number, _ = whole[cut % len(whole)]
    complete = cut % len(whole) == len(whole) - 1 or whole[cut % len(whole) + 1][0] > seq
    start = legal.turn_start(seq if complete else seq - 1)
    again = convert(AiSdk(), legal.items[start:])
    before = [one for one in whole if one[:2] <= (seq, number)]
    assert before + [one for one in again if one[:2] > (seq, number)] == whole


@quick
@given(legal=logs(), cut=cuts)
def test_the_client_takes_a_replay_from_anywhere(
    judge: tuple[Client, DialectOptions], legal: Legal, cut: int
) -> None:
    client, options = judge
    items = turn_of(legal.items)
    dialect = AiSdk(options, no_history, AiSdkRun(replays=True))
    place = cut % (len(items) + 1)
    assert convert(dialect, items[:place]) == []
    messages = dialect.begin() + [message for _, _, message in convert(dialect, items[place:])]
    replay(client, messages + dialect.close())


@quick
@given(legal=logs())
def test_the_texts_are_what_the_log_says_with_and_without_deltas(legal: Legal) -> None:
    said = expected(legal.items)
    wanted = "".join(text for mine in said.values() for kind, text in mine if kind == "text")
    for version in ("5", "6", "7"):
        for items in (legal.items, pruned(legal.items)):
            texts = texts_of(AiSdk(DialectOptions(ai_sdk=version)), items)
            assert sorted("".join(texts)) == sorted(wanted)


def texts_of(dialect: AiSdk, items: list[Item]) -> list[str]:
    """Return the texts of all messages, and those of sub-agents."""
    chat = ChatMessages()
    for _, _, message in convert(dialect, items):
        chat.apply(json.loads(message))
    parts = [part for message in chat.messages for part in message["parts"]]
    cards = [part["data"]["parts"] for part in parts if part["type"] == "data-agent"]
    return [part["text"] for part in (*parts, *chain(*cards)) if part["type"] == "text"]
