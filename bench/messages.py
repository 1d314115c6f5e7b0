"""What the Messages stream costs: `python -m bench.messages`.

Every round runs all candidates, ratios are taken inside a round, tables show medians of CPU time. Goals: M1,
a text of 32,000 characters in chunks of 8..40: per chunk 40 times cheaper than what the SDK's helper does
with the same event objects (`accumulate_event` and `build_events`; it keeps a whole message, so it is an
anchor and not the same job): for the tags alone, as the goal was set, while the whole way to payloads is only
shown. M2, 16 kB of tool arguments: per chunk 8 times cheaper than reading what there is with jiter's partial
mode. M3: 200,000 characters cost at most 1.5 times as much per character as 20,000.
"""

import json
import sys
from collections.abc import Callable, Sequence
from itertools import count
from statistics import median
from typing import Any

import jiter
from anthropic._models import construct_type
from anthropic.lib.streaming._messages import accumulate_event, build_events
from anthropic.types import RawMessageStreamEvent

from bench.tags import corpus, cut, interleaved, speed, stream, verdict
from turnlog.parse import AgentStreamParser, MessagesParser, ReplyBuilder, strip_event_tags

TEXT_CHARS = 32_000
ARGUMENT_CHARS = 16_000
SIZES = (20_000, 200_000)
OFTEN = 5  # a reply is short for a clock; so many make one measurement

START = {
    "type": "message_start",
    "message": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "m",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 1, "output_tokens": 1},
    },
}
ENDS = [
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 9}},
    {"type": "message_stop"},
]
BLOCKS: dict[str, tuple[dict[str, Any], str, str]] = {
    "text": ({"type": "text", "text": ""}, "text_delta", "text"),
    "arguments": (
        {"type": "tool_use", "id": "a", "name": "b", "input": {}},
        "input_json_delta",
        "partial_json",
    ),
}


def message(kind: str, pieces: Sequence[str]) -> list[Any]:
    """The events of a message of one block."""
    block, delta, field = BLOCKS[kind]
    changes = [
        {"type": "content_block_delta", "index": 0, "delta": {"type": delta, field: piece}}
        for piece in pieces
    ]
    return [START, {"type": "content_block_start", "index": 0, "content_block": block}, *changes, *ENDS]


def parse(events: Sequence[Any], times: int = OFTEN) -> None:
    """Turnlog: every event to its payloads."""
    for _ in range(times):
        numbers = count()
        feed = MessagesParser(ReplyBuilder(lambda prefix: f"{prefix}{next(numbers)}")).feed  # noqa: B023
        for event in events:
            feed(event)


def accumulate(events: Sequence[Any]) -> None:
    """The SDK: every event into its message."""
    for _ in range(OFTEN):
        snapshot, buffers = None, dict[int, bytes]()
        for event in events:
            snapshot = accumulate_event(event=event, current_snapshot=snapshot, json_bufs=buffers)
            build_events(event=event, message_snapshot=snapshot)


def reread(pieces: Sequence[str]) -> None:
    """jiter: what there is so far, at every piece."""
    encoded = [piece.encode() for piece in pieces]
    for _ in range(OFTEN):
        text = b""
        for piece in encoded:
            text += piece
            jiter.from_json(text, partial_mode=True)


def compare(title: str, chunks: int, candidates: dict[str, Callable[[], None]]) -> dict[str, float]:
    """A table; how many times cheaper each is than the first."""
    times = interleaved(candidates)
    base = next(iter(candidates))
    print(f"\n| {title}, {chunks} chunks | us per chunk | x of {base} |\n|---|---|---|")
    ratios = {name: speed(times, name, base) for name in candidates}
    for name, seconds in times.items():
        print(f"| {name} | {median(seconds) / chunks / OFTEN * 1e6:.2f} | {ratios[name]:.1f} |")
    return ratios


def text() -> bool:
    """M1."""
    words = corpus(2 * TEXT_CHARS)
    pieces, prose = cut(words[:TEXT_CHARS]), cut(strip_event_tags(words).display[:TEXT_CHARS])
    events = message("text", pieces)
    plain = message("text", prose)
    objects = [construct_type(type_=RawMessageStreamEvent, value=event) for event in events]
    ratios = compare(
        "text",
        len(pieces),
        {
            "the SDK": lambda: accumulate(objects),
            "tags alone": lambda: stream(AgentStreamParser(), pieces, OFTEN),
            "whole, objects": lambda: parse(objects),
            "whole, dicts": lambda: parse(events),
            "whole, dicts without a tag": lambda: parse(plain),
        },
    )
    ratio = ratios["tags alone"]
    return verdict("M1 text, times cheaper", ratio, 40, ratio >= 40)


def arguments_of(size: int) -> str:
    """Arguments as a model writes them: some fields and a long text."""
    words = corpus(size)
    rows = [{"name": words[at : at + 60], "count": at, "tags": ["a", "b"]} for at in range(0, size // 4, 120)]
    return json.dumps({"rows": rows, "text": words})[: size - 2] + '"}'


def arguments() -> bool:
    """M2."""
    pieces = cut(arguments_of(ARGUMENT_CHARS))
    events = message("arguments", pieces)
    ratios = compare(
        "arguments", len(pieces), {"jiter": lambda: reread(pieces), "turnlog": lambda: parse(events)}
    )
    return verdict("M2 arguments, times cheaper", ratios["turnlog"], 8, ratios["turnlog"] >= 8)


def linear(kind: str) -> bool:
    """M3 for one kind of block."""
    make = {"text": lambda size: corpus(size)[:size], "arguments": arguments_of}[kind]
    small, large = (message(kind, cut(make(size))) for size in SIZES)
    often = SIZES[1] // SIZES[0]
    times = interleaved({"small": lambda: parse(small, often), "large": lambda: parse(large, 1)})
    growth = speed(times, "small", "large")
    costs = [median(times[key]) / SIZES[1] * 1e9 for key in ("small", "large")]
    return verdict(
        f"M3 {kind}, {costs[0]:.0f} -> {costs[1]:.0f} ns per character", growth, 1.5, growth <= 1.5
    )


def main() -> int:
    """Print the tables and the goals; the exit code says whether all are met."""
    met = [text(), arguments()]
    print()
    met += [linear(kind) for kind in BLOCKS]
    return 0 if all(met) else 1


if __name__ == "__main__":
    sys.exit(main())
