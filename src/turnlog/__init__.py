"""Turnlog: the event log between AI agents and the people and programs that watch them.

`import turnlog` loads the vocabulary only. `open_log`, `Agent`, `tool`, `App`, `adapters`, `connect`,
`connect_sync` and `record` load on first use.
"""

from collections.abc import Mapping
from importlib import import_module
from typing import TYPE_CHECKING, Any

from turnlog.errors import TurnlogError
from turnlog.events import Catalog, Envelope, Event, Origin, Payload, Scope, View, Vocabulary
from turnlog.ids import new_id

if TYPE_CHECKING:
    from turnlog import adapters as adapters
    from turnlog.agents import Agent as Agent
    from turnlog.agents import tool as tool
    from turnlog.app import App as App
    from turnlog.connection import connect as connect
    from turnlog.connection import connect_sync as connect_sync
    from turnlog.log import open_log as open_log
    from turnlog.recording import record as record

__version__ = "0.1.0"

LAZY = {
    "open_log": "turnlog.log",
    "Agent": "turnlog.agents",
    "tool": "turnlog.agents",
    "App": "turnlog.app",
    "adapters": "turnlog.adapters",  # the module itself
    "connect": "turnlog.connection",
    "connect_sync": "turnlog.connection",
    "record": "turnlog.recording",
}

__all__ = [
    "Catalog",
    "Envelope",
    "Event",
    "Payload",
    "Scope",
    "TurnlogError",
    "View",
    "Vocabulary",
    "event",
    "new_id",
    *LAZY,
]


def event(
    what: Payload | str,
    data: Mapping[str, Any] | None = None,
    *,
    id: str | None = None,
    origin: Origin = "app",
    scope: Scope = Scope(),  # noqa: B008
) -> Event:
    """Build a validated event of Turnlog's own vocabulary, from a payload or by name.

    An application's events are built by its own `Catalog`.
    """
    from turnlog.vocabularies import FULL_CATALOG  # loads parsers and dialects with the first event

    return FULL_CATALOG.build_event(what, data, id=id or new_id("evt_"), origin=origin, scope=scope)


def __getattr__(name: str) -> Any:
    if name not in LAZY:
        raise AttributeError(f"module 'turnlog' has no attribute {name!r}")
    module = import_module(LAZY[name])
    return module if LAZY[name] == f"turnlog.{name}" else getattr(module, name)
