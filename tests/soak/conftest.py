"""The table of a soak run."""

from collections.abc import Generator

import pytest

from tests.soak.figures import Measure, Row, table

ROWS = pytest.StashKey[dict[str, Row]]()


def pytest_configure(config: pytest.Config) -> None:
    config.stash[ROWS] = {}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    row = item.config.stash[ROWS].get(item.nodeid)
    if row and report.outcome != "passed":
        row.result = report.outcome
    return report


@pytest.fixture
def measure(request: pytest.FixtureRequest) -> Measure:
    """Return a function that keeps the size of a test and its figures for the table."""
    node: pytest.Item = request.node
    row = node.config.stash[ROWS].setdefault(node.nodeid, Row(node.name.removeprefix("test_")))

    def keep(size: str, **figures: object) -> None:
        row.size = size
        row.figures |= figures

    return keep


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if rows := list(config.stash[ROWS].values()):
        terminalreporter.section("soak")
        for line in table(rows):
            terminalreporter.write_line(line)
