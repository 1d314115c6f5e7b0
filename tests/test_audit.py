"""`make audit` with tools that answer as pip-audit and npm do: found, nothing, offline, missing."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.audit import ROOT

NO_PYTHON_FINDING = {"dependencies": [{"name": "click", "version": "8.5.1", "vulns": []}], "fixes": []}
PYTHON_FINDING = {
    "dependencies": [
        {"name": "click", "version": "8.5.1", "vulns": [{"id": "PYSEC-2026-1", "fix_versions": []}]},
        {"name": "local", "skip_reason": "not on the index"},
    ]
}
NO_NPM_FINDING: dict[str, Any] = {"auditReportVersion": 2, "vulnerabilities": {}}
NPM_FINDING = {
    "auditReportVersion": 2,
    "vulnerabilities": {
        "marked": {"range": "<19", "via": [{"title": "Slow", "url": "GHSA-1"}]},
        "reader": {"range": "*", "via": ["marked"]},
    },
}
NPM_OFFLINE = {"message": "request failed", "error": {"code": "ECONNREFUSED", "summary": ""}}


class Tools:
    """A folder of programs that print what they were given; the only folder on the path."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, name: str, answer: object, exit_code: int = 0, error: str = "") -> None:
        output = self.folder / f"{name}.out"
        output.write_text(json.dumps(answer) if answer is not None else "")
        (self.folder / f"{name}.err").write_text(error)
        program = self.folder / name
        program.write_text(
            f"#!{sys.executable}\n"
            "import sys\n"
            f"sys.stdout.write(open({str(output)!r}).read())\n"
            f"sys.stderr.write(open({str(self.folder / (name + '.err'))!r}).read())\n"
            f"sys.exit({exit_code})\n"
        )
        program.chmod(0o755)

    def run_audit(self) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"PATH": str(self.folder)}
        return subprocess.run(
            [sys.executable, "-m", "tests.audit"],
            cwd=ROOT, env=environment, capture_output=True, text=True, check=False,
        )  # fmt: skip


@pytest.fixture
def tools(tmp_path: Path) -> Tools:
    return Tools(tmp_path)


def test_audit_without_findings_says_so_and_passes(tools: Tools) -> None:
    tools.add("pip-audit", NO_PYTHON_FINDING)
    tools.add("npm", NO_NPM_FINDING)
    done = tools.run_audit()
    assert done.returncode == 0, done.stderr
    assert [line.partition(": ")[2] for line in done.stdout.splitlines()] == ["no known vulnerability"] * 4


def test_audit_with_a_python_finding_names_it_and_fails(tools: Tools) -> None:
    tools.add("pip-audit", PYTHON_FINDING, exit_code=1, error="Found 1 known vulnerability")
    tools.add("npm", NO_NPM_FINDING)
    done = tools.run_audit()
    assert done.returncode == 1, done.stderr
    assert "requirements/runtime.lock: click 8.5.1: PYSEC-2026-1" in done.stdout


def test_audit_with_an_npm_finding_names_its_cause_once_and_fails(tools: Tools) -> None:
    tools.add("pip-audit", NO_PYTHON_FINDING)
    tools.add("npm", NPM_FINDING, exit_code=1)
    done = tools.run_audit()
    assert done.returncode == 1, done.stderr
    assert done.stdout.splitlines()[-1] == "web/package-lock.json: marked <19: GHSA-1"


def test_audit_offline_says_what_it_could_not_check_and_passes(tools: Tools) -> None:
    tools.add("pip-audit", None, exit_code=1, error="Traceback\nConnectionError: no route to host\n")
    tools.add("npm", NPM_OFFLINE, exit_code=1)
    done = tools.run_audit()
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert len(lines) == 4
    assert all(": not checked: " in line for line in lines)
    assert "no route to host" in lines[0]
    assert "request failed" in lines[-1]


def test_audit_without_the_tools_says_that_they_are_missing_and_passes(tools: Tools) -> None:
    done = tools.run_audit()
    assert done.returncode == 0, done.stderr
    assert "pip-audit is not installed" in done.stdout
    assert "npm is not installed" in done.stdout


def test_audit_that_finds_in_one_place_and_cannot_check_another_fails(tools: Tools) -> None:
    tools.add("pip-audit", PYTHON_FINDING, exit_code=1)
    assert tools.run_audit().returncode == 1


def test_audit_whose_source_skips_packages_does_not_call_them_safe(tools: Tools) -> None:
    packages = [{"name": name, "skip_reason": "not found"} for name in ("a", "b", "c", "d")]
    tools.add("pip-audit", {"dependencies": packages})
    tools.add("npm", NO_NPM_FINDING)
    done = tools.run_audit()
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].endswith("not checked: no answer for 4 of 4 packages: a, b, c, ...")
