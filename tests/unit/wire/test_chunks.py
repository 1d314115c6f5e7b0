"""Messages of a bounded size: the measured sizes of the original, and what it got wrong."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.tables import check_laws, for_each_row
from turnlog.errors import CallerError, InvalidEvent
from turnlog.wire.chunks import MAX_MESSAGE_BYTES, chunk

VECTORS = Path(__file__).parents[2] / "vectors" / "wire" / "chunks.json"
CASES: list[dict[str, Any]] = json.loads(VECTORS.read_text())["cases"]
AGENT = "1" * 36


def payload_of(case: dict[str, Any]) -> str:
    payload: str | list[Any] = case["payload"]
    return payload if isinstance(payload, str) else payload[0] * payload[1]


def chunk_case(case: dict[str, Any]) -> list[bytes]:
    return chunk(
        case["type"],
        case["agent"],
        payload_of(case),
        case.get("limit_bytes", MAX_MESSAGE_BYTES),
        final=case.get("finish", True),
        **case.get("extra", {}),
    )


def seed_chunks(case: dict[str, Any]) -> list[bytes]:
    """The algorithm as seed 003 writes it: split the plain bytes, escape afterwards."""

    def message(final: bool, delta: str) -> bytes:
        fields = {
            "type": case["type"],
            "agent": case["agent"],
            "final": final,
            "delta": delta,
            **case["extra"],
        }
        return json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()

    budget, text = MAX_MESSAGE_BYTES - len(message(False, "")), payload_of(case)
    parts = [text[at : at + budget] for at in range(0, len(text), budget)]
    return [message(part is parts[-1], part) for part in parts]


def check_messages(case: dict[str, Any]) -> None:
    messages = chunk_case(case)
    read = [json.loads(message) for message in messages]
    assert [len(message) for message in messages] == case["messages"]
    assert [len(fields["delta"].encode()) for fields in read] == case["deltas"]
    assert [fields["final"] for fields in read] == case["final"]
    assert "".join(fields["delta"] for fields in read) == payload_of(case)
    assert max(case["messages"]) <= case.get("limit_bytes", MAX_MESSAGE_BYTES)


def check_every_message_carries_all_fields_in_order(case: dict[str, Any]) -> None:
    for message in chunk_case(case):
        fields = json.loads(message)
        assert list(fields) == ["type", "agent", "final", "delta", *case.get("extra", {})]
        assert (fields["type"], fields["agent"]) == (case["type"], case["agent"])
        assert fields.items() >= case.get("extra", {}).items()
        assert message == json.dumps(fields, ensure_ascii=False, separators=(",", ":")).encode()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_vector(case: dict[str, Any]) -> None:
    laws = [
        check_messages,
        check_every_message_carries_all_fields_in_order,
    ]
    check_laws(laws, case)


@for_each_row("case", [case for case in CASES if "original" in case], ids=lambda case: case["name"])
def test_the_original_broke_its_limit_here(case: dict[str, Any]) -> None:
    sizes = [len(message) for message in seed_chunks(case)]
    assert sizes == case["original"]
    assert max(sizes) > MAX_MESSAGE_BYTES


def test_the_bytes_of_the_seed() -> None:
    assert chunk("tool_call", "abc-123", '{"pattern":"TODO"}', id="toolu_01", name="grep_search") == [
        b'{"type":"tool_call","agent":"abc-123","final":true,"delta":"{\\"pattern\\":\\"TODO\\"}",'
        b'"id":"toolu_01","name":"grep_search"}'
    ]


@for_each_row("limit_bytes", range(55, 80))
def test_every_cut_of_every_escape_is_whole(limit_bytes: int) -> None:
    payload = 'a"\\\n\u0001\\u0002é€😀\\\\\u001f"' * 9
    messages = chunk("t", "a", payload, limit_bytes)
    assert "".join(json.loads(message)["delta"] for message in messages) == payload
    assert max(map(len, messages)) <= limit_bytes


def test_lone_surrogates_are_replaced_and_pairs_joined() -> None:
    [message] = chunk("text", AGENT, "cut \ud83d, \ude00 and whole \ud83d\ude00", title="\udfff", page=3)
    fields = json.loads(message)
    assert fields["delta"] == "cut \ufffd, \ufffd and whole 😀"
    assert (fields["title"], fields["page"]) == ("\ufffd", 3)


def test_names_are_escaped_too() -> None:
    [message] = chunk('te"xt', "a\nb", "x", name="\\")
    assert json.loads(message) == {
        "type": 'te"xt',
        "agent": "a\nb",
        "final": True,
        "delta": "x",
        "name": "\\",
    }


@for_each_row("room", [-1, 0, 5])
def test_extras_that_leave_no_room_are_refused(room: int) -> None:
    envelope = len(chunk("t", AGENT, "", final=False, name="")[0])
    with pytest.raises(InvalidEvent, match=rf"expected 6 of 2048 bytes left for 't', got {room}"):
        chunk("t", AGENT, "x", name="n" * (MAX_MESSAGE_BYTES - envelope - room))


def test_the_smallest_room_takes_the_longest_escape() -> None:
    envelope = len(chunk("t", AGENT, "", final=False, name="")[0])
    messages = chunk("t", AGENT, "\u0001" * 3, name="n" * (MAX_MESSAGE_BYTES - envelope - 6))
    assert [len(message) for message in messages] == [2048, 2048, 2047]


def test_the_delta_is_no_extra() -> None:
    with pytest.raises(CallerError, match="expected the delta as payload"):
        chunk("text", AGENT, "x", delta="y")
