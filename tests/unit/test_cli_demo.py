"""`turnlog demo` before it serves: what it refuses, which model speaks, whether there is a browser."""

import importlib.util
import socket
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from turnlog.agents.models import AnthropicModel
from turnlog.agents.team import AgentTeam
from turnlog.cli import main
from turnlog.cli.demo import API_KEY_VARIABLE, DEMO_MODEL, DEMO_NAMES, choose_model
from turnlog.cli.serve import SCREEN_VARIABLES, has_screen
from turnlog_examples.demo import make_apps


def refusal(*arguments: str) -> str:
    """The one line that says why."""
    result = CliRunner().invoke(main, ["demo", "--no-browser", *arguments])
    assert isinstance(result.exception, SystemExit), "a stack trace is no message"
    assert result.exit_code != 0
    return result.stderr.rpartition("Error: ")[2].rstrip("\n")


def test_a_busy_port_is_refused_by_its_number() -> None:
    with socket.socket() as busy:
        busy.bind(("127.0.0.1", 0))
        busy.listen()
        port = busy.getsockname()[1]
        advice = "choose another port with --port, or a free one with --port 0"
        assert (
            refusal("--port", str(port))
            == f"cannot listen on 127.0.0.1:{port}: Address already in use; {advice}"
        )


def test_a_system_that_is_not_there_is_refused_with_those_that_are() -> None:
    assert ", ".join(f"'{name}'" for name in DEMO_NAMES) in refusal("no_such")


@pytest.mark.parametrize("key", [None, ""])
def test_without_a_key_the_words_are_scripted(
    key: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv(API_KEY_VARIABLE, raising=False)
    if key is not None:
        monkeypatch.setenv(API_KEY_VARIABLE, key)
    assert choose_model() is None
    assert capsys.readouterr().out == ""


def test_with_a_key_a_real_model_speaks_and_that_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv(API_KEY_VARIABLE, "no-real-key")
    assert choose_model() == DEMO_MODEL
    assert (
        capsys.readouterr().out
        == f"{API_KEY_VARIABLE} is set: {DEMO_MODEL} answers, and its usage is billed.\n"
    )
    apps = make_apps(tmp_path, model=DEMO_MODEL)
    teams = [app.runtime for app in apps.values() if isinstance(app.runtime, AgentTeam)]
    minds = [agent.model for team in teams for agent in team.by_name.values()]
    assert all(isinstance(mind, AnthropicModel) and mind.name == DEMO_MODEL for mind in minds)
    assert apps["office"].runtime.demo_mode, "its process is played all the same"


def test_a_key_without_the_package_is_said_and_stops_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv(API_KEY_VARIABLE, "no-real-key")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert choose_model() is None
    said = capsys.readouterr().out
    assert "pip install 'turnlog[anthropic]'" in said
    assert said.endswith("The answers are scripted.\n")


@pytest.mark.parametrize(
    ("platform", "env", "found"),
    [
        ("linux", {}, False),
        ("linux", {"DISPLAY": ""}, False),
        ("linux", {"DISPLAY": ":0"}, True),
        ("linux", {"WAYLAND_DISPLAY": "wayland-0"}, True),
        ("linux", {"BROWSER": "firefox"}, True),
        ("darwin", {}, True),
        ("win32", {}, True),
    ],
)
def test_a_browser_has_a_window_of_its_own_or_is_not_opened(
    platform: str, env: dict[str, str], found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in SCREEN_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    for name, value in env.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert has_screen() is found
