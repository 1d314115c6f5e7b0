"""The application: its sessions are here, and its agent answers at a URL."""

from pathlib import Path

from turnlog import App, adapters

NAME = "Clerk"
TRIES = ("Please refund order A-17", "Who ordered B-4?", "Please refund order C-99")


def make_app(agent_url: str) -> App:
    return App(
        "shop",
        adapters.ag_ui(agent_url, name=NAME),
        title="Bring your own agent",
        guide=Path(__file__).parent / "guide.md",
        suggestions=TRIES,
    )
