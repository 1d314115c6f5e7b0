"""The application: its sessions are here, and its agent is elsewhere."""

from pathlib import Path

from turnlog import App
from turnlog.adapters import RemoteAgent, ToolPolicy

NAME = "Clerk"
TRIES = ("Where is order 17?", "Refund order 17", "Refund order 99")
POLICIES = {"refund": ToolPolicy(risk="money", expires_s=24 * 3600)}


def make_app() -> App:
    return App(
        "support",
        RemoteAgent(NAME, policies=POLICIES),
        title="Support",
        guide=Path(__file__).parent / "guide.md",
        suggestions=TRIES,
    )
