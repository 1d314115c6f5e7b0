"""The one-file examples of other frameworks, each copied to an empty folder and served by `turnlog serve`.

A message, a sub-agent, an approval that waits while the server is killed, and the result at the next server.
The program of the Claude Agent SDK cannot store a question: it is answered at the same server.
"""

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.examples import over, read
from tests.e2e.harness import ROOT, Reader, Server, kind, running

EXAMPLES = ROOT / "examples" / "turnlog_examples" / "bring_your_own"
CLAUDE_EXAMPLE = "claude_sdk_agent"
AG_UI_EXAMPLE = "ag_ui_agent"
STORING_EXAMPLES = ["ag_ui_agent", "langgraph_agent", "openai_agents_agent", "pydantic_ai_agent"]


def copy_example(name: str, folder: Path) -> Path:
    """Copy one file, and the program that one of them starts in place of Claude Code."""
    example = folder / "example"
    example.mkdir()
    shutil.copy(EXAMPLES / f"{name}.py", example)
    if name == CLAUDE_EXAMPLE:
        shutil.copytree(EXAMPLES / "offline", example / "offline")
    return example


def serve(name: str, example: Path, folder: Path) -> AbstractContextManager[Server]:
    """Run `turnlog serve NAME:app` in the folder of the example."""
    command = f"import os, turnlog.cli; os.chdir({str(example)!r}); turnlog.cli.main()"
    return running(f"{name}:app", folder, program=(sys.executable, "-c", command))


@contextmanager
def run_agent_server(example: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Run the server of the AG-UI example as its head says, on a free port. It outlives that of Turnlog."""
    command = [sys.executable, "-m", "uvicorn", "ag_ui_agent:agent", "--port", "0", "--no-access-log"]
    process = subprocess.Popen(command, cwd=example, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        for line in process.stderr:
            if found := re.search(r"http://127\.0\.0\.1:\d+", line):
                monkeypatch.setenv("AGENT_URL", f"{found[0]}/agent")
                break
        yield
    finally:
        process.terminate()
        process.wait()
        process.stderr.close()


def ask_for_refund(server: Server, session: str) -> Any:
    """Send the message of the examples. Return the approval that waits."""
    server.send(session, "Please refund order A-17.")
    return read(Reader(server, session), kind("approval.request"))[-1]["payload"]


def approve(server: Server, session: str, request: Any) -> None:
    fields = {name: request[name] for name in ("call_id", "args_hash")}
    events = [{"type": "approval.decision", "payload": {**fields, "decision": "approve"}}]
    status, answer = server.post("/api/events", {"session": session, "events": events})
    assert status == 202, answer


def check_conversation(server: Server, session: str, refund: str) -> None:
    """Check the whole log, as a page gets it that comes afterwards."""
    events = read(Reader(server, session), over)
    payloads: dict[str, list[Any]] = {}
    for event in events:
        payloads.setdefault(event["type"], []).append(event["payload"])
    assert [start["name"] for start in payloads["agent.start"]] == ["Clerk", "Researcher"]
    texts = [message["text"].strip() for message in payloads["assistant.message"]]
    assert texts == ["Let me look.", "Ada ordered it.", "The order is handled."]
    results = {result["tool"]: result["result"] for result in payloads["tool.result"]}
    assert results[refund] == "refunded A-17"
    assert [end["stop_reason"] for end in payloads["agent.end"]] == ["end_turn", "end_turn"]


@pytest.mark.parametrize("name", STORING_EXAMPLES)
def test_approval_of_an_example_is_answered_at_the_next_server(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    example = copy_example(name, tmp_path)
    with run_agent_server(example, monkeypatch) if name == AG_UI_EXAMPLE else nullcontext():
        with serve(name, example, tmp_path) as server:
            session = server.session()
            request = ask_for_refund(server, session)
            assert request["tool"] == "refund"
            server.kill()
        with serve(name, example, tmp_path) as server:
            approve(server, session, request)
            check_conversation(server, session, "refund")


def test_approval_of_the_claude_sdk_is_answered_at_the_same_server(tmp_path: Path) -> None:
    example = copy_example(CLAUDE_EXAMPLE, tmp_path)
    with serve(CLAUDE_EXAMPLE, example, tmp_path) as server:
        session = server.session()
        request = ask_for_refund(server, session)
        assert request["tool"] == "mcp__shop__refund"
        approve(server, session, request)
        check_conversation(server, session, "mcp__shop__refund")


def test_every_example_is_served() -> None:
    assert sorted(path.stem for path in EXAMPLES.glob("*.py")) == sorted([CLAUDE_EXAMPLE, *STORING_EXAMPLES])
