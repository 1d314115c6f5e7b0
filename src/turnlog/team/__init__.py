"""Document 004's team: markers in model text, events from tool calls, and the roster. Pure and optional.

The core does not import this package. It gets what it needs by parameter: the inline scanner takes a marker
table, `CliParser` takes tool effects. The vocabulary `team` itself is `turnlog.events.team`.
"""

from turnlog.team.markers import MarkerParser, TagAndMarkerParser, parse_route, tag_and_marker_parser_factory
from turnlog.team.roster import NO_CHANNEL, SEAT_COUNT, Roster, Team, TeamMember, build_roster_report
from turnlog.team.tool_effects import TeamToolEffects

__all__ = [
    "NO_CHANNEL",
    "SEAT_COUNT",
    "MarkerParser",
    "Roster",
    "TagAndMarkerParser",
    "Team",
    "TeamMember",
    "TeamToolEffects",
    "build_roster_report",
    "parse_route",
    "tag_and_marker_parser_factory",
]
