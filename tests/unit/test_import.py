"""`import turnlog` loads nothing it does not need; `bench.import_cost` measures what it costs."""

import json
import subprocess
import sys

from bench.import_cost import plain_environment

UNWANTED = {"pydantic", "starlette", "anthropic", "asyncio", "sqlite3", "click"}


def loaded_by(statement: str) -> set[str]:
    """The modules of a fresh interpreter after a statement."""
    script = f"import json, sys; {statement}; print(json.dumps(list(sys.modules)))"
    command = [sys.executable, "-c", script]
    ran = subprocess.run(command, env=plain_environment(), check=True, capture_output=True)
    return set(json.loads(ran.stdout))


def test_importing_loads_nothing_large() -> None:
    modules = loaded_by("import turnlog")
    assert "turnlog.events" in modules
    assert modules & UNWANTED == set()


def test_importing_adapters_loads_no_framework() -> None:
    modules = loaded_by("import turnlog.adapters")
    assert "turnlog.adapters.foreign_runtime" in modules
    assert modules & {"pydantic_ai", "langgraph", "langchain_core", "agents", "claude_agent_sdk"} == set()


def test_what_is_unwanted_would_be_seen() -> None:
    assert "click" in loaded_by("import turnlog.cli")
    assert {"asyncio", "sqlite3"} <= loaded_by("import asyncio, sqlite3")
