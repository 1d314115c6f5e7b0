"""One marker in model text: the definition of a marker, and the scanner of its JSON.

    [AGENT_STATUS] {"agents": [...]}      the marker, white space, one JSON object, over any number of lines

An `OpenMarker` takes the text after the marker until it has ended; then `event` or `reject` is set. Where the
text stops being JSON the marker ends, and the rest is text again. Limit: 64 KiB; a longer marker is refused
and skipped as long as it is JSON.
"""

from collections.abc import Callable
from enum import Enum
from typing import NamedTuple

import msgspec

from turnlog.errors import BadInput, InvalidEvent
from turnlog.events import ParseReject, Payload
from turnlog.events.names import check_names
from turnlog.events.strict_json import decode_strict_json
from turnlog.parse.inline.display_text import MAX_HELD_SPACE_CHARS
from turnlog.parse.inline.json_scanner import JsonObjectScanner
from turnlog.parse.inline.parsed_text import TagEvent
from turnlog.parse.inline.tag_scanner import MAX_TAG_CHARS, WHITESPACE
from turnlog.parse.json_values import JsonObject
from turnlog.parse.rejects import make_text_reject


class Marker(NamedTuple):
    """The event of a marker. `convert_fields` turns its JSON into the fields of the payload."""

    payload_class: type[Payload]
    convert_fields: Callable[[JsonObject], JsonObject]


class MarkerState(Enum):
    """Where the scanner is in a marker."""

    SPACE = "space"  # between the marker and its JSON
    JSON = "json"
    SKIPPING = "skipping"  # in JSON that is too long and has its reject
    ENDED = "ended"


class OpenMarker:
    """Scans an open marker. `text_after` is the white space after a marker without JSON: it is shown."""

    def __init__(self, name: str, marker: Marker) -> None:
        self.event: TagEvent | None = None
        self.reject: ParseReject | None = None
        self.text_after = ""
        self._name = name
        self._marker = marker
        self._state = MarkerState.SPACE
        self._scanner = JsonObjectScanner()
        self._parts: list[str] = [name]
        self._size = len(name)

    @property
    def has_ended(self) -> bool:
        return self._state is MarkerState.ENDED

    def feed(self, text: str, at: int) -> int:
        """Scan text from `at` on. Return where the marker ends, or the end of the text."""
        if self._state is MarkerState.SPACE:
            at = self._feed_space(text, at)
        if self._state is MarkerState.JSON or self._state is MarkerState.SKIPPING:
            at = self._feed_json(text, at)
        return at

    def flush(self) -> None:
        self._end_with_reject("no_json" if self._state is MarkerState.SPACE else "unclosed")

    def _feed_space(self, text: str, at: int) -> int:
        window = text[at : at + MAX_HELD_SPACE_CHARS + 1]
        space = window[: len(window) - len(window.lstrip(WHITESPACE))]
        self._append(space)
        at += len(space)

        is_near = self._size - len(self._name) <= MAX_HELD_SPACE_CHARS
        if is_near and text[at : at + 1] == "{":
            self._state = MarkerState.JSON
        elif not is_near or at < len(text):
            self.text_after = "".join(self._parts[1:])
            self._end_with_reject("no_json")
        return at

    def _feed_json(self, text: str, at: int) -> int:
        end = self._scanner.feed(text, at)
        self._append(text[at:end])
        if self._scanner.is_invalid:
            self._end_with_reject("bad_json")
        elif self._scanner.is_complete:
            self._finish()
        return end

    def _append(self, piece: str) -> None:
        if self._state is MarkerState.SKIPPING:
            return
        self._size += len(piece)
        self._parts.append(piece)
        if self._size > MAX_TAG_CHARS:
            self.reject = self._make_reject("too_long")
            self._state = MarkerState.SKIPPING
            self._parts = []

    def _finish(self) -> None:
        if self._state is MarkerState.SKIPPING:
            self._state = MarkerState.ENDED
            return
        event = parse_marker_event(self._marker, "".join(self._parts[1:]))
        if isinstance(event, TagEvent):
            self.event = event
            self._state = MarkerState.ENDED
        else:
            self._end_with_reject(event)

    def _end_with_reject(self, reason: str) -> None:
        if self._state is not MarkerState.SKIPPING:
            self.reject = self._make_reject(reason)
        self._state = MarkerState.ENDED

    def _make_reject(self, reason: str) -> ParseReject:
        raw = "".join(self._parts)[:MAX_TAG_CHARS]
        return make_text_reject(reason, raw, self._name.strip("[]"))


def parse_marker_event(marker: Marker, text: str) -> TagEvent | str:
    try:
        data: JsonObject = decode_strict_json(text.encode(errors="surrogatepass"), dict)
        payload = msgspec.convert(marker.convert_fields(data), marker.payload_class)
        check_names(marker.payload_class, payload)
    except BadInput:
        return "bad_json"
    except (msgspec.ValidationError, InvalidEvent):
        return "bad_payload"
    return TagEvent(marker.payload_class.TYPE, data, payload)
