"""Offsets, headers and parameters of Durable Streams requests."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.tables import for_each_row
from turnlog.errors import BadInput
from turnlog.wire.durable_streams.events import Producer
from turnlog.wire.durable_streams.offsets import (
    ANY_TAG,
    NOW,
    START,
    Offset,
    format_offset,
    parse_offset,
    tag_epoch,
)
from turnlog.wire.durable_streams.requests import (
    AppendHeaders,
    CreateRequest,
    ForkRequest,
    LiveMode,
    ReadRequest,
    media_type_of,
    parse_append,
    parse_create,
    parse_read,
    parse_time_ms,
)

ZERO = "0000000000000000_0000000000000000"
positions = st.integers(0, 10**16 - 1)
tags = st.integers(0, 2**48 - 1)


@given(positions, tags)
def test_an_offset_is_read_as_it_was_written(position: int, tag: int) -> None:
    assert parse_offset(format_offset(position, tag)) == Offset(position, tag)


@given(positions, positions, tags)
def test_offsets_sort_like_their_positions(one: int, other: int, tag: int) -> None:
    assert (format_offset(one, tag) < format_offset(other, tag)) == (one < other)


@given(st.text())
def test_an_epoch_has_a_tag_that_fits_an_offset(epoch: str) -> None:
    tag = tag_epoch(epoch.encode(errors="replace").decode())
    assert tag != ANY_TAG
    assert len(format_offset(0, tag)) == len(ZERO)


def test_sentinels_are_the_start_and_the_end() -> None:
    assert parse_offset("-1") == START == parse_offset(ZERO)
    assert parse_offset("now") == NOW


@for_each_row("text", ["", "1", "0,1", "0 1", ZERO + "0", ZERO.replace("_", "-"), "٠" * 16 + "_" + "0" * 16])
def test_another_form_of_offset_is_refused(text: str) -> None:
    with pytest.raises(BadInput, match="expected an offset"):
        parse_offset(text)


CREATED = CreateRequest("application/octet-stream", None, None, False, None)
FORKED = ForkRequest("/v1/stream/a", None, 0)


@for_each_row(
    ("headers", "expected"),
    [
        ({}, CREATED),
        ({"content-type": "  "}, CREATED),
        ({"content-type": "nonsense"}, CREATED),
        (
            {"content-type": "text/plain; charset=utf-8"},
            CREATED._replace(content_type="text/plain; charset=utf-8"),
        ),
        ({"stream-ttl": "0"}, CREATED._replace(ttl_s=0)),
        ({"stream-ttl": "3600", "stream-closed": "true"}, CREATED._replace(ttl_s=3600, closed=True)),
        ({"stream-closed": "yes"}, CREATED),
        ({"stream-expires-at": "2026-01-08T12:00:00Z"}, CREATED._replace(expires_at="2026-01-08T12:00:00Z")),
        ({"stream-expires-at": "2026-01-08t12:00:00z"}, CREATED._replace(expires_at="2026-01-08t12:00:00z")),
        ({"stream-forked-from": "/v1/stream/a"}, CREATED._replace(content_type=None, fork=FORKED)),
        (
            {"stream-forked-from": "/v1/stream/a", "stream-fork-offset": ZERO, "stream-fork-sub-offset": "3"},
            CREATED._replace(content_type=None, fork=FORKED._replace(offset=START, sub_offset=3)),
        ),
        (
            {"stream-forked-from": "/v1/stream/a", "stream-fork-offset": "now", "content-type": "text/plain"},
            CREATED._replace(content_type="text/plain", fork=FORKED),
        ),
    ],
)
def test_headers_of_a_put(headers: dict[str, str], expected: CreateRequest) -> None:
    assert parse_create(headers) == expected


@for_each_row(
    ("headers", "problem"),
    [
        ({"stream-ttl": "60", "stream-expires-at": "2026-01-08T12:00:00Z"}, "got both"),
        ({"stream-ttl": "-1"}, "without leading zeros"),
        ({"stream-ttl": "+1"}, "without leading zeros"),
        ({"stream-ttl": "01"}, "without leading zeros"),
        ({"stream-ttl": "1.5"}, "without leading zeros"),
        ({"stream-ttl": "1e3"}, "without leading zeros"),
        ({"stream-ttl": "9" * 40}, "of at most"),
        ({"stream-expires-at": "tomorrow"}, "expected a time"),
        ({"stream-expires-at": "2026-01-08T12:00:00"}, "expected a time"),
        ({"stream-expires-at": "2026-01-08"}, "expected a time"),
        ({"stream-expires-at": "2026-01-08T12Z"}, "expected a time"),
        ({"stream-expires-at": "20260108T120000Z"}, "expected a time"),
        ({"stream-expires-at": "2026-W02-4T12:00:00Z"}, "expected a time"),
        ({"stream-expires-at": "2026-02-30T12:00:00Z"}, "expected a time"),
        ({"stream-fork-sub-offset": "0"}, "Stream-Forked-From"),
        ({"stream-forked-from": "/v1/stream/a", "stream-fork-sub-offset": ""}, "whole number"),
        ({"stream-forked-from": "/v1/stream/a", "stream-fork-offset": "x"}, "expected an offset"),
        ({"content-type": "text/" + "x" * 300}, "at most 256"),
    ],
)
def test_wrong_headers_of_a_put_are_refused(headers: dict[str, str], problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        parse_create(headers)


PRODUCER = {"producer-id": "p", "producer-epoch": "1", "producer-seq": "2"}


@for_each_row(
    ("headers", "expected"),
    [
        ({}, AppendHeaders(None, False, None, None)),
        (
            {"content-type": "text/plain", "stream-seq": "a", "stream-closed": "true"},
            AppendHeaders("text/plain", True, None, "a"),
        ),
        (PRODUCER, AppendHeaders(None, False, Producer(id="p", epoch=1, seq=2), None)),
        (
            PRODUCER | {"producer-seq": str(2**53 - 1)},
            AppendHeaders(None, False, Producer(id="p", epoch=1, seq=2**53 - 1), None),
        ),
    ],
)
def test_headers_of_a_post(headers: dict[str, str], expected: AppendHeaders) -> None:
    assert parse_append(headers) == expected


@for_each_row(
    ("headers", "problem"),
    [
        ({"producer-id": "p"}, "together"),
        ({"producer-epoch": "1", "producer-seq": "2"}, "together"),
        (PRODUCER | {"producer-id": ""}, "1 to 256"),
        (PRODUCER | {"producer-id": "p" * 257}, "1 to 256"),
        (PRODUCER | {"producer-epoch": "1abc"}, "whole number"),
        (PRODUCER | {"producer-seq": "-1"}, "whole number"),
        (PRODUCER | {"producer-seq": str(2**53)}, "of at most"),
        ({"stream-seq": "s" * 257}, "at most 256"),
    ],
)
def test_wrong_headers_of_a_post_are_refused(headers: dict[str, str], problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        parse_append(headers)


@for_each_row(
    ("arguments", "expected"),
    [
        (([], "", None, None), ReadRequest(START, LiveMode.NONE, None)),
        (([ZERO], "", "x", None), ReadRequest(START, LiveMode.NONE, None)),
        ((["now"], "long-poll", "17", None), ReadRequest(NOW, LiveMode.LONG_POLL, 17)),
        ((["-1"], "sse", None, ""), ReadRequest(START, LiveMode.SSE, None)),
        # A browser reconnects with its old URL: the header wins.
        ((["-1"], "sse", None, format_offset(7, 1)), ReadRequest(Offset(7, 1), LiveMode.SSE, None)),
        (([], "sse", None, format_offset(7, 1)), ReadRequest(Offset(7, 1), LiveMode.SSE, None)),
        ((["-1"], "", None, format_offset(7, 1)), ReadRequest(START, LiveMode.NONE, None)),
    ],
)
def test_parameters_of_a_get(arguments: Any, expected: ReadRequest) -> None:
    assert parse_read(*arguments) == expected


@for_each_row(
    ("arguments", "problem"),
    [
        ((["-1", "now"], "", None, None), "one offset"),
        (([""], "", None, None), "expected an offset"),
        (([], "sse", None, None), "to wait at"),
        (([], "long-poll", None, None), "to wait at"),
        ((["-1"], "websocket", None, None), "long-poll or sse"),
        ((["-1"], "sse", None, "seven"), "Last-Event-ID"),
    ],
)
def test_wrong_parameters_of_a_get_are_refused(arguments: Any, problem: str) -> None:
    with pytest.raises(BadInput, match=problem):
        parse_read(*arguments)


def test_times_have_their_zone() -> None:
    assert parse_time_ms("1970-01-01T00:00:01.500Z") == 1500
    assert parse_time_ms("1970-01-01T01:00:01+01:00") == 1000


def test_content_types_are_compared_without_parameters_and_case() -> None:
    assert media_type_of(" Application/JSON ; charset=utf-8") == "application/json"
