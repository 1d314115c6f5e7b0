"""The client library under `web/client` passes its own tests, which share their vectors with Python."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_tests_of_the_web_client(node: str) -> None:
    files = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/web/*.test.mjs"))
    assert files
    command = [node, "--test", "--test-reporter=spec", *files]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr
