"""Ids are a prefix and a UUIDv7."""

import os
import re
import time
from typing import get_args
from uuid import RFC_4122, UUID

import pytest

from turnlog.ids import (
    RANDOM_PARTS,
    Prefix,
    new_epoch,
    new_id,
    new_session_id,
    now_ms,
    to_event_id,
    uuid7,
)

# RFC 9562, appendix A.6: the time, and rand_a (12 bits) and rand_b (62 bits) in the ten bytes given
RFC_TIME = 0x017F22E279B0
RFC_RANDOM = (0xCC3 << 68 | 0x18C4DC0C0C07398F).to_bytes(10)


def test_the_example_of_the_rfc() -> None:
    assert uuid7(RFC_TIME, RFC_RANDOM) == "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"


@pytest.mark.parametrize("random", [b"\0" * 10, b"\xff" * 10, bytes(range(10)), b"\xff" * 20])
def test_version_and_variant_stand_whatever_is_random(random: bytes) -> None:
    value = UUID(uuid7(RFC_TIME, random))
    assert (value.version, value.variant, value.int >> 80) == (7, RFC_4122, RFC_TIME)


def test_now_ms_returns_the_clock_in_whole_milliseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 1_767_875_696_789_999_999)
    assert now_ms() == 1_767_875_696_789


@pytest.mark.parametrize("prefix", get_args(Prefix))
def test_new_ids_are_fresh(prefix: Prefix) -> None:
    before, first, second = now_ms(), new_id(prefix), new_id(prefix)
    assert first != second
    assert first.startswith(prefix)
    assert before <= UUID(first.removeprefix(prefix)).int >> 80 <= now_ms()


def random_parts(count: int) -> set[str]:
    return {new_id("evt_")[-12:] for _ in range(count)}


def test_ids_are_fresh_beyond_what_is_read_at_a_time() -> None:
    assert len(random_parts(3 * RANDOM_PARTS)) == 3 * RANDOM_PARTS


def test_ids_of_a_forked_process_are_not_those_of_its_parent() -> None:
    new_id("evt_")
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, " ".join(random_parts(RANDOM_PARTS)).encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with open(reader) as pipe:
        assert not random_parts(RANDOM_PARTS) & set(pipe.read().split())


def test_a_session_is_called_by_128_bits_that_say_nothing() -> None:
    names = {new_session_id() for _ in range(200)}
    digits = ["".join(place) for place in zip(*(name.removeprefix("sess_") for name in names), strict=True)]
    assert (len(names), len(digits)) == (200, 32)
    assert all(len(set(column)) > 8 for column in digits), "no digit is given by time or version"


def test_an_epoch_is_eight_plain_characters_and_begins_with_a_letter() -> None:
    epochs = {new_epoch() for _ in range(200)}
    assert len(epochs) == 200
    assert all(re.fullmatch("[g-v][0-9a-f]{7}", epoch) for epoch in epochs)
    assert len({epoch[0] for epoch in epochs}) > 8


@pytest.mark.parametrize(
    ("id", "event_id"),
    [
        ("017f22e2-79b0-7cc3-98c4-dc0c0c07398f", "evt_017f22e2-79b0-7cc3-98c4-dc0c0c07398f"),
        ("017F22E2-79B0-7CC3-98C4-DC0C0C07398F", "evt_017f22e2-79b0-7cc3-98c4-dc0c0c07398f"),
        ("evt_017F22E2", "evt_017F22E2"),
        ("017f22e279b07cc398c4dc0c0c07398f", "017f22e279b07cc398c4dc0c0c07398f"),
        ("017f22e2-79b0-7cc3-98c4-dc0c0c07398f\n", "017f22e2-79b0-7cc3-98c4-dc0c0c07398f\n"),
        ("", ""),
    ],
)
def test_a_bare_uuid_is_the_event_id_with_the_prefix_and_other_ids_stay(id: str, event_id: str) -> None:
    assert to_event_id(id) == event_id
