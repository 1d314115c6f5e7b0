"""The conformance suite of Durable Streams on PostgreSQL: all core tests."""

from pathlib import Path

from tests.foreign_clients.durable_streams.test_conformance import (
    OPTIONAL_TESTS,
    TESTS,
    expect_passed,
    run_suite,
)
from tests.soak.figures import Measure
from tests.support.postgres_server import running_server


def test_every_core_test_of_the_suite_passes_on_postgresql(tmp_path: Path, measure: Measure) -> None:
    with running_server() as engine:
        report = run_suite(engine.url(), tmp_path)
    expect_passed(report, TESTS - OPTIONAL_TESTS)
    measure("conformance on PostgreSQL", passed=report["numPassedTests"])
