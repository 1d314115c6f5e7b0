"""Check the locked versions for known vulnerabilities, as far as the advisory sources can be reached.

`make audit` runs it. Exit code 1 means that a tool reported a vulnerability; the tool's report is printed.
A check that could not be made, for example without a network, is one line, and no failure.
"""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]
LIMIT_S = 300  # a guard against a tool that waits for a network for ever
LOCKS = ("runtime.lock", "dev.lock", "node.lock")


@dataclass(frozen=True)
class Finding:
    package: str
    advisory: str


class CheckFailed(Exception):
    """A tool gave no answer; the message says why, in one line."""


def run_tool(command: Sequence[str], folder: Path) -> str:
    """Return what a tool printed as JSON; raise `CheckFailed` if it is missing or printed none."""
    program = shutil.which(command[0])
    if program is None:
        raise CheckFailed(f"{command[0]} is not installed")
    try:
        done = subprocess.run(
            [program, *command[1:]], cwd=folder, capture_output=True, text=True, check=False, timeout=LIMIT_S
        )
    except subprocess.TimeoutExpired:
        raise CheckFailed(f"{command[0]} did not answer within {LIMIT_S} s") from None
    if not done.stdout.lstrip().startswith("{"):
        lines = (done.stderr or done.stdout).strip().split("\n")
        raise CheckFailed(f"{command[0]} could not answer: {lines[-1][:160]}")
    return done.stdout


def read_pip_audit(text: str) -> list[Finding]:
    packages = json.loads(text)["dependencies"]
    # pip-audit passes over a package that its source does not answer for, and calls that a success.
    skipped = [package["name"] for package in packages if "skip_reason" in package]
    findings = [
        Finding(f"{package['name']} {package['version']}", vulnerability["id"])
        for package in packages
        for vulnerability in package.get("vulns", [])
    ]
    if skipped and not findings:
        raise CheckFailed(f"no answer for {len(skipped)} of {len(packages)} packages: {quote_some(skipped)}")
    return findings


def quote_some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:3])
    return shown if len(names) <= 3 else f"{shown}, ..."


def read_npm_audit(text: str) -> list[Finding]:
    answer = json.loads(text)
    if "vulnerabilities" not in answer:
        error = answer.get("error", {})
        reason = answer.get("message") or error.get("summary") or error.get("code") or "no report"
        raise CheckFailed(f"npm could not answer: {str(reason).strip().splitlines()[0][:160]}")
    return [
        Finding(f"{name} {entry.get('range', '')}".strip(), cause.get("url") or cause["title"])
        for name, entry in answer["vulnerabilities"].items()
        for cause in entry["via"]
        if isinstance(cause, dict)  # a text names another entry, which has the cause
    ]


def audit_lock(lock: str) -> list[Finding]:
    path = str(ROOT / "requirements" / lock)
    command = ["pip-audit", "--require-hashes", "--disable-pip", "-r", path, "-f", "json"]
    return read_pip_audit(run_tool([*command, "--progress-spinner", "off"], ROOT))


def audit_npm() -> list[Finding]:
    return read_npm_audit(run_tool(["npm", "audit", "--json"], ROOT / "web"))


def main() -> int:
    checks: dict[str, Callable[[], list[Finding]]] = {
        f"requirements/{lock}": partial(audit_lock, lock) for lock in LOCKS
    }
    checks["web/package-lock.json"] = audit_npm
    found = 0
    for subject, check in checks.items():
        try:
            findings = check()
        except (CheckFailed, ValueError, KeyError) as error:
            print(f"{subject}: not checked: {error}")
            continue
        found += len(findings)
        for finding in findings:
            print(f"{subject}: {finding.package}: {finding.advisory}")
        if not findings:
            print(f"{subject}: no known vulnerability")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
