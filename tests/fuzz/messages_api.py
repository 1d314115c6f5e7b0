"""The stream of the Messages API, one JSON event a line: every block ends once and everything is storable.

A delta that comes in single characters gives the same blocks as the delta in one piece.
"""

from collections.abc import Iterable, Iterator
from itertools import count
from typing import Any

import msgspec

from turnlog.events import CATALOG, BlockDelta, BlockEnd, BlockStart, ParseReject, Payload, ToolCall
from turnlog.parse import MessagesParser, ReplyBuilder

CUT_FIELDS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}
MAX_EVENTS = 64  # a long stream finds nothing that a short one does not


def read_events(data: bytes) -> Iterator[Any]:
    for line in data.split(b"\n")[:MAX_EVENTS]:
        try:
            yield msgspec.json.decode(line)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            continue


def new_parser() -> MessagesParser:
    numbers = count()
    return MessagesParser(ReplyBuilder(lambda prefix: f"{prefix}{next(numbers)}"))


def parse_events(parser: MessagesParser, events: Iterable[Any]) -> list[Payload]:
    return [payload for event in events for payload in parser.feed(event)] + parser.flush()


def cut_delta(event: Any) -> list[Any]:
    """Return the event, or one event for each character where it is the delta of a text."""
    delta = event.get("delta") if isinstance(event, dict) else None
    if not isinstance(delta, dict) or event.get("type") != "content_block_delta":
        return [event]
    kind = delta.get("type")
    if not isinstance(kind, str) or kind not in CUT_FIELDS or len(delta) > 2:
        return [event]
    name = CUT_FIELDS[kind]
    piece = delta.get(name)
    if not isinstance(piece, str) or len(piece) < 2:
        return [event]
    return [{**event, "delta": {**delta, name: character}} for character in piece]


def check_blocks(payloads: Iterable[Payload], block_ids: Iterable[str]) -> None:
    started: set[str] = set()
    ended: set[str] = set()
    for payload in payloads:
        match payload:
            case BlockStart():
                assert payload.block_id not in started
                started.add(payload.block_id)
            case BlockDelta():
                assert payload.block_id in started - ended
            case BlockEnd():
                assert payload.block_id in started - ended
                ended.add(payload.block_id)
    assert ended == started == set(block_ids)


def without_cuts(payloads: Iterable[Payload]) -> tuple[dict[str, str], list[Payload]]:
    """Return the text of each block, and all payloads that do not depend on how deltas were cut."""
    texts: dict[str, str] = {}
    others: list[Payload] = []
    for payload in payloads:
        if isinstance(payload, BlockDelta):
            texts[payload.block_id] = texts.get(payload.block_id, "") + payload.text
        elif not isinstance(payload, ParseReject):
            others.append(payload)
    return texts, others


def target(data: bytes) -> None:
    events = list(read_events(data))
    parser = new_parser()
    payloads = parse_events(parser, events)

    check_blocks(payloads, parser.reply.block_ids)
    calls = [item for item in payloads if isinstance(item, ToolCall) and item.executor == "backend"]
    assert calls == parser.reply.calls
    assert not calls or parser.reply.complete
    for payload in payloads:
        kind = CATALOG.get_event_type(CATALOG.get_type_name(type(payload)))
        CATALOG.build_event(
            payload, id="evt_1", origin="model" if kind.allows_origin(payload, "model") else "system"
        )

    pieces = [piece for event in events for piece in cut_delta(event)]
    assert without_cuts(parse_events(new_parser(), pieces)) == without_cuts(payloads)
