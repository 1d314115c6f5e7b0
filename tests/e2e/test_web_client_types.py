"""The generated types of `web/client` are those of the events that Python declares."""

import subprocess

import pytest

from tests.e2e.harness import ROOT, TURNLOG
from tests.support.limits import HANG_S


@pytest.mark.parametrize("name", ["events.ts", "event-types.ts", "views/view-nodes.ts"])
def test_the_types_of_events_are_those_of_the_schema(node: str, name: str) -> None:
    schema = subprocess.run([TURNLOG, "schema"], capture_output=True, timeout=HANG_S, check=True).stdout
    command = [node, "web/client/generate.mjs", name]
    made = subprocess.run(command, cwd=ROOT, input=schema, capture_output=True, timeout=HANG_S, check=True)
    assert made.stdout.decode() == (ROOT / "web/client" / name).read_text(), "see the head of generate.mjs"
