"""One marker in model text: the table that says which event it is, and the walk through its JSON.

    [AGENT_STATUS] {"agents": [...]}      the marker, white space, one JSON object, over any number of lines

A `Span` takes text from behind the marker until it has ended: `event` or `reject` says with what. JSON that
stops being JSON ends the marker there, what follows is text again. Limit: 64 KiB; what is longer is refused
and skipped as long as it is JSON.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec

from turnlog.errors import BadInput, InvalidEvent
from turnlog.events import JobSuggest, ParseReject, Payload, RosterJoin, RosterOffer, RosterStatus
from turnlog.events.names import check_names
from turnlog.events.strict_json import decode_strict_json
from turnlog.parse.inline.display_text import MAX_HELD_SPACE_CHARS
from turnlog.parse.inline.json_scanner import JsonObjectScanner
from turnlog.parse.inline.parsed_text import TagEvent
from turnlog.parse.inline.tag_scanner import MAX_TAG_CHARS, WHITESPACE
from turnlog.parse.json_values import JsonObject
from turnlog.parse.rejects import make_text_reject


class Marker(NamedTuple):
    """What a marker becomes; `fields` turns its JSON into the fields of the event."""

    payload_class: type[Payload]
    convert_fields: Callable[[JsonObject], JsonObject]


FIELD_NAMES = {
    "gridPosition": "seat",
    "colorName": "color_name",
    "faceVariant": "face",
    "individuationArtifact": "soul",
    "createdAt": "created_at",
    "agentName": "agent",
    "jobNames": "jobs",
}


def rename_fields(data: JsonObject) -> JsonObject:
    """The fields under our names; null is as good as nothing."""
    return {FIELD_NAMES.get(name, name): value for name, value in data.items() if value is not None}


def convert_status_fields(data: JsonObject) -> JsonObject:
    """The members of a team, each renamed."""
    agents = data.get("agents")
    members = agents if isinstance(agents, list) else []
    known = [rename_fields(member) if isinstance(member, dict) else member for member in members]
    return {"agents": known} if isinstance(agents, list) else {}


def convert_join_fields(data: JsonObject) -> JsonObject:
    """A new member; parts of a face that are null are as good as nothing."""
    fields = rename_fields(data)
    face = fields.get("face")
    return fields | ({"face": rename_fields(face)} if isinstance(face, dict) else {})


MARKERS: dict[str, Marker] = {
    "[AGENT_REGISTERED]": Marker(RosterJoin, convert_join_fields),
    "[AGENT_STATUS]": Marker(RosterStatus, convert_status_fields),
    "[AGENT_WORK_OFFERED]": Marker(RosterOffer, rename_fields),
    "[JOB_HELP]": Marker(JobSuggest, rename_fields),
}


class OpenMarker:
    """A marker that is open. `text_after` is what followed a marker without JSON: it is shown."""

    def __init__(self, marker: str) -> None:
        self.event: TagEvent | None = None
        self.reject: ParseReject | None = None
        self.has_ended = False
        self.text_after = ""
        self._marker = marker
        self._state: Literal["between", "json"] = "between"
        self._scanner = JsonObjectScanner()
        self._parts: list[str] = [marker]  # nothing once it is too long
        self._size = len(marker)

    def feed(self, text: str, at: int) -> int:
        """Take text from `at` on; return where the marker ends, or the end of the text."""
        if self._state == "between":
            at = self._feed_whitespace(text, at)
        if self._state == "json" and not self.has_ended:
            at = self._feed_json(text, at)
        return at

    def flush(self) -> None:
        """End the marker: the text is over."""
        self._reject("no_json" if self._state == "between" else "unclosed")

    def _feed_whitespace(self, text: str, at: int) -> int:
        rest = text[at : at + MAX_HELD_SPACE_CHARS + 1]
        white = rest[: len(rest) - len(rest.lstrip(WHITESPACE))]
        self._append(white)
        at += len(white)
        near = self._size - len(self._marker) <= MAX_HELD_SPACE_CHARS
        if near and text[at : at + 1] == "{":
            self._state = "json"
        elif not near or at < len(text):
            self.text_after = "".join(self._parts[1:])
            self._reject("no_json")
        return at

    def _feed_json(self, text: str, at: int) -> int:
        end = self._scanner.feed(text, at)
        self._append(text[at:end])
        if self._scanner.is_invalid:
            self._reject("bad_json")
        elif self._scanner.is_complete:
            self._finish()
        return end

    def _append(self, piece: str) -> None:
        self._size += len(piece)
        if self._parts:
            self._parts.append(piece)
        if self._parts and self._size > MAX_TAG_CHARS:
            self.reject = self._make_reject("too_long")
            self._parts = []

    def _finish(self) -> None:
        found = parse_marker_event(self._marker, "".join(self._parts[1:])) if self._parts else ""
        if isinstance(found, TagEvent):
            self.event, self.has_ended = found, True
        else:
            self._reject(found)

    def _reject(self, reason: str) -> None:
        self.has_ended = True
        if self._parts:  # else it was too long, and has its reject
            self.reject = self._make_reject(reason)

    def _make_reject(self, reason: str) -> ParseReject:
        raw = "".join(self._parts)[:MAX_TAG_CHARS]
        return make_text_reject(reason, raw, self._marker.strip("[]"))


def parse_marker_event(marker: str, text: str) -> TagEvent | str:
    """The event of a marker with this JSON, or the reason why there is none."""
    kind = MARKERS[marker]
    try:
        data: JsonObject = decode_strict_json(text.encode(errors="surrogatepass"), dict)
        payload = msgspec.convert(kind.convert_fields(data), kind.payload_class)
        check_names(kind.payload_class, payload)
    except BadInput:
        return "bad_json"
    except (msgspec.ValidationError, InvalidEvent):
        return "bad_payload"
    return TagEvent(kind.payload_class.TYPE, data, payload)
