"""The SSE decoder: any cutting gives the same messages and refusal; what it read can be written again."""

from collections.abc import Iterable

from tests.fuzz.cuts import cuttings
from turnlog.errors import BadInput
from turnlog.wire.sse import MAX_SSE_MESSAGE_BYTES, Decoder, ServerSentEvent, encode

SMALL_BYTES = 24  # so that short inputs reach the limit


def read(pieces: Iterable[bytes], limit_bytes: int) -> tuple[list[ServerSentEvent], str, int | None, bool]:
    decoder = Decoder(limit_bytes)
    messages: list[ServerSentEvent] = []
    try:
        for piece in pieces:
            messages += decoder.feed(piece)
        decoder.flush()
    except BadInput:
        return messages, decoder.last_id, decoder.retry_ms, False
    return messages, decoder.last_id, decoder.retry_ms, True


def target(data: bytes) -> None:
    for limit_bytes in (SMALL_BYTES, MAX_SSE_MESSAGE_BYTES):
        whole = read([data], limit_bytes)
        for pieces in cuttings(data):
            assert read(pieces, limit_bytes) == whole, len(pieces)

    messages, _, _, fits = read([data], MAX_SSE_MESSAGE_BYTES)
    assert fits
    assert sum(len(message.data) + 1 for message in messages) <= len(data)
    for message in messages:
        if "\0" in message.event:  # the standard lets a reader take it; the encoder refuses to write it
            continue
        frame = encode(message.data.encode(), id=message.id, event=message.event, retry_ms=message.retry_ms)
        assert read([frame], MAX_SSE_MESSAGE_BYTES)[0] == [message]
