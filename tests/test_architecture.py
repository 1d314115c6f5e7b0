"""The packages and the one direction of imports (docs/architecture.md)."""

import ast
import sys
from pathlib import Path

from tests.support.tables import for_each_row

SOURCE = Path(__file__).parent.parent / "src" / "turnlog"

RANK = {
    "errors": 0,
    "events": 1,
    "parse": 2,
    "state": 2,
    "wire": 3,
    "client": 4,
    "team": 4,
    "ids": 4,
    "log": 5,
    "vocabularies": 5,
    "agents": 6,
    "adapters": 7,
    "testing": 8,
    "recording": 8,
    "otel": 8,
    "app": 8,
    "connection": 9,
    "server": 9,
    "cli": 10,
}
PURE = {"errors", "events", "parse", "state", "wire", "client", "team", "vocabularies"}
# One application's words are not the core's: `vocabularies` joins them, and these use them.
MAY_IMPORT_TEAM = {"team", "vocabularies", "agents", "app", "server", "cli"}
WORLD = {
    "asyncio", "concurrent", "logging", "multiprocessing", "os", "pathlib", "random", "secrets", "select",
    "signal", "socket", "sqlite3", "subprocess", "tempfile", "threading", "time", "urllib", "uuid",
}  # fmt: skip
LIBRARIES = {
    "errors": set(),
    "ids": set(),
    "events": {"msgspec"},
    "parse": {"msgspec"},
    "state": {"msgspec"},
    "wire": {"msgspec"},
    "client": {"msgspec"},
    "team": {"msgspec"},
    "log": {"msgspec", "psycopg"},
    "vocabularies": set(),
    "testing": {"msgspec"},
    "agents": {"msgspec", "anthropic", "httpx2"},
    "adapters": {
        "msgspec", "agents", "claude_agent_sdk", "httpx2", "langchain_core", "langgraph", "pydantic",
        "pydantic_ai", "pydantic_core",
    },
    "recording": {"msgspec", "agents", "pydantic_ai"},
    "connection": {"msgspec"},
    "otel": {"msgspec", "opentelemetry"},
    "app": {"msgspec"},
    "server": {"msgspec", "starlette", "uvicorn", "jwt", "cryptography"},
    "cli": {"msgspec", "click", "rich"},
}  # fmt: skip

# The files of a folder may not import these modules, which its package may.
FOLDER_RULES = {
    "parse/inline": ("turnlog.parse.reply", "turnlog.parse.messages_api", "turnlog.parse.claude"),
    "parse": ("turnlog.parse.claude", "turnlog.parse.foreign"),
    "parse/foreign": ("turnlog.parse.claude",),
    "wire": ("turnlog.wire.dialects",),
    "log": ("turnlog.log.sqlite", "turnlog.log.postgres", "psycopg"),
    "log/sqlite": ("turnlog.log.postgres", "psycopg"),
    "log/postgres": ("turnlog.log.sqlite", "sqlite3"),
    "agents": ("turnlog.team",),
    "agents/models": (
        "turnlog.agents.runtime",
        "turnlog.agents.claude",
        "turnlog.agents.remote",
        "turnlog.team",
    ),
    "agents/remote": ("turnlog.agents.claude", "turnlog.team"),
    "agents/runtime": ("turnlog.team",),
    "server/auth": ("turnlog.server.streaming", "turnlog.server.routes"),
    "server/limits": ("turnlog.server.streaming", "turnlog.server.routes"),
    "server/streaming": ("turnlog.server.routes",),
}


def package_of(path: Path) -> str:
    return path.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(text: str) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the direction"
            found.add(node.module or "")
            if node.module == "turnlog":
                found.update(f"turnlog.{alias.name}" for alias in node.names)
    return found


def import_faults(place: str, text: str) -> list[str]:
    """Return what a file of a package may not import."""
    found = []
    for name in imports(text):
        top, _, rest = name.partition(".")
        if top == "turnlog":
            other = rest.partition(".")[0]
            forbidden = other == "team" and place not in MAY_IMPORT_TEAM
            if forbidden or (other in RANK and other != place and RANK[other] >= RANK[place]):
                found.append(f"{place} may not import {name}")
        elif place in PURE and top in WORLD:
            found.append(f"{place} is pure and may not import {name}")
        elif top not in sys.stdlib_module_names and top not in LIBRARIES[place]:
            found.append(f"{place} may not use the library {top}")
    return found


def folder_faults(path: Path) -> list[str]:
    """Return imports that go the wrong way inside a package; an `__init__` may export anything."""
    folder = str(path.relative_to(SOURCE).parent)
    forbidden = FOLDER_RULES.get(folder, ()) if path.name != "__init__.py" else ()
    return [
        f"{path.name} may not import {name}"
        for name in imports(path.read_text())
        for prefix in forbidden
        if name == prefix or name.startswith(f"{prefix}.")
    ]


@for_each_row("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_go_one_way_and_pure_packages_stay_pure(path: Path) -> None:
    if path != SOURCE / "__init__.py":
        assert import_faults(package_of(path), path.read_text()) == []


def test_every_package_is_known() -> None:
    packages = {package_of(path) for path in SOURCE.rglob("*.py")} - {"__init__"}
    assert packages <= set(RANK)


@for_each_row(
    ("place", "text"),
    [
        ("parse", "import asyncio"),
        ("events", "from time import time"),
        ("parse", "from turnlog.state import fold"),
        ("wire", "import turnlog.log"),
        ("log", "from turnlog import server"),
        ("log", "from turnlog.team.roster import Roster"),
        ("parse", "from turnlog import team"),
        ("log", "from turnlog.vocabularies import FULL_CATALOG"),
        ("wire", "from turnlog.team.office import Office"),
        ("team", "import turnlog.log"),
        ("events", "import starlette"),
    ],
)
def test_the_rule_sees_what_it_forbids(place: str, text: str) -> None:
    assert len(import_faults(place, text)) == 1


@for_each_row("path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE)))
def test_imports_inside_a_package_go_one_way(path: Path) -> None:
    assert folder_faults(path) == []


def test_every_folder_with_a_rule_exists() -> None:
    assert [folder for folder in FOLDER_RULES if not (SOURCE / folder / "__init__.py").exists()] == []
