"""Fixtures that every test may use: the programs beside Python."""

import gc
import logging
import os
import signal
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from tests.support.examples import UNTIMED
from tests.tools import TOOLS, describe_missing

settings.register_profile("untimed", UNTIMED)
settings.load_profile("untimed")

if "PYTEST_XDIST_WORKER" in os.environ:  # what tests start is not measured: it would take twice as long
    for variable in [name for name in os.environ if name.startswith("COVERAGE")]:
        del os.environ[variable]

# A shell without job control starts `make test &` with interrupts ignored. Programs that a test interrupts
# would ignore them, too.
signal.signal(signal.SIGINT, signal.default_int_handler)

gc.disable()  # until the tests are collected: next to nothing of what imports make is garbage

SHARED_MEMORY = Path("/dev/shm")
MAY_BE_SKIPPED = "there is no Claude CLI"


def pytest_collection_finish() -> None:
    """Collect garbage from now on, but do not walk what was imported and collected each time."""
    gc.freeze()
    gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Fail a test that skips itself under `CI=true`: there, a missing program is a mistake of the set-up."""
    report = yield
    is_ci = os.environ.get("CI") == "true"
    if is_ci and report.skipped and MAY_BE_SKIPPED not in str(report.longrepr):
        report.outcome = "failed"
    return report


def program(name: str) -> str:
    """Return the path of a program; skip the test where it is missing."""
    found = TOOLS[name].find()
    if found is None:
        pytest.skip(describe_missing(name))
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
    return program("chromium-headless-shell")


@pytest.fixture(scope="session")
def whole_chromium() -> str:
    """A browser that also looks names up ahead and connects ahead, which the headless shell does not."""
    return program("chromium")


@pytest.fixture(scope="session")
def firefox_program() -> str:
    return program("firefox")


@pytest.fixture(scope="session")
def node() -> str:
    return program("node")


@pytest.fixture(scope="session")
def nginx() -> str:
    return program("nginx")


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """A folder in memory where there is one: for tests in which an fsync proves nothing."""
    if not SHARED_MEMORY.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=SHARED_MEMORY) as folder:
        yield Path(folder)
