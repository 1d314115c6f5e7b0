"""Document 004's team: vocabulary, markers, tool effects, roster, documents, dialect. Pure and optional.

The core does not import this package. It gets what it needs by parameter: the inline scanner takes a marker
table, `CliParser` takes tool effects, a catalog takes the vocabulary `TEAM` and a registry the dialect.
"""

from turnlog.team.events import (
    TEAM,
    ArtifactWrite,
    JobSuggest,
    RosterJoin,
    RosterOffer,
    RosterStatus,
    ScreenCommand,
)
from turnlog.team.markers import MarkerParser, TagAndMarkerParser, parse_route, tag_and_marker_parser_factory
from turnlog.team.roster import NO_CHANNEL, SEAT_COUNT, Roster, Team, TeamMember, build_roster_report
from turnlog.team.tool_effects import TeamToolEffects

__all__ = [
    "NO_CHANNEL",
    "SEAT_COUNT",
    "TEAM",
    "ArtifactWrite",
    "JobSuggest",
    "MarkerParser",
    "Roster",
    "RosterJoin",
    "RosterOffer",
    "RosterStatus",
    "ScreenCommand",
    "TagAndMarkerParser",
    "Team",
    "TeamMember",
    "TeamToolEffects",
    "build_roster_report",
    "parse_route",
    "tag_and_marker_parser_factory",
]
