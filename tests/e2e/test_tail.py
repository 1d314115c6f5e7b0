"""`turnlog tail -f` beside a running server: it prints what is appended, and ends quietly.

How soon it prints an event is measured by `python -m bench.tail`.
"""

import asyncio
import contextlib
import json
import os
import pty
import re
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.e2e.harness import TURNLOG, Reader, kind, running
from tests.support.limits import HANG_S

INTERRUPTED = 130


@contextlib.contextmanager
def tailing(folder: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    """`turnlog tail -f` in its own process; killed at the end if it still runs."""
    command = [TURNLOG, "tail", "-f", "--log", f"sqlite:///{folder}/log.db", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def seen(tail: subprocess.Popen[str], text: str) -> dict[str, Any]:
    """Wait for the message of this text."""
    assert tail.stdout is not None
    for line in tail.stdout:
        event: dict[str, Any] = json.loads(line)
        if event["type"] == "ui.message" and event["payload"]["text"] == text:
            return event
    raise AssertionError(f"tail ended before {text!r}")


def test_tail_with_a_running_server_prints_each_event_after_its_append(tmp_path: Path) -> None:
    with running("fast", tmp_path) as server:
        session = server.session()
        server.send(session, "first")
        with tailing(tmp_path, session, "--json") as tail:
            seen(tail, "first")
            for text in ("second", "third", "fourth"):
                sent = server.send(session, text)
                event = seen(tail, text)
                assert (event["seq"], event["id"]) == (sent["eventId"], sent["id"])


def test_tail_after_an_id_of_the_stream_prints_the_events_after_it(tmp_path: Path) -> None:
    with running("fast", tmp_path) as server:
        session = server.session()
        first = server.send(session, "first")
        reader = Reader(server, session, "&types=ui.message")
        assert asyncio.run(reader.read(kind("ui.message")))
        sent = server.send(session, "second")
        with tailing(tmp_path, session, "--json", "--after", reader.last_id) as tail:
            assert tail.stdout is not None
            assert json.loads(tail.stdout.readline())["seq"] == first["eventId"] + 1
            assert seen(tail, "second")["seq"] == sent["eventId"]
        with tailing(tmp_path, session, "--json", "--after", "3:older") as tail:
            _, message = tail.communicate(timeout=HANG_S)
            assert (tail.returncode, "is no cursor of this log" in message) == (1, True)


def test_ctrl_c_ends_it_without_a_word(tmp_path: Path) -> None:
    with running("fast", tmp_path) as server:
        session = server.session()
        server.send(session, "hello")
        with tailing(tmp_path, "--json") as tail:
            seen(tail, "hello")
            tail.send_signal(signal.SIGINT)
            _, said = tail.communicate(timeout=HANG_S)
            assert (tail.returncode, said) == (INTERRUPTED, "")


def test_it_goes_on_when_the_server_dies_and_comes_back(tmp_path: Path) -> None:
    with running("fast", tmp_path) as server:
        session = server.session()
        server.send(session, "before")
        with tailing(tmp_path, session, "--json") as tail:
            seen(tail, "before")
            server.kill()
            with running("fast", tmp_path) as successor:
                successor.send(session, "after")
                seen(tail, "after")
                assert tail.poll() is None


def test_a_reader_that_goes_away_ends_it(tmp_path: Path) -> None:
    with running("fast", tmp_path) as server:
        session = server.session()
        server.send(session, "hello")
        with tailing(tmp_path, "--json") as tail:
            seen(tail, "hello")
            assert tail.stdout is not None
            tail.stdout.close()
            server.send(session, "anyone there?")
            assert tail.wait(HANG_S) == 1
            assert tail.stderr is not None
            assert tail.stderr.read() == ""


def test_a_log_cannot_control_a_real_terminal_and_keeps_to_its_width(tmp_path: Path) -> None:
    with running("fast", tmp_path) as server:
        session = server.session()
        server.send(session, "\x1b[2J\x9b31m\nError: fake " + "long " * 100)
    shown = on_a_terminal([TURNLOG, "tail", "--log", f"sqlite:///{tmp_path}/log.db", "--type", "ui"])
    assert re.findall(r"\x1b\[[^m]*[^\dm;]", shown) == []
    lines = re.sub(r"\x1b\[[\d;]*m", "", shown).split("\r\n")
    assert len(lines) == 2
    assert "\\x1b[2J\\x9b31m\\nError: fake" in lines[0]
    assert len(lines[0]) == 80
    assert lines[0].endswith("…")


def on_a_terminal(command: list[str]) -> str:
    """What a command shows on a terminal of 80 columns."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "80"}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    shown = b""
    with contextlib.suppress(OSError), os.fdopen(ours, "rb", buffering=0) as screen:
        while piece := screen.read(4096):  # a terminal whose other end is gone is an OSError
            shown += piece
    assert process.wait() == 0
    return shown.decode()
