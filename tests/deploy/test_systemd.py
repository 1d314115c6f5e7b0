"""`deploy/systemd`: units that systemd takes, with commands that the program takes."""

import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.deploy_files import STOP_S, SYSTEMD, parse_serve

UNITS = ("turnlog-web@.service", "turnlog-worker@.service")
COMMON = SYSTEMD / "turnlog-.service.d/common.conf"
PROGRAM = "/opt/turnlog/bin/turnlog"
LINE = re.compile(r"(\w+)=(.*)")


def read_settings(path: Path) -> dict[str, list[str]]:
    """Return the values of each setting of a unit. Raise `AssertionError` for a line that is none."""
    settings: dict[str, list[str]] = {}
    for line in path.read_text().replace("\\\n", " ").split("\n"):
        if not line or line.startswith(("#", "[")):
            continue
        found = LINE.fullmatch(line)
        assert found, line
        settings.setdefault(found[1], []).append(found[2])
    return settings


def example_environment() -> dict[str, str]:
    lines = (SYSTEMD / "turnlog.env.example").read_text().split("\n")
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))


def command_words(unit: str) -> list[str]:
    """Return the words that systemd would start, for the instance 8765 and the example's environment."""
    [line] = read_settings(SYSTEMD / unit)["ExecStart"]
    values = example_environment() | {"APP": "turnlog_examples.tour:app"}
    line = line.replace("%i", "8765").replace("%d", "/run/credentials/unit")
    line = re.sub(r"\$\{(\w+)\}", lambda found: shlex.quote(values[found[1]]), line)
    words = shlex.split(line)
    assert words[0] == PROGRAM
    return words[1:]


@pytest.mark.parametrize("unit", UNITS)
def test_command_is_one_that_the_program_takes_and_has_time_to_drain(unit: str) -> None:
    command = parse_serve(command_words(unit))
    assert unit == f"turnlog-{command.role}@.service"
    assert command.port == 8765
    common = read_settings(COMMON)
    [timeout] = common["TimeoutStopSec"]
    assert int(timeout) > command.drain_s + STOP_S
    assert common["LoadCredential"] == [f"{command.key_file.name}:/etc/turnlog/key"]


def test_a_stop_signals_the_server_alone() -> None:
    assert read_settings(COMMON)["KillMode"] == ["mixed"]


def copy_units(folder: Path, more: str = "") -> None:
    shutil.copytree(SYSTEMD, folder, dirs_exist_ok=True)
    for unit in UNITS:
        (folder / unit).write_text((folder / unit).read_text().replace(PROGRAM, "/bin/true"))
    (folder / COMMON.parent.name / COMMON.name).write_text(COMMON.read_text() + more)


def verify_units(folder: Path, systemd_analyze: str) -> str:
    """Return what systemd says about the units; nothing if they are good."""
    names = [unit.replace("@", "@8765") for unit in UNITS]
    done = subprocess.run(
        [systemd_analyze, "verify", *names],
        env={"SYSTEMD_UNIT_PATH": f"{folder}:"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr + (f"exit code {done.returncode}" if done.returncode else "")


def test_systemd_takes_the_units(tmp_path: Path) -> None:
    systemd_analyze = shutil.which("systemd-analyze")
    if systemd_analyze is None:  # the tests above have read every line
        return
    copy_units(tmp_path)
    assert verify_units(tmp_path, systemd_analyze) == ""
    copy_units(tmp_path, "Tea=yes\n")
    assert "Unknown key" in verify_units(tmp_path, systemd_analyze)
