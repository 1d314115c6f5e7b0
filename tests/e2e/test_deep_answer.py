"""kill -9 while an agent at depth 2 waits; another process answers, and the turn goes on to its end."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.harness import ROOT
from tests.support.limits import HANG_S


def command(folder: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "tests.e2e.deep", f"sqlite:///{folder}/log.db", *words]


def killed_while_it_waits(folder: Path, asks: str) -> list[Any]:
    """What the first process said before it was killed."""
    with subprocess.Popen(command(folder, asks), stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout
        events: list[Any] = []
        for line in process.stdout:
            events.append(json.loads(line))
            if events[-1][0] in ("tool.await", "approval.request"):
                break
        process.kill()
    return events


def answered(folder: Path, asks: str, answer: object) -> list[Any]:
    words = command(folder, asks, json.dumps(answer))
    done = subprocess.run(words, capture_output=True, text=True, cwd=ROOT, timeout=HANG_S, check=True)
    return [json.loads(line) for line in done.stdout.split("\n") if line]


@pytest.mark.parametrize(
    ("asks", "answer", "heard"),
    [
        ("confirm", True, "true"),
        ("inquire", {"answer": "green"}, "the answer is green"),
        ("remove", True, "weed is gone"),
    ],
)
def test_another_process_goes_on_with_an_answer_at_depth_2(
    tmp_path: Path, asks: str, answer: object, heard: str
) -> None:
    before = killed_while_it_waits(tmp_path, asks)
    assert before[-1][1:3] == ["C", 2]
    after = answered(tmp_path, asks, answer)
    ends = [(event[1], event[2], event[3]["stop_reason"]) for event in after if event[0] == "agent.end"]
    assert ends == [("C", 2, "end_turn"), ("B", 1, "end_turn"), ("A", 0, "end_turn")]
    assert after[-1][3]["result"] == f"I heard: I heard: I heard: {heard}"
    assert not [event for event in after if event[0] == "agent.start"], "the same agents went on"
    [refused] = answered(tmp_path, asks, answer)
    assert refused[0] == "refused", "an answer counts once"
