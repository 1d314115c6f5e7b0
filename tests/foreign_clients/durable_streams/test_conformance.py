"""The conformance suite of the Durable Streams project, the whole of it, against a real server."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.e2e.harness import ROOT
from tests.foreign_clients.node import find_node
from tests.foreign_clients.packages import workspace
from tests.support.limits import HANG_S
from tests.support.postgres_server import running_server
from tests.support.tables import for_each_row

FOLDER = Path(__file__).parent
LONG_POLL_S = 2
TESTS = 338
# Webhooks and pull subscriptions under `/__ds/`: optional, and the suite leaves them out unless asked.
OPTIONAL_TESTS = 6

# the suite's tests of large payloads take long on a busy machine
VITEST_OPTIONS = ("--reporter=json", "--testTimeout=120000", "--hookTimeout=120000")
# `make test` leaves out on PostgreSQL what takes longest: tests that wait for an expiry (14), and random
# ones (17). `make soak` runs them, too.
LONG_TESTS = 31
WITHOUT_LONG_TESTS = "--testNamePattern=^(?!TTL Expiration Behavior|Property-Based Tests)"


def run_suite(log_url: str, folder: Path, *options: str) -> dict[str, Any]:
    """Run the suite, with options of vitest, against a server on a log. Return its report."""
    command = [
        sys.executable,
        "-m",
        "tests.foreign_clients.durable_streams.server",
        log_url,
        str(LONG_POLL_S),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as server:
        try:
            assert server.stdout is not None
            url = server.stdout.readline().strip()
            with workspace(FOLDER, folder) as place:
                report = place / "report.json"
                vitest = place / "node_modules" / "vitest" / "vitest.mjs"
                subprocess.run(
                    [*find_node().node, vitest, "run", *VITEST_OPTIONS, *options, f"--outputFile={report}"],
                    cwd=place,
                    env=os.environ | {"CONFORMANCE_URL": url, "LONG_POLL_MS": str(LONG_POLL_S * 1000)},
                    capture_output=True,
                    check=False,
                    timeout=5 * HANG_S,
                )
                result: dict[str, Any] = json.loads(report.read_text())
        finally:
            server.terminate()
    return result


def failed_tests(report: dict[str, Any]) -> dict[str, list[str]]:
    """Return the messages of each test that failed, by its name."""
    results = [result for file in report["testResults"] for result in file["assertionResults"]]
    return {
        result["fullName"]: result["failureMessages"] for result in results if result["status"] == "failed"
    }


@for_each_row("scheme", ["memory", "sqlite"], ids=str)
def test_every_core_test_of_the_suite_passes(scheme: str, tmp_path: Path) -> None:
    log_url = f"sqlite:///{tmp_path}/log.db" if scheme == "sqlite" else "memory:"
    expect_passed(run_patiently(log_url, tmp_path), TESTS - OPTIONAL_TESTS)


def test_the_suite_passes_on_postgresql(tmp_path: Path) -> None:
    with running_server() as engine:
        report = run_patiently(engine.url(), tmp_path, WITHOUT_LONG_TESTS)
    expect_passed(report, TESTS - OPTIONAL_TESTS - LONG_TESTS)


def run_patiently(log_url: str, folder: Path, *options: str) -> dict[str, Any]:
    """Run the suite, and run those tests again that exceeded a time limit which the suite sets itself."""
    report = run_suite(log_url, folder, *options)
    late = [name for name, messages in failed_tests(report).items() if "timed out" in "".join(messages)]
    if not late:
        return report
    pattern = "|".join(map(re.escape, late))
    second = run_suite(log_url, folder, f"--testNamePattern=^({pattern})$")
    assert failed_tests(second) == {}
    assert second["numPassedTests"] == len(late)
    for file in report["testResults"]:
        file["assertionResults"] = [row for row in file["assertionResults"] if row["fullName"] not in late]
    report["numPassedTests"] += len(late)
    return report


def expect_passed(report: dict[str, Any], count: int) -> None:
    assert failed_tests(report) == {}
    assert report["numTotalTests"] == TESTS
    assert report["numPassedTests"] == count
