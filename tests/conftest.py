"""Fixtures that every test may use: the programs beside Python."""

import logging
import os
from collections.abc import Iterator

import pytest

from tests.tools import TOOLS, missing

if "PYTEST_XDIST_WORKER" in os.environ:  # what tests start is not measured: it would take twice as long
    for variable in [name for name in os.environ if name.startswith("COVERAGE")]:
        del os.environ[variable]


def program(name: str) -> str:
    """Where a program is; without it the test is skipped, or fails under CI."""
    found = TOOLS[name].find()
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail(missing(name))
        pytest.skip(missing(name))
    return found


@pytest.fixture(autouse=True)
def _loggers() -> Iterator[None]:
    """A command that a test runs in this process sets up logging; the next test finds it as it was."""
    loggers = [logging.getLogger(name) for name in ("turnlog", "uvicorn", "uvicorn.access")]
    kept = [(one.handlers, one.propagate, one.level) for one in loggers]
    yield
    for one, (handlers, propagate, level) in zip(loggers, kept, strict=True):
        one.handlers, one.propagate = handlers, propagate
        one.setLevel(level)


@pytest.fixture(scope="session")
def chromium() -> str:
    return program("chromium")


@pytest.fixture(scope="session")
def node() -> str:
    return program("node")


@pytest.fixture(scope="session")
def nats_server() -> str:
    return program("nats-server")


@pytest.fixture(scope="session")
def nginx() -> str:
    return program("nginx")
