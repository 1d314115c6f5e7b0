"""Reducers by class, and the same state however the events are cut."""

from typing import Any

import msgspec
import pytest

from turnlog.events import BlockDelta, Payload, SessionError, UiMessage, Unknown
from turnlog.state.fold import Reducers, fold


class Renamed(Payload, frozen=True, kw_only=True):
    name: str


class Counted(Payload, frozen=True, kw_only=True):
    pass


class CountedTwice(Counted, frozen=True, kw_only=True):
    pass


def rename(state: dict[str, Any], payload: Renamed) -> dict[str, Any]:
    return {**state, "name": payload.name}


def count(state: dict[str, Any], payload: Counted) -> dict[str, Any]:
    return {**state, "count": state.get("count", 0) + 1}


REDUCERS: Reducers = {Renamed: rename, Counted: count}
EVENTS: list[Payload | Unknown] = [
    Counted(),
    Renamed(name="Ada"),
    UiMessage(text="no reducer"),
    Unknown(msgspec.Raw(b'{"name":"Eve"}')),
    Counted(),
    Renamed(name="Grace"),
    BlockDelta(block_id="blk_1", text="x"),
]


def test_each_class_has_its_reducer() -> None:
    assert fold(REDUCERS, EVENTS, {}) == {"count": 2, "name": "Grace"}


def test_no_events_leave_the_start_as_it_is() -> None:
    start = {"name": "Ada"}
    assert fold(REDUCERS, [], start) is start


def test_events_without_a_reducer_leave_the_very_same_state() -> None:
    start = {"name": "Ada"}
    others: list[Payload | Unknown] = [
        UiMessage(text="hi"),
        SessionError(code="c", message="m"),
        Unknown(msgspec.Raw(b"{}")),
    ]
    assert fold(REDUCERS, others, start) is start
    assert fold({}, EVENTS, start) is start


def test_a_reducer_is_for_its_class_and_not_for_what_derives_from_it() -> None:
    assert fold(REDUCERS, [CountedTwice()], {}) == {}


def test_the_start_is_not_changed() -> None:
    start: dict[str, Any] = {}
    fold(REDUCERS, EVENTS, start)
    assert start == {}


@pytest.mark.parametrize("cut", range(len(EVENTS) + 1))
def test_a_state_and_the_rest_of_the_events_give_the_whole(cut: int) -> None:
    before = fold(REDUCERS, EVENTS[:cut], {})
    assert fold(REDUCERS, EVENTS[cut:], before) == fold(REDUCERS, EVENTS, {})


def test_any_iterable_is_read_once() -> None:
    assert fold(REDUCERS, iter(EVENTS), {}) == fold(REDUCERS, EVENTS, {})
