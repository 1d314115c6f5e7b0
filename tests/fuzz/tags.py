"""Inline tags in model text."""

from tests.fuzz.inline import check_scanner
from turnlog.parse import AgentStreamParser


def target(data: bytes) -> None:
    check_scanner(data, AgentStreamParser)
