"""The client library under `web/client` passes its own tests, which share their vectors with Python."""

import subprocess

import pytest

from tests.e2e.harness import ROOT, TURNLOG


def test_the_tests_of_the_web_client(node: str) -> None:
    files = sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/web/*.test.mjs"))
    assert files
    command = [node, "--test", "--test-reporter=spec", *files]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@pytest.mark.parametrize("name", ["events.d.ts", "types.js"])
def test_the_types_of_events_are_those_of_the_schema(node: str, name: str) -> None:
    schema = subprocess.run([TURNLOG, "schema"], capture_output=True, timeout=30, check=True).stdout
    command = [node, "web/client/generate.mjs", name]
    made = subprocess.run(command, cwd=ROOT, input=schema, capture_output=True, timeout=30, check=True)
    assert made.stdout.decode() == (ROOT / "web/client" / name).read_text(), "see the head of generate.mjs"
