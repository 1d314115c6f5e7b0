"""Split one payload into JSON messages of a bounded size: the messages of the `blocks` dialect.

Input: a type, an agent, a text and extra fields. Output: messages, each complete by itself. A message is
compact JSON with `type`, `agent`, `final`, `delta` and the extras, in this order, with non-ASCII text raw.

- A message has at most `limit_bytes` after escaping (protocol law 7). No other split gives fewer messages.
- The deltas joined are the payload. The payload is escaped once; the escaped bytes are never cut inside a
  character or an escape. A lone surrogate becomes U+FFFD.
- Extras are never cut. If they leave no room for a delta, `chunk` raises `InvalidEvent`. Events from the log
  never do that: the vocabulary limits the length of names and ids.
"""

from msgspec.json import Encoder

from turnlog.errors import InvalidEvent, quote
from turnlog.events.surrogates import replace_lone_surrogates

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
    """Split a payload into messages. The last one carries `final`, all others `false`."""
    prefix, suffix = message_prefix_and_suffix(type, agent, extra)
    prefix_with_more = prefix + NOT_FINAL_DELTA
    budget = limit_bytes - len(prefix_with_more) - len(suffix)
    if budget < MAX_ESCAPE_BYTES:
        raise InvalidEvent(
            f"expected {MAX_ESCAPE_BYTES} of {limit_bytes} bytes left for {quote(type)}, got {budget}"
        )

    text = encode_json_lossy(payload)
    start = 1  # after the opening quote
    stop = len(text) - 1  # before the closing quote
    messages = []
    while stop - start > budget:
        end = find_cut_point(text, start, start + budget)
        messages.append(b"".join((prefix_with_more, text[start:end], suffix)))
        start = end

    last_prefix = prefix + FINAL_DELTA if final else prefix_with_more
    messages.append(last_prefix + text[start:stop] + suffix)
    return messages


def encode_whole(type: str, agent: str, payload: str, *, final: bool, **extra: Scalar) -> bytes:
    """Return one message, whatever its size: for readers that ask for data in one piece."""
    prefix, suffix = message_prefix_and_suffix(type, agent, extra)
    text = encode_json_lossy(payload)
    return prefix + (FINAL_DELTA if final else NOT_FINAL_DELTA) + text[1:-1] + suffix


def available_payload_bytes(
    type: str, agent: str, extra: dict[str, Scalar], limit_bytes: int = MAX_MESSAGE_BYTES
) -> int:
    """Return how many bytes of escaped payload a message with these extras can hold; less than 0 if none."""
    prefix, suffix = message_prefix_and_suffix(type, agent, extra)
    return limit_bytes - len(prefix) - len(NOT_FINAL_DELTA) - len(suffix)


def message_prefix_and_suffix(type: str, agent: str, extra: dict[str, Scalar]) -> tuple[bytes, bytes]:
    """Return the bytes before the value of `final`, and the bytes after the text of `delta`."""
    prefix = encode_json_lossy({"type": type, "agent": agent})[:-1] + b',"final":'
    if not extra:
        return prefix, b'"}'
    if "delta" in extra:
        raise InvalidEvent("expected the delta as payload, got it as an extra", "$.delta")
    return prefix, b'",' + encode_json_lossy(extra)[1:]


def find_cut_point(text: bytes, start: int, end: int) -> int:
    """Return the last index at or before `end` where the escaped text may be cut. `start` is one too."""
    if text[end] & 0xC0 == 0x80:  # inside a character: go back to its first byte
        while text[end] & 0xC0 == 0x80:
            end -= 1
        return end

    slash = text.rfind(b"\\", end - MAX_ESCAPE_BYTES + 1, end)
    if slash < 0:
        return end

    run = text[start : slash + 1]
    backslashes = len(run) - len(run.rstrip(b"\\"))
    if backslashes % 2 == 0:  # the second half of an escaped backslash: no escape starts here
        return end

    escape_bytes = MAX_ESCAPE_BYTES if text[slash + 1] == _LETTER_U else 2
    return slash if slash + escape_bytes > end else end


def encode_json_lossy(value: str | dict[str, str] | dict[str, Scalar]) -> bytes:
    """Encode a value as JSON. Lone surrogates are replaced only if the value cannot be encoded as it is."""
    try:
        return _encode(value)
    except UnicodeEncodeError:
        if isinstance(value, str):
            return _encode(replace_lone_surrogates(value))
        repaired = {
            key: replace_lone_surrogates(item) if isinstance(item, str) else item
            for key, item in value.items()
        }
        return _encode(repaired)
