"""Markers: the text of one model message in; text to show, events and rejects out (docs/protocol.md 5).

    [AGENT_STATUS] {"agents": [...]}      the marker, white space, one JSON object, over any number of lines

A table says which event a marker is. Every marker with its JSON is taken out of the text, the rest is kept
(`prose`). Text, never markers: what would be code for a tag too. Refused, with a `ParseReject`: JSON that
stops being JSON (taken out up to the end of that line), one that is over 64 KiB, never closed or without what
its event needs (taken out), and a marker that no `{` follows (only the marker is taken out). Invariant: any
cutting of the input gives the same result, and after each feed everything that can no longer be part of a
marker, or of white space before one, has been returned. `MarkerParser` stands where a parser of tags does;
`Both` reads tags and markers.
"""

import hashlib
import re
from collections.abc import Callable
from typing import NamedTuple

import msgspec

from turnlog.errors import BadInput, InvalidEvent
from turnlog.events import JobSuggest, ParseReject, Payload, RosterJoin, RosterOffer, RosterStatus
from turnlog.events.gate import decode
from turnlog.events.names import check_names
from turnlog.parse.blocks import TextParser
from turnlog.parse.json_walk import JsonWalk
from turnlog.parse.prose import WHITE_CHARS, Prose
from turnlog.parse.tags import Parsed, TagEvent
from turnlog.parse.values import Data, as_name
from turnlog.parse.walk import LIMIT_CHARS, WHITE


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
_FIND = re.compile("|".join(map(re.escape, MARKERS))).search
_LONGEST = max(map(len, MARKERS))


class Span:
    """A marker that is open: its text, nothing of it once it is too long."""

    def __init__(self, marker: str) -> None:
        self.marker = marker
        self.state = "between"
        self.walk = JsonWalk()
        self.parts: list[str] = [marker]
        self.size = len(marker)

    def keep(self, piece: str) -> None:
        """More of its text."""
        self.size += len(piece)
        if self.parts:
            self.parts.append(piece)

    @property
    def body(self) -> str:
        """What follows the marker."""
        return "".join(self.parts[1:])

    def reject(self, reason: str) -> ParseReject:
        """The trace of it."""
        raw = "".join(self.parts)[:LIMIT_CHARS]
        sha256 = hashlib.sha256(raw.encode(errors="surrogatepass")).hexdigest()
        name = self.marker.strip("[]")
        return ParseReject(reason=reason, length=len(raw), sha256=sha256, name=name)


class MarkerParser:
    """Takes the markers out of model text while it streams. After `flush` it is ready for the next text."""

    def __init__(self) -> None:
        self._reset()

    def _reset(self) -> None:
        self._prose = Prose()
        self._held = ""  # what may be the beginning of a marker
        self._span: Span | None = None
        self._begin()

    def _begin(self) -> None:
        self._events: list[TagEvent] = []
        self._rejects: list[ParseReject] = []

    def feed(self, chunk: str) -> Parsed:
        """Take the next piece of text; the answer is everything that is decided by now."""
        self._begin()
        text, self._held = self._held + chunk, ""
        at = 0
        while at < len(text):
            span = self._span
            at = STEPS[span.state](self, span, text, at) if span else self._text(text, at)
        return Parsed(self._prose.said(), self._events, self._rejects)

    def flush(self) -> Parsed:
        """The text is over: decide what is left."""
        self._begin()
        if self._span:
            self._refuse(self._span, UNFINISHED[self._span.state])
        self._prose.show(self._held)
        self._prose.end()
        parsed = Parsed(self._prose.said(), self._events, self._rejects)
        self._reset()
        return parsed

    def _text(self, text: str, at: int) -> int:
        """Prose, up to the next marker."""
        prose, scan = self._prose, at
        while match := _FIND(text, scan):
            scan = match.end()
            prose.show(text[at : match.start()])
            at = match.start()
            if not prose.code.inside():
                prose.take_out()
                self._span = Span(match[0])
                return scan
        cut = text.rfind("[", max(at, len(text) - _LONGEST))
        if cut < 0 or not any(marker.startswith(text[cut:]) for marker in MARKERS):
            prose.show(text[at:])
            return len(text)
        prose.show(text[at:cut])
        if prose.code.inside():
            prose.show(text[cut:])
        else:
            self._held = text[cut:]
        return len(text)

    def _between(self, span: Span, text: str, at: int) -> int:
        """White space between a marker and its JSON; where none comes, it was prose after all."""
        rest = text[at : at + WHITE_CHARS + 1]
        white = rest[: len(rest) - len(rest.lstrip(WHITE))]
        span.keep(white)
        at += len(white)
        near = span.size - len(span.marker) <= WHITE_CHARS
        if near and text[at : at + 1] == "{":
            span.state = "json"
        elif not near or at < len(text):
            self._refuse(span, "no_json")
            self._prose.show(span.body)
        return at

    def _json(self, span: Span, text: str, at: int) -> int:
        end = span.walk.feed(text, at)
        self._keep(span, text[at:end])
        if span.walk.over:
            self._judge(span)
        elif span.walk.broken:
            span.state = "broken"
        return end

    def _broken(self, span: Span, text: str, at: int) -> int:
        """What stopped being JSON is taken out with its line."""
        line = text.find("\n", at)
        end = len(text) if line < 0 else line
        self._keep(span, text[at:end])
        if line >= 0:
            self._refuse(span, "bad_json")
        return end

    def _keep(self, span: Span, piece: str) -> None:
        span.keep(piece)
        if span.parts and span.size > LIMIT_CHARS:
            self._rejects.append(span.reject("too_long"))
            span.parts = []

    def _judge(self, span: Span) -> None:
        found = event(span.marker, span.body) if span.parts else ""
        if isinstance(found, TagEvent):
            self._events.append(found)
            self._span = None
        else:
            self._refuse(span, found)

    def _refuse(self, span: Span, reason: str) -> None:
        """Close it; what was too long has its reject already."""
        if span.parts:
            self._rejects.append(span.reject(reason))
        self._span = None


STEPS: dict[str, Callable[[MarkerParser, Span, str, int], int]] = {
    "between": MarkerParser._between,
    "json": MarkerParser._json,
    "broken": MarkerParser._broken,
}
UNFINISHED = {"between": "no_json", "json": "unclosed", "broken": "bad_json"}


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


class Both:
    """Tags and markers of one text. What they say comes with its end: first the tags, then the markers."""

    def __init__(self, tags: TextParser) -> None:
        self._tags, self._markers = tags, MarkerParser()
        self._tagged: list[Parsed] = []
        self._marked: list[Parsed] = []

    def feed(self, chunk: str) -> Parsed:
        """The next piece of text."""
        return Parsed(self._pass(self._tags.feed(chunk)), [], [])

    def flush(self) -> Parsed:
        """The text is over."""
        text = self._pass(self._tags.flush())
        self._marked.append(self._markers.flush())
        parts = self._tagged + self._marked
        text += self._marked[-1].display_text
        events = [event for part in parts for event in part.events]
        rejects = [reject for part in parts for reject in part.rejects]
        self._tagged, self._marked = [], []
        return Parsed(text, events, rejects)

    def _pass(self, tagged: Parsed) -> str:
        """What the tags leave goes to the markers."""
        marked = self._markers.feed(tagged.display_text)
        self._tagged += [tagged] if tagged.events or tagged.rejects else []
        self._marked += [marked] if marked.events or marked.rejects else []
        return marked.display_text


ROUTE = re.compile(r"\s*\[ROUTE TO AGENT:([^\]\n]{1,256})\]\s*")


def route(text: str) -> tuple[str | None, str]:
    """Whom a message is for, if it begins by saying so, and the message without that."""
    match = ROUTE.match(text)
    target = as_name(match[1].strip()) if match else None
    return (target, text[match.end() :]) if match and target else (None, text)
