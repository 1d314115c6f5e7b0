"""Fixtures that every test may use: the programs beside Python."""

import os

import pytest

from tests.tools import TOOLS, missing


def program(name: str) -> str:
    """Where a program is; without it the test is skipped, or fails under CI."""
    found = TOOLS[name].find()
    if found is None:
        if os.environ.get("CI") == "true":
            pytest.fail(missing(name))
        pytest.skip(missing(name))
    return found


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
