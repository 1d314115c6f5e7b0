"""Sessions and cursors of a request: lists, their bounds, and cursors that cannot be continued."""

from typing import Literal

import pytest
from starlette.datastructures import QueryParams

from tests.support.tables import for_each_row
from turnlog.errors import BadInput
from turnlog.log import SessionRecord
from turnlog.server.streaming.query import (
    MAX_SESSIONS,
    OPTION_VALUES,
    CursorGone,
    option_values,
    parse_dialect_options,
    parse_dialect_request,
    parse_format,
    parse_session_ids,
    reset_reason,
    resolve_cursor,
    resolve_resume_seq,
    split_cursors,
)
from turnlog.vocabularies import DIALECTS
from turnlog.wire.cursor import UNKNOWN_POSITION, Cursor
from turnlog.wire.dialects import DialectOptions

HEAD = SessionRecord(session_id="sess_1", app="app", epoch="now", first=10, last=41, created_ms=0)


def refused(call: object, *arguments: object) -> tuple[str, str]:
    with pytest.raises(BadInput) as refusal:
        call(*arguments)  # type: ignore[operator]
    return refusal.value.path, str(refusal.value)


@for_each_row(
    ("query", "names"),
    [
        ("session=a", ["a"]),
        ("session=a,b", ["a", "b"]),
        ("session=b,a", ["b", "a"]),
        ("", [""]),
        ("session=", [""]),
    ],
)
def test_sessions_are_a_list_in_its_order(query: str, names: list[str]) -> None:
    assert parse_session_ids(QueryParams(query)) == names


@for_each_row("query", ["session=a,a", "session=a,b,a", "session=,"])
def test_a_session_stands_in_it_once(query: str) -> None:
    assert refused(parse_session_ids, QueryParams(query)) == (
        "session",
        "expected each session once (at session)",
    )


def test_there_are_not_too_many() -> None:
    names = [f"s{number}" for number in range(MAX_SESSIONS + 1)]
    assert len(parse_session_ids(QueryParams({"session": ",".join(names[:-1])}))) == MAX_SESSIONS
    path, words = refused(parse_session_ids, QueryParams({"session": ",".join(names)}))
    assert path == "session"
    assert "at most 32 sessions, got 33" in words


@for_each_row(
    ("text", "count", "cursors"),
    [
        ("", 1, [Cursor()]),
        ("", 3, [Cursor()] * 3),
        ("  ", 2, [Cursor()] * 2),
        ("7", 1, [Cursor(7, "now")]),
        ("7:k3x,-1", 2, [Cursor(7, "k3x"), Cursor()]),
        ("7.2:k3x, 5", 2, [Cursor(7, "k3x", 2), Cursor(5, "now")]),
        (",5", 2, [Cursor(), Cursor(5, "now")]),
        (",NaN", 2, [Cursor(), Cursor()]),
        ("end", 1, [Cursor(41, "now")]),
        (" end ", 2, [Cursor(41, "now")] * 2),
        ("7,end,-1", 3, [Cursor(7, "now"), Cursor(41, "now"), Cursor()]),
        ("-1", 2, [Cursor()] * 2),
        ("NaN", 2, [Cursor()] * 2),
    ],
)
def test_a_cursor_for_each_session(text: str, count: int, cursors: list[Cursor]) -> None:
    assert [resolve_cursor(part, HEAD) for part in split_cursors(text, count)] == cursors


@for_each_row(("text", "count"), [("1", 2), ("1,2", 1), ("1,2,3", 2), ("7:now", 2), ("end,7", 3)])
def test_positions_of_another_number_of_sessions_are_a_reset_for_each(text: str, count: int) -> None:
    cursors = [resolve_cursor(part, HEAD) for part in split_cursors(text, count)]
    assert cursors == [UNKNOWN_POSITION] * count
    assert [reset_reason(at, HEAD) for at in cursors] == ["epoch"] * count


@for_each_row(
    ("at", "reason"),
    [
        (Cursor(9, "now"), None),
        (Cursor(41, "now"), None),
        (Cursor(20), None),
        (Cursor(42, "now"), "ahead"),
        (Cursor(42), "ahead"),
        (Cursor(20, "old"), "epoch"),
        (Cursor(99, "old"), "epoch"),
        (Cursor(8, "now"), "expired"),
        (Cursor(), "expired"),
    ],
)
def test_why_a_cursor_cannot_be_continued(at: Cursor, reason: str | None) -> None:
    assert reset_reason(at, HEAD) == reason


def test_a_plain_answer_begins_after_its_cursor_or_at_the_start() -> None:
    assert [resolve_resume_seq(at, HEAD) for at in (Cursor(20, "now"), Cursor(41), Cursor())] == [20, 41, -1]
    assert resolve_resume_seq(Cursor(20, chunk=3), HEAD) == 19, "a line is whole, and its event was not"


@for_each_row(("at", "reason"), [(Cursor(42), "ahead"), (Cursor(3), "expired"), (Cursor(20, "old"), "epoch")])
def test_or_is_gone_and_says_what_there_is(at: Cursor, reason: str) -> None:
    with pytest.raises(
        CursorGone, match=rf"cannot be continued \({reason}\): the log is 10 to 41 of epoch now"
    ):
        resolve_resume_seq(at, HEAD)


@for_each_row(
    ("text", "meant"),
    [("3", "3:now"), ("3:now", "3:now"), ("3:old", "3:old"), ("3.1", "3.1:now"), ("", "-1"), ("3:", "0:")],
)
def test_a_bare_number_means_the_epoch_of_now_also_later(text: str, meant: str) -> None:
    """On a stream of several sessions it is said again with what another one tells."""
    assert str(resolve_cursor(text, HEAD)) == meant


def test_a_query_names_the_dialect_and_its_options() -> None:
    query = QueryParams("dialect=blocks&stream_tool_results=false&stream_meta_history_and_tool_results=true")
    wanted = parse_dialect_request(query, DIALECTS, DIALECTS.request("turnlog"))
    assert wanted.name == "blocks"
    assert not wanted.options.stream_tool_results
    assert wanted.options.stream_meta_history_and_tool_results


def test_the_default_has_what_a_query_does_not_name() -> None:
    silent = DIALECTS.request("blocks-xml", DialectOptions(stream_tool_results=False))
    assert parse_dialect_request(QueryParams(""), DIALECTS, silent) == silent
    named = parse_dialect_request(QueryParams("dialect=office"), DIALECTS, silent)
    assert named == DIALECTS.request("office", silent.options)
    loud = parse_dialect_request(QueryParams("stream_tool_results=true"), DIALECTS, silent)
    assert loud == DIALECTS.request("blocks-xml", DialectOptions(stream_tool_results=True))


def test_a_wrong_option_is_refused_with_its_values() -> None:
    query = QueryParams("stream_tool_results=True")
    assert refused(parse_dialect_options, query, DialectOptions()) == (
        "stream_tool_results",
        "expected true or false, got 'True' (at stream_tool_results)",
    )


def test_an_option_is_a_flag_or_one_of_its_literals() -> None:
    assert option_values(bool) == {"true": True, "false": False}
    assert option_values(Literal["url", "inline"]) == {"url": "url", "inline": "inline"}
    assert {len(values) > 1 for values in OPTION_VALUES.values()} == {True}
    assert list(OPTION_VALUES) == list(DialectOptions.__struct_fields__)


@for_each_row(
    ("query", "dialect"),
    [
        ("", None),
        ("format=json", "blocks"),
        ("format=xml", "blocks-xml"),
        ("format=raw&dialect=blocks-raw", "blocks-raw"),
    ],
)
def test_a_format_is_the_dialect_that_document_003_calls_so(query: str, dialect: str | None) -> None:
    assert parse_format(QueryParams(query)) == dialect


@for_each_row("query", ["format=yaml", "format=", "format=xml&dialect=blocks"])
def test_a_wrong_format_or_two_that_differ_are_refused(query: str) -> None:
    assert refused(parse_format, QueryParams(query))[0] == "format"


def test_options_of_images_and_citations_are_words() -> None:
    plain = DIALECTS.request("blocks")
    options = parse_dialect_request(QueryParams("images=inline&citations=whole"), DIALECTS, plain).options
    assert (options.images, options.citations) == ("inline", "whole")
    assert refused(parse_dialect_request, QueryParams("images=data"), DIALECTS, plain) == (
        "images",
        "expected url or inline, got 'data' (at images)",
    )


def test_dense_ids_need_a_dialect_that_has_them() -> None:
    office = DIALECTS.request("office")
    assert parse_dialect_request(QueryParams("ids=dense"), DIALECTS, office).options.ids == "dense"
    assert refused(parse_dialect_request, QueryParams("ids=dense&dialect=blocks"), DIALECTS, office) == (
        "ids",
        "expected a dialect with dense ids, got blocks (at ids)",
    )
