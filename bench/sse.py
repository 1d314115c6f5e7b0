"""How fast an event becomes an SSE frame, and a stream its messages: `python -m bench.sse`.

A page of 256 events becomes the bytes of one write. Every round runs all candidates, ratios are taken inside
a round, the table shows medians per event. Like is set against like. In hand: a validated event, a dict, an
AG-UI model, each until its frame. Goal E1 is 5 times json.dumps and, where `turnlog[bench]` is installed, 10
times AG-UI's own encoder; goal E2 is 0.9 of a bare Struct. The whole way begins with the values and has no
goal: ours checks payload and origin, a dict checks nothing.
"""

import json
import sys
from collections.abc import Callable
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from statistics import median
from typing import Any

import msgspec

from bench.chunks import Candidates, Times, interleaved, speed, verdict
from turnlog.events import CATALOG, BlockDelta, Event, Scope, encode_sse_frame
from turnlog.events.envelope import FrameEncoder, format_timestamp
from turnlog.log import Page
from turnlog.wire import sse

PAGE = 256
NUMBER = 80
TEXT = "Based on the document, "
ID = "evt_01a1e16b-cd7c-7ef8-8cca-d699e1a3bb1d"
SESSION = "sess_01a1e16b-cd7c-7ef8-8cca-d699e1a3bb1d"
SCOPE = Scope(trace_id="tr_01a1e16b", agent_id="agt_01a1e16b", agent_name="Researcher", depth=1)
CURSOR = "42:0"
TS_MS = 1_767_875_696_789

READY = "in hand: event -> frame"
DUMPS = "in hand: dict -> json.dumps -> frame"
AG_UI = "in hand: AG-UI model -> EventEncoder -> frame"
BARE = "in hand: bare Struct -> frame"
STORED = "in hand: stored frame -> frame with id"
WHOLE = "whole way: values -> checked event -> frame"
DUMPS_WHOLE = "whole way: values -> dict -> json.dumps -> frame"
AG_UI_WHOLE = "whole way: values -> AG-UI model -> EventEncoder -> frame"


class Bare(msgspec.Struct, omit_defaults=True):
    """An envelope with nothing to validate, the plainest thing msgspec can encode."""

    type: str
    id: str
    seq: int
    ts: str
    session_id: str
    trace_id: str
    agent_id: str
    agent_name: str
    depth: int
    origin: str
    payload: BlockDelta


def event() -> Event:
    """A validated event, from its payload."""
    payload = BlockDelta(block_id="blk_1", text=TEXT)
    return CATALOG.build_event(payload, id=ID, origin="model", scope=SCOPE)


def stored_page(what: Event) -> list[bytes]:
    """A batch of events as the log encodes it: neighbours share what they have in common."""
    encoder = FrameEncoder(SESSION, TS_MS)
    return [encoder.encode(what, 42) for _ in range(PAGE)]


def stored(what: Event) -> bytes:
    """The event in its place, as the log keeps it."""
    return encode_sse_frame(what, session_id=SESSION, seq=42, ts_ms=TS_MS)


def ready(frames: list[bytes]) -> bytes:
    """A page of the `turnlog` dialect: the log keeps `data:` frames, the ids are added per page."""
    return Page([(42, b"", kept, 0) for kept in frames], "0").frames().data


def joined(way: Callable[[], bytes]) -> Callable[[], object]:
    """A page made frame by frame."""
    return lambda: b"".join([way() for _ in range(PAGE)])


def fields() -> dict[str, Any]:
    """The same envelope as a dict, with its time written as ours is."""
    return {
        "type": "block.delta",
        "id": ID,
        "seq": 42,
        "ts": format_timestamp(TS_MS),
        "session_id": SESSION,
        "trace_id": "tr_01a1e16b",
        "agent_id": "agt_01a1e16b",
        "agent_name": "Researcher",
        "depth": 1,
        "origin": "model",
        "payload": {"block_id": "blk_1", "text": TEXT},
    }


def dumps(what: dict[str, Any]) -> bytes:
    """The frame as most servers write it."""
    return f"id: {CURSOR}\ndata: {json.dumps(what)}\n\n".encode()


def bare(encoder: msgspec.json.Encoder, what: Bare) -> bytes:
    """The plainest frame msgspec can give."""
    return b"id: %b\ndata: %b\n\n" % (CURSOR.encode(), encoder.encode(what))


def ag_ui() -> dict[str, Callable[[], bytes]]:
    """AG-UI's own ways to a frame, if the package is here."""
    if find_spec("ag_ui") is None:
        return {}
    core, encoder = import_module("ag_ui.core"), import_module("ag_ui.encoder").EventEncoder()
    kind = core.EventType.TEXT_MESSAGE_CONTENT

    def build() -> Any:
        return core.TextMessageContentEvent(type=kind, message_id="blk_1", delta=TEXT)

    def encode_model(model: Any) -> bytes:
        text: str = encoder.encode(model)
        return text.encode()

    return {AG_UI: partial(encode_model, build()), AG_UI_WHOLE: lambda: encode_model(build())}


def candidates() -> Candidates:
    """Every way to a frame; ours all give the same one."""
    made = event()
    kept, plain = stored(made), fields()
    assert json.loads(kept[len(b"data: ") :]) == plain
    assert ready([kept]) == sse.encode(kept[len(b"data: ") : -2], id=CURSOR)
    twin = Bare(**{**plain, "payload": made.payload})
    ways: dict[str, Callable[[], object]] = {
        READY: lambda: ready(stored_page(made)),
        STORED: lambda: ready([kept] * PAGE),
        BARE: joined(partial(bare, msgspec.json.Encoder(), twin)),
        DUMPS: joined(partial(dumps, plain)),
        WHOLE: lambda: ready([stored(event()) for _ in range(PAGE)]),
        DUMPS_WHOLE: joined(lambda: dumps(fields())),
        **{name: joined(way) for name, way in ag_ui().items()},
    }
    return dict(sorted(ways.items(), key=lambda way: way[0].partition(":")[0]))


def print_frames(times: Times) -> None:
    """The table of encoders; each is set against json.dumps and AG-UI with as much in hand."""
    print("| way | ns | x json.dumps | x AG-UI |\n|---|---|---|---|")
    for name, seconds in times.items():
        whole = name.startswith("whole")
        against = [DUMPS_WHOLE, AG_UI_WHOLE] if whole else [DUMPS, AG_UI]
        ratios = [f"{speed(times, name, other):.2f}" if other in times else "-" for other in against]
        print(f"| {name} | {median(seconds) / PAGE * 1e9:.0f} | {' | '.join(ratios)} |")


def print_goals(times: Times) -> int:
    """The goals; the number of missed ones."""
    goals = [("E1", DUMPS, 5.0), ("E1", AG_UI, 10.0), ("E2", BARE, 0.9)]
    met = []
    for goal, other, ratio in goals:
        if other in times:
            met.append(verdict(f"{goal} {READY}, of {other}", speed(times, READY, other), ratio))
        else:
            print(f"{goal} {READY}, of {other}: pip install 'turnlog[bench]' to measure it")
    return met.count(False)


def feed_all(stream: bytes, piece: int) -> int:
    """Decode a stream in pieces; the number of messages."""
    decoder = sse.Decoder()
    return sum(len(decoder.feed(stream[at : at + piece])) for at in range(0, len(stream), piece))


def print_decoder() -> None:
    """The table of the decoder; time per byte must not grow with the length of a line."""
    small = ready([stored(event())]) * 3000
    streams = {
        "3000 frames, 64 KiB pieces": (small, 1 << 16),
        "3000 frames, 24-byte pieces": (small, 24),
        "one line of 1 MB, 24-byte pieces": (sse.encode(b"x" * 1_000_000), 24),
        "one line of 8 MB, 24-byte pieces": (sse.encode(b"x" * 8_000_000), 24),
    }
    times = interleaved({name: partial(feed_all, *stream) for name, stream in streams.items()}, number=1)
    print("\n| decode | MB/s | ns/byte |\n|---|---|---|")
    for name, (stream, _) in streams.items():
        per_byte = median(times[name]) / len(stream)
        print(f"| {name} | {1e-6 / per_byte:.0f} | {per_byte * 1e9:.2f} |")
    print()


def main() -> int:
    """Print the tables and the goals; the number of missed goals."""
    times = interleaved(candidates(), NUMBER)
    print_frames(times)
    print_decoder()
    return print_goals(times)


if __name__ == "__main__":
    sys.exit(main())
