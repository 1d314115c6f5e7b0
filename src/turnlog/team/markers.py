"""A team's markers in model text, alone or with tags (docs/protocol.md 5.8), and the target of a message.

`MarkerParser` and `TagAndMarkerParser` are the scanner of `parse.inline.tags` with other openers: every
marker is removed from the text with its JSON. A tag inside a marker's JSON is part of the JSON, a marker
inside a tag is part of the tag. Events come in document order.
"""

import re
from functools import partial

from turnlog.events import Origin, Vocabulary
from turnlog.parse.inline.marker_scanner import Marker
from turnlog.parse.inline.tags import AgentStreamParser, Openers
from turnlog.parse.json_values import JsonObject, as_name
from turnlog.parse.reply import TextParserFactory
from turnlog.team.events import JobSuggest, RosterJoin, RosterOffer, RosterStatus

FIELD_NAMES = {
    "gridPosition": "seat",
    "colorName": "color_name",
    "faceVariant": "face",
    "individuationArtifact": "soul",
    "createdAt": "created_at",
    "agentName": "agent",
    "jobNames": "jobs",
}
ROUTE_PATTERN = re.compile(r"\s*\[ROUTE TO AGENT:([^\]\n]{1,256})\]\s*")


def rename_fields(data: JsonObject) -> JsonObject:
    """Rename the fields of a marker's JSON and drop those that are null."""
    return {FIELD_NAMES.get(name, name): value for name, value in data.items() if value is not None}


def convert_status_fields(data: JsonObject) -> JsonObject:
    agents = data.get("agents")
    if not isinstance(agents, list):
        return {}
    return {"agents": [rename_fields(agent) if isinstance(agent, dict) else agent for agent in agents]}


def convert_join_fields(data: JsonObject) -> JsonObject:
    fields = rename_fields(data)
    face = fields.get("face")
    if isinstance(face, dict):
        fields["face"] = rename_fields(face)
    return fields


MARKERS: dict[str, Marker] = {
    "[AGENT_REGISTERED]": Marker(RosterJoin, convert_join_fields),
    "[AGENT_STATUS]": Marker(RosterStatus, convert_status_fields),
    "[AGENT_WORK_OFFERED]": Marker(RosterOffer, rename_fields),
    "[JOB_HELP]": Marker(JobSuggest, rename_fields),
}
MARKER_OPENERS = Openers(tags=False, markers=MARKERS)
TAG_AND_MARKER_OPENERS = Openers(markers=MARKERS)


class MarkerParser(AgentStreamParser):
    """Takes the markers out of model text while it streams."""

    def __init__(self) -> None:
        super().__init__(openers=MARKER_OPENERS)


class TagAndMarkerParser(AgentStreamParser):
    """Takes tags and markers out of model text while it streams."""

    def __init__(
        self, vocabulary: Vocabulary | None = None, origin: Origin = "model", nonce: str | None = None
    ) -> None:
        super().__init__(vocabulary, origin, nonce, TAG_AND_MARKER_OPENERS)


def tag_and_marker_parser_factory(vocabulary: Vocabulary | None) -> TextParserFactory:
    """Return a factory of text parsers that find an application's tags, if any, and the team's markers."""
    return MarkerParser if vocabulary is None else partial(TagAndMarkerParser, vocabulary)


def parse_route(text: str) -> tuple[str | None, str]:
    """Return the target that a message begins with, or None, and the message without it."""
    match = ROUTE_PATTERN.match(text)
    if match is None:
        return None, text
    target = as_name(match[1].strip())
    if target is None:
        return None, text
    return target, text[match.end() :]
