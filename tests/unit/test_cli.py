"""The command: schemas, the version, the help, and how it refuses."""

import json
import subprocess
import sys

import click
import pytest
from click.testing import CliRunner, Result

import turnlog
from turnlog.cli import TurnlogGroup, main
from turnlog.errors import NotFound
from turnlog.vocabularies import FULL_CATALOG

COMMANDS = {
    "assemble", "backup", "chat", "cluster-check", "convert", "demo", "export", "import", "new", "parse",
    "prune", "schema", "serve",
    "sessions", "tail", "verify", "close", "link", "open", "search", "stats",
    "state", "rebuild", "token"}  # fmt: skip
ON_A_LOG = COMMANDS - {"assemble", "cluster-check", "convert", "demo", "new", "parse", "schema", "token"}


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, arguments)


def test_version() -> None:
    result = run("--version")
    assert (result.exit_code, result.output) == (0, f"turnlog, version {turnlog.__version__}\n")


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_names_the_commands(flag: str) -> None:
    result = run(flag)
    assert result.exit_code == 0
    commands = {
        line.split()[0] for line in result.output.partition("Commands:\n")[2].partition("\n\n")[0].split("\n")
    }
    assert commands == set(main.commands) == COMMANDS


def test_schema_of_one_type() -> None:
    result = run("schema", "tool.call")
    assert result.exit_code == 0
    schema = json.loads(result.output)
    properties = schema["$defs"]["ToolCall"]["properties"]
    assert schema["$ref"] == "#/$defs/ToolCall"
    places = ["backend", "frontend", "provider", "remote", "runtime"]
    assert properties["executor"] == {"enum": places, "default": "backend"}


def test_schema_of_everything() -> None:
    result = run("schema")
    assert result.exit_code == 0
    document = json.loads(result.output)
    assert "session_id" in document["envelope"]["$defs"]["Envelope"]["properties"]
    assert set(document["payloads"]) == set(FULL_CATALOG.types)
    assert {"Screen", "Form", "SelectField"} < document["view"]["$defs"].keys()


def test_schema_of_no_type_lists_what_there_is() -> None:
    result = run("schema", "tool.cull")
    assert result.exit_code == 2
    assert "no event type 'tool.cull'" in result.stderr
    assert "tool.call" in result.stderr
    assert result.stdout == ""


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_and_option_is_explained(command: str) -> None:
    result = run(command, "-h")
    assert result.exit_code == 0
    assert main.commands[command].help
    options = [item for item in main.commands[command].params if isinstance(item, click.Option)]
    assert all(option.help for option in options)


@pytest.mark.parametrize("command", sorted(ON_A_LOG))
def test_commands_on_a_log_say_where_they_look_for_it(command: str) -> None:
    text = " ".join(run(command, "-h").output.split())
    default = "memory:" if command == "chat" else "sqlite:///turnlog.db"
    assert f"[env var: TURNLOG_LOG; default: {default}]" in text


def test_an_error_of_turnlog_is_one_line_that_cannot_control_the_terminal() -> None:
    def fail() -> None:
        raise NotFound("no session \x1b[2J\nError: fake")

    group = TurnlogGroup("turnlog", commands=[click.Command("fail", callback=fail)])
    result = CliRunner().invoke(group, ["fail"])
    assert result.exit_code == 1
    assert result.stderr == "Error: no session \\x1b[2J\\nError: fake\n"
    assert result.stdout == ""


def test_another_error_is_not_hidden() -> None:
    def fail() -> None:
        raise ZeroDivisionError

    group = TurnlogGroup("turnlog", commands=[click.Command("fail", callback=fail)])
    assert isinstance(CliRunner().invoke(group, ["fail"]).exception, ZeroDivisionError)


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (OSError(28, "No space left on device"), "Error: No space left on device\n"),
        (OSError(13, "Permission denied", "a\x1b.db"), "Error: a\\x1b.db: Permission denied\n"),
    ],
)
def test_a_file_that_cannot_be_written_is_one_line(
    error: OSError, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        monkeypatch.setattr("sys.stdout", sys.stdout)  # the command gives it up; it is the runner's
        raise error

    group = TurnlogGroup("turnlog", commands=[click.Command("fail", callback=fail)])
    result = CliRunner().invoke(group, ["fail"])
    assert (result.exit_code, result.stderr, result.stdout) == (1, line, "")


def test_the_command_loads_no_server() -> None:
    script = "import sys, turnlog.cli; print(*(name for name in sys.modules if '.' not in name))"
    loaded = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    modules = set(loaded.stdout.split())
    assert {"click", "rich"} <= modules
    assert modules & {"starlette", "uvicorn", "anthropic", "nats"} == set()


def test_help_says_how_the_shell_completes() -> None:
    assert "_TURNLOG_COMPLETE=bash_source turnlog" in run("--help").output


def test_every_command_has_an_example_that_exists() -> None:
    for name, command in main.commands.items():
        example = (command.epilog or "").removeprefix("Example: ")
        assert example.startswith("turnlog "), name
        assert f"turnlog {name}" in example, name


def test_list_of_commands_cuts_no_sentence() -> None:
    assert "..." not in run("--help").output.partition("Commands:\n")[2]
