"""Import a framework when it is first used: a missing one names the extra, an untested version warns."""

import warnings
from importlib import import_module
from importlib.metadata import version as installed_version
from types import ModuleType
from typing import NamedTuple

from turnlog.errors import CallerError


class UntestedVersion(UserWarning):
    """The installed version of a framework is not one that the adapter was tested with."""


class Framework(NamedTuple):
    """A framework that an adapter runs. `tested` are the first version, and the first that is too new."""

    module: str
    distribution: str
    extra: str
    tested: tuple[str, str]

    def load(self) -> ModuleType:
        """Return the framework's module. Raise `CallerError` if it is not installed."""
        try:
            module = import_module(self.module)
        except ImportError as error:
            problem = f"expected {self.distribution} to be installed: pip install 'turnlog[{self.extra}]'"
            raise CallerError(problem) from error
        first, too_new = (parse_version(text) for text in self.tested)
        if not first <= parse_version(self.version) < too_new:
            warnings.warn(
                f"{self.distribution} {self.version} is untested; this adapter was tested with versions"
                f" from {self.tested[0]} to below {self.tested[1]}",
                UntestedVersion,
                stacklevel=3,
            )
        return module

    @property
    def version(self) -> str:
        return installed_version(self.distribution)

    def has_same_major(self, version: str) -> bool:
        return parse_version(version)[:1] == parse_version(self.version)[:1]


def parse_version(text: str) -> tuple[int, ...]:
    """Return the leading numbers of a version: 1.2.0rc1 is (1, 2, 0)."""
    numbers: list[int] = []
    for part in text.split("."):
        digits = part[: len(part) - len(part.lstrip("0123456789"))]
        if not digits:
            break
        numbers.append(int(digits))
        if digits != part:
            break
    return tuple(numbers)


PYDANTIC_AI = Framework("pydantic_ai", "pydantic-ai-slim", "pydantic-ai", ("2.60", "3"))
LANGGRAPH = Framework("langgraph.graph", "langgraph", "langgraph", ("1.2", "2"))
CLAUDE_SDK = Framework("claude_agent_sdk", "claude-agent-sdk", "claude-agent-sdk", ("0.2.182", "0.3"))
OPENAI_AGENTS = Framework("agents", "openai-agents", "openai-agents", ("0.24", "0.25"))
