"""The framing of dialects: which bytes a stream has beside the messages."""

from turnlog.vocabularies import DIALECTS
from turnlog.wire.dialects import DialectOptions
from turnlog.wire.dialects.agentic import Agentic
from turnlog.wire.dialects.framing import (
    ENVELOPE_FRAMING,
    FOREIGN_FRAMING,
    NATIVE_FRAMING,
    Framing,
    StreamReset,
)
from turnlog.wire.dialects.registry import DialectDefinition
from turnlog.wire.sse import Decoder

RESET = StreamReset("epoch", "sess_1", "k1", 0, 7)


def test_foreign_framing_has_no_data_that_is_not_a_message() -> None:
    frames = [
        FOREIGN_FRAMING.encode_opening(700),
        FOREIGN_FRAMING.heartbeat,
        FOREIGN_FRAMING.encode_reset(RESET),
        FOREIGN_FRAMING.end,
    ]
    assert Decoder().feed(b"".join(frames)) == []


def test_native_framing_sends_events_that_pages_can_see() -> None:
    frames = [
        NATIVE_FRAMING.encode_opening(700),
        NATIVE_FRAMING.heartbeat,
        NATIVE_FRAMING.encode_reset(RESET),
        NATIVE_FRAMING.end,
    ]
    decoder = Decoder()
    events = [message.event for message in decoder.feed(b"".join(frames))]
    assert events == ["heartbeat", "reset", "message"]
    assert (decoder.retry_ms, decoder.last_id) == (700, "")


def test_only_the_last_message_of_an_event_completes_its_seq() -> None:
    frames = NATIVE_FRAMING.encode_frames([b"1", b"2"], 7, "k1")
    assert [message.id for message in Decoder().feed(b"".join(frames))] == ["7.0:k1", "7:k1"]


def test_an_application_brings_a_dialect_with_its_own_framing() -> None:
    framing = Framing(heartbeat=b": here\n\n")
    registry = DIALECTS.extend({"quiet": DialectDefinition(Agentic, framing), "plain": Agentic})
    assert registry.request("quiet").framing is framing
    assert registry.request("plain", DialectOptions()).framing is NATIVE_FRAMING
    assert registry.request("turnlog").framing is ENVELOPE_FRAMING
