"""How fast an event of the log becomes a frame of AG-UI: `python -m bench.ag_ui`.

A page of 256 deltas of a text. AG-UI's own package builds its model of a delta and encodes it; ours builds
its struct and encodes it. The third way is what a reader costs: a decoded event of the log through the
dialect, with its state, to a frame with an id. Every round runs all, ratios are taken inside a round. Goal A1
is 10 times AG-UI's own for the encoding, A2 twice for the whole way, where `turnlog[bench]` is installed. The
frames carry the same JSON.
"""

import json
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from statistics import median
from typing import Any

from bench.chunks import interleaved, speed, verdict
from turnlog.events import (
    CATALOG,
    AgentStart,
    BlockDelta,
    BlockStart,
    Envelope,
    Payload,
    Scope,
    UnknownPayload,
    decode_envelope,
    encode_envelope,
)
from turnlog.wire import sse
from turnlog.wire.dialects.ag_ui.dialect import AgUi
from turnlog.wire.dialects.ag_ui.events import TextMessageContent, encode_event
from turnlog.wire.dialects.framing import encode_frames

PAGE = 256
NUMBER = 20
TEXT = "Based on the document, "
SCOPE = Scope(trace_id="tr_1", agent_id="agt_1", agent_name="Researcher", depth=0)

OURS = "turnlog: values -> struct -> frame"
PROJECTED = "turnlog: event of the log -> dialect -> frame with id"
THEIRS = "ag-ui-protocol: values -> model -> EventEncoder -> frame"

Item = tuple[Envelope, Payload | UnknownPayload]


def place(payload: Payload, seq: int) -> Item:
    """Return an event at its place in a log, decoded."""
    event = CATALOG.build_event(payload, id=f"evt_{seq}", origin="system", scope=SCOPE)
    line = encode_envelope(event, session_id="sess_1", seq=seq, ts_ms=1_767_875_696_789)
    return decode_envelope(line), payload


def encode_structs() -> bytes:
    frames: list[bytes] = []
    for _ in range(PAGE):
        event = TextMessageContent(message_id="blk_1", delta=TEXT)
        frames.append(sse.encode(encode_event(event)))
    return b"".join(frames)


def convert_page() -> Callable[[], bytes]:
    dialect = AgUi()
    dialect.convert(*place(AgentStart(name="Researcher", via="prompt"), 0))
    dialect.convert(*place(BlockStart(block_id="blk_1", kind="text"), 1))
    items = [place(BlockDelta(block_id="blk_1", text=TEXT), seq) for seq in range(2, PAGE + 2)]

    def convert() -> bytes:
        frames: list[bytes] = []
        for envelope, payload in items:
            frames += encode_frames(dialect.convert(envelope, payload), envelope.seq, "k1")
        return b"".join(frames)

    return convert


def encode_models() -> Callable[[], bytes] | None:
    """Return the way of AG-UI's own package; None if it is not installed."""
    if find_spec("ag_ui") is None:
        return None
    core: Any = import_module("ag_ui.core")
    encoder: Any = import_module("ag_ui.encoder").EventEncoder()
    kind = core.EventType.TEXT_MESSAGE_CONTENT

    def encode() -> bytes:
        frames: list[bytes] = []
        for _ in range(PAGE):
            model = core.TextMessageContentEvent(type=kind, message_id="blk_1", delta=TEXT)
            frames.append(encoder.encode(model).encode())
        return b"".join(frames)

    return encode


def data_of(frames: bytes) -> Any:
    line = next(line for line in frames.split(b"\n") if line.startswith(b"data: "))
    return json.loads(line.removeprefix(b"data: "))


def main() -> int:
    """Print the table and the goal; the number of missed goals."""
    projected = convert_page()
    theirs = encode_models()
    if theirs is None:
        print("A1: pip install 'turnlog[bench]' to measure it")
        return 0
    assert data_of(encode_structs()) == data_of(projected()) == data_of(theirs())
    times = interleaved({OURS: encode_structs, PROJECTED: projected, THEIRS: theirs}, NUMBER)
    print("| way | ns per event |\n|---|---|")
    for name, seconds in times.items():
        print(f"| {name} | {median(seconds) / PAGE * 1e9:.0f} |")
    met = [
        verdict(f"A1 {OURS}, of ag-ui-protocol", speed(times, OURS, THEIRS), 10.0),
        verdict(f"A2 {PROJECTED}, of ag-ui-protocol", speed(times, PROJECTED, THEIRS), 2.0),
    ]
    return met.count(False)


if __name__ == "__main__":
    sys.exit(main())
