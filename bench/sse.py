"""How fast an event becomes an SSE frame, and a stream its messages: `python -m bench.sse`.

Every round runs all candidates, ratios are taken inside a round, the table shows medians. Goal E1: an event
becomes its frame at 5 times the speed of json.dumps and, where it is installed, 10 times that of AG-UI's own
encoder. Like is set against like: what is ready to encode against the same; the whole way from the payload,
validated and stamped, against building a dict or a model and encoding it. Goal E2: 0.9 of a bare Struct.
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
from turnlog.events import CATALOG, BlockDelta, Event, Scope, stamp
from turnlog.events.envelope import timestamp
from turnlog.wire import sse

NUMBER = 20_000
TEXT = "Based on the document, "
ID = "evt_01a1e16b-cd7c-7ef8-8cca-d699e1a3bb1d"
SESSION = "sess_01a1e16b-cd7c-7ef8-8cca-d699e1a3bb1d"
SCOPE = Scope(trace_id="tr_01a1e16b", agent_id="agt_01a1e16b", agent_name="Researcher", depth=1)
CURSOR = "0:42"
TS_MS = 1_767_875_696_789

READY = "event -> frame"
WHOLE = "payload -> event -> stamp -> frame"
BARE = "bare Struct -> frame"
DUMPS = "dict -> json.dumps -> frame"
DUMPS_BUILT = "fields -> dict -> json.dumps -> frame"
AG_UI = "AG-UI model -> EventEncoder"
AG_UI_BUILT = "AG-UI fields -> model -> EventEncoder"


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
    return CATALOG.event(payload, id=ID, origin="model", scope=SCOPE)


def placed(what: Event) -> bytes:
    """The event in its place, one line."""
    return stamp(what, session_id=SESSION, seq=42, ts_ms=TS_MS)


def frame(what: Event) -> bytes:
    """The frame of the `turnlog` dialect."""
    return sse.encode(placed(what), id=CURSOR)


def fields() -> dict[str, Any]:
    """The same envelope as a dict, with its time written as ours is."""
    return {
        "type": "block.delta",
        "id": ID,
        "seq": 42,
        "ts": timestamp(TS_MS),
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


def ag_ui() -> dict[str, Callable[[], object]]:
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

    return {AG_UI: partial(encode_model, build()), AG_UI_BUILT: lambda: encode_model(build())}


def candidates() -> Candidates:
    """From the stored line to the whole way, then the others."""
    made = event()
    line, plain = placed(made), fields()
    assert json.loads(line) == plain
    twin = Bare(**{**plain, "payload": made.payload})
    return {
        "stored line -> frame": partial(sse.encode, line, id=CURSOR),
        READY: partial(frame, made),
        WHOLE: lambda: frame(event()),
        BARE: partial(bare, msgspec.json.Encoder(), twin),
        DUMPS: partial(dumps, plain),
        DUMPS_BUILT: lambda: dumps(fields()),
        **ag_ui(),
    }


def print_frames(times: Times) -> None:
    """The table of encoders."""
    print("| way | ns | x json.dumps | x json.dumps, dict built |\n|---|---|---|---|")
    for name, seconds in times.items():
        ready, built = speed(times, name, DUMPS), speed(times, name, DUMPS_BUILT)
        print(f"| {name} | {median(seconds) * 1e9:.0f} | {ready:.2f} | {built:.2f} |")


def print_goals(times: Times) -> int:
    """The goals; the number of missed ones."""
    goals = [(READY, DUMPS, 5.0), (WHOLE, DUMPS_BUILT, 5.0), (READY, AG_UI, 10.0), (WHOLE, AG_UI_BUILT, 10.0)]
    met = [verdict(f"E2 {READY}, of {BARE}", speed(times, READY, BARE), 0.9)]
    for ours, theirs, goal in goals:
        if theirs in times:
            met.append(verdict(f"E1 {ours}, of {theirs}", speed(times, ours, theirs), goal))
        else:
            print(f"E1 {ours}, of {theirs}: ag-ui-protocol is not installed")
    return met.count(False)


def feed_all(stream: bytes, piece: int) -> int:
    """Decode a stream in pieces; the number of messages."""
    decoder = sse.Decoder()
    return sum(len(decoder.feed(stream[at : at + piece])) for at in range(0, len(stream), piece))


def print_decoder() -> None:
    """The table of the decoder; time per byte must not grow with the length of a line."""
    small = b"".join(sse.encode(frame_line, id=CURSOR) for frame_line in [placed(event())] * 3000)
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
