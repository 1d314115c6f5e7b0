"""One marker in model text: the table that says which event it is, and the walk through its JSON.

    [AGENT_STATUS] {"agents": [...]}      the marker, white space, one JSON object, over any number of lines

A `Span` takes text from behind the marker until it has ended: `event` or `reject` says with what. JSON that
stops being JSON ends the marker there, what follows is text again. Limit: 64 KiB; what is longer is refused
and skipped as long as it is JSON.
"""

import hashlib
from collections.abc import Callable
from typing import Literal, NamedTuple

import msgspec

from turnlog.errors import BadInput, InvalidEvent
from turnlog.events import JobSuggest, ParseReject, Payload, RosterJoin, RosterOffer, RosterStatus
from turnlog.events.names import check_names
from turnlog.events.strict_json import decode
from turnlog.parse.inline.display_text import WHITE_CHARS
from turnlog.parse.inline.json_scanner import JsonWalk
from turnlog.parse.inline.parsed_text import TagEvent
from turnlog.parse.inline.tag_scanner import LIMIT_CHARS, WHITE
from turnlog.parse.json_values import Data


class Marker(NamedTuple):
    """What a marker becomes; `fields` turns its JSON into the fields of the event."""

    payload: type[Payload]
    fields: Callable[[Data], Data]


NAMES = {
    "gridPosition": "seat",
    "colorName": "color_name",
    "faceVariant": "face",
    "individuationArtifact": "soul",
    "createdAt": "created_at",
    "agentName": "agent",
    "jobNames": "jobs",
}


def renamed(data: Data) -> Data:
    """The fields under our names; null is as good as nothing."""
    return {NAMES.get(name, name): value for name, value in data.items() if value is not None}


def team(data: Data) -> Data:
    """The members of a team, each renamed."""
    agents = data.get("agents")
    members = agents if isinstance(agents, list) else []
    known = [renamed(member) if isinstance(member, dict) else member for member in members]
    return {"agents": known} if isinstance(agents, list) else {}


def joined(data: Data) -> Data:
    """A new member; parts of a face that are null are as good as nothing."""
    fields = renamed(data)
    face = fields.get("face")
    return fields | ({"face": renamed(face)} if isinstance(face, dict) else {})


MARKERS: dict[str, Marker] = {
    "[AGENT_REGISTERED]": Marker(RosterJoin, joined),
    "[AGENT_STATUS]": Marker(RosterStatus, team),
    "[AGENT_WORK_OFFERED]": Marker(RosterOffer, renamed),
    "[JOB_HELP]": Marker(JobSuggest, renamed),
}


class Span:
    """A marker that is open. `text_after` is what followed a marker without JSON: it is shown."""

    def __init__(self, marker: str) -> None:
        self.event: TagEvent | None = None
        self.reject: ParseReject | None = None
        self.over = False
        self.text_after = ""
        self._marker = marker
        self._state: Literal["between", "json"] = "between"
        self._walk = JsonWalk()
        self._parts: list[str] = [marker]  # nothing once it is too long
        self._size = len(marker)

    def feed(self, text: str, at: int) -> int:
        """Take text from `at` on; return where the marker ends, or the end of the text."""
        if self._state == "between":
            at = self._feed_white(text, at)
        if self._state == "json" and not self.over:
            at = self._feed_json(text, at)
        return at

    def flush(self) -> None:
        """End the marker: the text is over."""
        self._refuse("no_json" if self._state == "between" else "unclosed")

    def _feed_white(self, text: str, at: int) -> int:
        rest = text[at : at + WHITE_CHARS + 1]
        white = rest[: len(rest) - len(rest.lstrip(WHITE))]
        self._keep(white)
        at += len(white)
        near = self._size - len(self._marker) <= WHITE_CHARS
        if near and text[at : at + 1] == "{":
            self._state = "json"
        elif not near or at < len(text):
            self.text_after = "".join(self._parts[1:])
            self._refuse("no_json")
        return at

    def _feed_json(self, text: str, at: int) -> int:
        end = self._walk.feed(text, at)
        self._keep(text[at:end])
        if self._walk.broken:
            self._refuse("bad_json")
        elif self._walk.over:
            self._judge()
        return end

    def _keep(self, piece: str) -> None:
        self._size += len(piece)
        if self._parts:
            self._parts.append(piece)
        if self._parts and self._size > LIMIT_CHARS:
            self.reject = self._rejected("too_long")
            self._parts = []

    def _judge(self) -> None:
        found = event(self._marker, "".join(self._parts[1:])) if self._parts else ""
        if isinstance(found, TagEvent):
            self.event, self.over = found, True
        else:
            self._refuse(found)

    def _refuse(self, reason: str) -> None:
        self.over = True
        if self._parts:  # else it was too long, and has its reject
            self.reject = self._rejected(reason)

    def _rejected(self, reason: str) -> ParseReject:
        raw = "".join(self._parts)[:LIMIT_CHARS]
        sha256 = hashlib.sha256(raw.encode(errors="surrogatepass")).hexdigest()
        return ParseReject(reason=reason, length=len(raw), sha256=sha256, name=self._marker.strip("[]"))


def event(marker: str, text: str) -> TagEvent | str:
    """The event of a marker with this JSON, or the reason why there is none."""
    kind = MARKERS[marker]
    try:
        data: Data = decode(text.encode(errors="surrogatepass"), dict)
        payload = msgspec.convert(kind.fields(data), kind.payload)
        check_names(kind.payload, payload)
    except BadInput:
        return "bad_json"
    except (msgspec.ValidationError, InvalidEvent):
        return "bad_payload"
    return TagEvent(kind.payload.TYPE, data, payload)
