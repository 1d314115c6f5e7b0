"""`App`: an agent, the events of the application, and how they change its state."""

from collections.abc import Callable
from typing import Any

from turnlog.agents import Agent
from turnlog.events import CORE, TEAM, Catalog, Vocabulary
from turnlog.state.fold import Reducers


class App:
    """Everything that is particular to one application."""

    def __init__(
        self,
        name: str,
        agent: Agent,
        *,
        vocabulary: Vocabulary | None = None,
        reducers: Reducers | None = None,
        start: Callable[[], Any] = dict,
    ) -> None:
        self.name = name
        self.agent = agent
        self.vocabulary = vocabulary
        self.catalog = Catalog(CORE, TEAM, *([vocabulary] if vocabulary else []))
        self.reducers = reducers or {}
        self.start = start
