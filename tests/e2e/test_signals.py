"""What signals do to a real server: it stops in order, or reads its tokens again."""

import json
import os
import signal
import subprocess
import sys
import urllib.request
import urllib.response
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.harness import ROOT, Server, running
from tests.support.limits import HANG_S
from tests.unit.cli.test_link import Terminal
from turnlog.server.auth.credentials import hash_token


def tokens_of(*names: str) -> str:
    return json.dumps({name: {"sha256": hash_token(name * 8)} for name in names})


def status(server: Server, name: str) -> int:
    return server.get("/api/me", {"authorization": f"Bearer {name * 8}"})[0]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "tokens.json"
    path.write_text(tokens_of("ada", "bob"))
    return path


@pytest.fixture
def server(tmp_path: Path, file: Path) -> Iterator[Server]:
    with running("turnlog_examples.tour:app", tmp_path, options=["--tokens", str(file)]) as server:
        yield server


def stream_of(server: Server, name: str) -> urllib.response.addinfourl:
    """An open stream of a session of one's own."""
    headers = {"authorization": f"Bearer {name * 8}"}
    session = server.post("/api/sessions", {}, headers)[1]["session_id"]
    request = urllib.request.Request(f"{server.url}/api/events?session={session}", headers=headers)
    return urllib.request.urlopen(request, timeout=HANG_S)  # type: ignore[no-any-return]


def test_principal_taken_out_of_the_tokens_is_refused_and_its_stream_ends(server: Server, file: Path) -> None:
    with stream_of(server, "bob") as stream:
        file.write_text(tokens_of("ada"))
        while stream.readline():  # until the server ends it
            pass
    assert [status(server, name) for name in ("ada", "bob")] == [200, 401]


def test_hangup_has_the_tokens_read_again_and_the_server_goes_on(server: Server, file: Path) -> None:
    file.write_text(tokens_of("ada", "cyd"))
    server.process.send_signal(signal.SIGHUP)
    while status(server, "cyd") != 200:
        pass
    assert server.stop() == 0


def test_hangup_of_a_server_without_a_file_of_tokens_is_nothing(tmp_path: Path) -> None:
    with running("turnlog_examples.tour:app", tmp_path) as server:
        server.process.send_signal(signal.SIGHUP)
        assert server.get("/api/me")[0] == 200
        assert server.stop() == 0


def test_server_whose_terminal_is_closed_stops_in_order(tmp_path: Path) -> None:
    at = Terminal(["serve", "turnlog_examples.tour:app", "--port", "0"], tmp_path)
    at.wait_for(lambda shown: "Press Enter" in shown)
    os.close(at._master)
    assert at.process.wait(HANG_S) == 0
    assert not (tmp_path / "turnlog.db.server").exists()


STOPPED_AS_IT_PRINTS = """
import os, signal
from unittest.mock import patch
import click
from turnlog.cli import main

def say(address):
    click.echo(f"Turnlog is at {address}")
    os.kill(os.getpid(), signal.SIGTERM)

patch("turnlog.cli.serve.print_address", say).start()
main()
"""


def test_stop_signal_as_the_address_is_printed_ends_in_order(tmp_path: Path) -> None:
    arguments = ["serve", "turnlog_examples.tour:app", "--port", "0", "--log", f"sqlite:///{tmp_path}/log.db"]
    command = [sys.executable, "-c", STOPPED_AS_IT_PRINTS, *arguments]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=HANG_S, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert "Turnlog is at" in ended.stdout
    assert not (tmp_path / "log.db.server").exists()


def test_cookie_signed_out_at_a_real_server_is_refused_after_its_restart(tmp_path: Path, file: Path) -> None:
    options = ["--tokens", str(file)]
    bearer = {"authorization": f"Bearer {'ada' * 8}"}
    with running("turnlog_examples.tour:app", tmp_path, options=options) as server:
        request = urllib.request.Request(f"{server.url}/api/sign-in", b"", bearer, method="POST")
        with urllib.request.urlopen(request, timeout=HANG_S) as answer:
            cookie = {"cookie": answer.headers["set-cookie"].partition(";")[0], "authorization": ""}
        assert server.get("/api/me", cookie)[0] == 200
        assert server.ask("POST", "/api/sign-out", b"", cookie)[0] == 204
        assert server.get("/api/me", cookie)[0] == 401
        server.kill()
    with running("turnlog_examples.tour:app", tmp_path, options=options) as server:
        assert server.get("/api/me", cookie)[0] == 401
