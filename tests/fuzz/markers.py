"""Markers of a team in model text, alone and among tags."""

from tests.fuzz.inline import check_scanner
from turnlog.team.markers import MarkerParser, TagAndMarkerParser


def target(data: bytes) -> None:
    check_scanner(data, MarkerParser)
    check_scanner(data, TagAndMarkerParser)
