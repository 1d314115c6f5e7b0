"""Inputs of parsers that real streams hardly have: each is refused or passed by, and nothing is raised."""

from tests.support.claude_vectors import counting
from turnlog.events import ParseReject
from turnlog.parse.claude.tool_results import find_denied_calls
from turnlog.parse.json_values import sdk_to_dict
from turnlog.parse.messages_api import MessagesParser
from turnlog.parse.reply import ReplyBuilder


def start(kind: str = "text") -> dict[str, object]:
    return {"type": "content_block_start", "index": 0, "content_block": {"type": kind, "text": ""}}


def test_delta_whose_piece_is_no_text_is_rejected() -> None:
    parser = MessagesParser(ReplyBuilder(counting()))
    parser.feed({"type": "message_start", "message": {"id": "msg_1", "model": "m"}})
    parser.feed(start())
    delta = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": 7}}
    [reject] = parser.feed(delta)
    assert isinstance(reject, ParseReject)
    assert reject.reason == "bad_delta"


def test_block_that_is_not_open_is_dropped_without_an_event() -> None:
    assert MessagesParser(ReplyBuilder(counting())).drop(7) == []


def test_value_without_to_dict_stays_as_it_is() -> None:
    assert sdk_to_dict(7) == 7


def test_only_calls_with_a_denial_are_denied() -> None:
    items = [{"id": "a", "permission_decision": "allow"}, {"id": "b", "permission_decision": "denied"}]
    assert find_denied_calls({"tool_result_meta": items}) == {"b"}


class SlottedDelta:
    """A delta as an object without a dict, as an SDK may build it."""

    __slots__ = ("text", "type")

    def __init__(self, text: str) -> None:
        self.type = "text_delta"
        self.text = text


def test_delta_without_a_dict_is_read_by_its_attributes() -> None:
    parser = MessagesParser(ReplyBuilder(counting()))
    parser.feed({"type": "message_start", "message": {"id": "msg_1", "model": "m"}})
    parser.feed(start())
    parser.feed({"type": "content_block_delta", "index": 0, "delta": SlottedDelta("Hi")})
    assert parser.reply.text_so_far == "Hi"


class SdkObject:
    def to_dict(self, *, mode: str, warnings: bool) -> dict[str, object]:
        return {"mode": mode, "warnings": warnings}


def test_object_of_an_sdk_becomes_its_dict() -> None:
    assert sdk_to_dict(SdkObject()) == {"mode": "json", "warnings": False}
