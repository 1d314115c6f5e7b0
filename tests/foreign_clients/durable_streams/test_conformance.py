"""The conformance suite of the Durable Streams project, the whole of it, against a real server."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.e2e.harness import ROOT
from tests.foreign_clients.node import find_node
from tests.foreign_clients.packages import workspace
from tests.support.limits import HANG_S
from tests.support.tables import for_each_row

FOLDER = Path(__file__).parent
LONG_POLL_S = 2
TESTS = 338
# Webhooks and pull subscriptions under `/__ds/`: optional, and the suite leaves them out unless asked.
OPTIONAL_TESTS = 6

# the suite's tests of large payloads take long on a busy machine
VITEST_OPTIONS = ("--reporter=json", "--testTimeout=120000", "--hookTimeout=120000")


def run_suite(log_url: str, folder: Path) -> dict[str, Any]:
    """Run the suite against a server on a log. Return its report."""
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
                    [*find_node().node, vitest, "run", *VITEST_OPTIONS, f"--outputFile={report}"],
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


def failed_tests(report: dict[str, Any]) -> list[str]:
    results = [result for file in report["testResults"] for result in file["assertionResults"]]
    return [result["fullName"] for result in results if result["status"] == "failed"]


@for_each_row("scheme", ["memory", "sqlite"], ids=str)
def test_every_core_test_of_the_suite_passes(scheme: str, tmp_path: Path) -> None:
    log_url = f"sqlite:///{tmp_path}/log.db" if scheme == "sqlite" else "memory:"
    report = run_suite(log_url, tmp_path)

    assert failed_tests(report) == []
    assert report["numTotalTests"] == TESTS
    assert report["numPassedTests"] == TESTS - OPTIONAL_TESTS
