"""One payload in, JSON messages of a bounded size out: the messages of the `blocks` dialect.

Every message is complete by itself: compact JSON with `type`, `agent`, `final`, `delta` and the extras, in
this order, non-ASCII raw, at most `limit_bytes` long after escaping (protocol law 7). The payload is escaped
once and the escaped bytes are cut, never inside a character or an escape; no cut could give fewer messages.
The deltas joined are the payload. A lone surrogate, which UTF-8 cannot say, arrives as U+FFFD; two that form
a pair arrive as their character. Extras are never cut: when they leave no room for a delta, `InvalidEvent`.
A dialect never meets that, because names and keys are bounded when an event is appended.
"""

from msgspec.json import Encoder

from turnlog.errors import InvalidEvent, quote

MAX_MESSAGE_BYTES = 2048  # seed 003: what no proxy between us and a page splits
MAX_ESCAPE_BYTES = 6  # `\u001f`; characters take at most 4 bytes, other escapes 2

NOT_FINAL_DELTA = b'false,"delta":"'
FINAL_DELTA = b'true,"delta":"'

Scalar = str | int | float | bool | None

_encode = Encoder().encode
_LETTER_U = ord("u")


def chunk(
    type: str,
    agent: str,
    payload: str,
    limit_bytes: int = MAX_MESSAGE_BYTES,
    *,
    final: bool = True,
    **extra: Scalar,
) -> list[bytes]:
    """Cut a payload into messages; the last one carries `final`, all others `false`."""
    head, tail = message_prefix_and_suffix(type, agent, extra)
    more = head + NOT_FINAL_DELTA
    budget = limit_bytes - len(more) - len(tail)
    if budget < MAX_ESCAPE_BYTES:
        raise InvalidEvent(
            f"expected {MAX_ESCAPE_BYTES} of {limit_bytes} bytes left for {quote(type)}, got {budget}"
        )
    text = encode_json_lossy(payload)
    start, stop = 1, len(text) - 1  # the quotes stay behind
    messages = []
    while stop - start > budget:
        end = find_cut_point(text, start, start + budget)
        messages.append(b"".join((more, text[start:end], tail)))
        start = end
    messages.append((head + FINAL_DELTA if final else more) + text[start:stop] + tail)
    return messages


def available_payload_bytes(
    type: str, agent: str, extra: dict[str, Scalar], limit_bytes: int = MAX_MESSAGE_BYTES
) -> int:
    """Return how many bytes of escaped payload a message with these extras can hold; less than 0 if none."""
    head, tail = message_prefix_and_suffix(type, agent, extra)
    return limit_bytes - len(head) - len(NOT_FINAL_DELTA) - len(tail)


def message_prefix_and_suffix(type: str, agent: str, extra: dict[str, Scalar]) -> tuple[bytes, bytes]:
    """What stands before the value of `final`, and what stands after the text of `delta`."""
    head = encode_json_lossy({"type": type, "agent": agent})[:-1] + b',"final":'
    if not extra:
        return head, b'"}'
    if "delta" in extra:
        raise InvalidEvent("expected the delta as payload, got it as an extra", "$.delta")
    return head, b'",' + encode_json_lossy(extra)[1:]


def find_cut_point(text: bytes, start: int, end: int) -> int:
    """The last place at or before `end` where the escaped text may be cut; `start` is such a place too."""
    if text[end] & 0xC0 == 0x80:  # inside a character: back to its first byte
        while text[end] & 0xC0 == 0x80:
            end -= 1
        return end
    slash = text.rfind(b"\\", end - MAX_ESCAPE_BYTES + 1, end)
    if slash < 0:
        return end
    run = text[start : slash + 1]
    if (len(run) - len(run.rstrip(b"\\"))) % 2 == 0:  # the second half of an escaped backslash
        return end
    return slash if slash + (MAX_ESCAPE_BYTES if text[slash + 1] == _LETTER_U else 2) > end else end


def encode_json_lossy(value: str | dict[str, str] | dict[str, Scalar]) -> bytes:
    """A value as JSON; only text that UTF-8 cannot say is looked at twice."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        if isinstance(value, str):
            return _encode(replace_scalar_surrogates(value))
        return _encode({key: replace_scalar_surrogates(item) for key, item in value.items()})


def replace_scalar_surrogates(value: Scalar) -> Scalar:
    """Text with its surrogate pairs joined and lone surrogates replaced, as in a browser."""
    if not isinstance(value, str):
        return value
    return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
