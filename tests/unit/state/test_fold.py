"""Reducers by class, and the same state however the events are cut."""

from typing import Any

import msgspec
import pytest

from tests.support.folds import apply_events
from tests.support.written_logs import Item, entry, plain_log
from turnlog.events import (
    CORE,
    BlockDelta,
    Catalog,
    Envelope,
    Payload,
    SessionError,
    UiMessage,
    UnknownPayload,
    Vocabulary,
)
from turnlog.state.fold import Reducers, fold
from turnlog.state.tree import Tree


class Renamed(Payload, frozen=True, kw_only=True):
    name: str


class Counted(Payload, frozen=True, kw_only=True):
    pass


class CountedTwice(Counted, frozen=True, kw_only=True):
    pass


CATALOG = Catalog(CORE, Vocabulary("counter", [Renamed, Counted, CountedTwice]))


def rename(state: dict[str, Any], payload: Renamed, envelope: Envelope) -> dict[str, Any]:
    return {**state, "name": payload.name, "at": envelope.ts}


def count(state: dict[str, Any], _: Counted, __: Envelope) -> dict[str, Any]:
    return {**state, "count": state.get("count", 0) + 1}


REDUCERS: Reducers = {Renamed: rename, Counted: count}
UNKNOWN = (entry(UiMessage(text="new"), seq=9)[0], UnknownPayload(msgspec.Raw(b'{"name":"Eve"}')))
EVENTS: list[Item] = [
    *plain_log([Counted(), Renamed(name="Ada"), UiMessage(text="no reducer")], CATALOG),
    UNKNOWN,
    *plain_log([Counted(), Renamed(name="Grace"), BlockDelta(block_id="blk_1", text="x")], CATALOG),
]
STATE = {"count": 2, "name": "Grace", "at": "2026-01-08T12:34:56.001Z"}


def test_each_class_has_its_reducer() -> None:
    assert fold(REDUCERS, EVENTS, {}) == STATE


def test_no_events_leave_the_start_as_it_is() -> None:
    start = {"name": "Ada"}
    assert fold(REDUCERS, [], start) is start


def test_events_without_a_reducer_leave_the_very_same_state() -> None:
    start = {"name": "Ada"}
    others = plain_log([UiMessage(text="hi"), SessionError(code="c", message="m")], CATALOG)
    assert fold(REDUCERS, [*others, UNKNOWN], start) is start
    assert fold({}, EVENTS, start) is start


def test_a_reducer_is_for_its_class_and_not_for_what_derives_from_it() -> None:
    assert fold(REDUCERS, plain_log([CountedTwice()], CATALOG), {}) == {}


def test_the_start_is_not_changed() -> None:
    start: dict[str, Any] = {}
    fold(REDUCERS, EVENTS, start)
    assert start == {}


@pytest.mark.parametrize("cut", range(len(EVENTS) + 1))
def test_a_state_and_the_rest_of_the_events_give_the_whole(cut: int) -> None:
    before = fold(REDUCERS, EVENTS[:cut], {})
    assert fold(REDUCERS, EVENTS[cut:], before) == STATE


def test_any_iterable_is_read_once() -> None:
    assert fold(REDUCERS, iter(EVENTS), {}) == STATE


def test_a_fold_with_books_of_its_own_takes_the_same_events() -> None:
    tree = Tree()
    assert apply_events(tree, iter(EVENTS)) is tree
    assert tree.last_seq == 2
