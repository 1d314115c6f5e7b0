"""`make test` says what it installs, installs nothing else, and fails clearly where it cannot."""

from pathlib import Path

import pytest

from tests import tools

APT = """#!/bin/sh
echo "$*" >> {folder}/commands
echo noise
echo '#!/bin/sh' > {folder}/chromium
chmod +x {folder}/chromium
exit {status}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine where root has every program but Chromium."""
    for name in ("firefox-esr", "node", "curl", "openssl", "nginx"):
        write_program(tmp_path / name, "#!/bin/sh\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CHROMIUM", raising=False)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setattr("os.geteuid", lambda: 0)
    monkeypatch.setattr(tools, "MAC_BROWSERS", ())
    return tmp_path


def write_program(path: Path, text: str) -> None:
    path.write_text(text)
    path.chmod(0o755)


def test_tools_everything_present_prints_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_program(folder / "chromium", "#!/bin/sh\n")

    assert tools.main() == 0
    assert capsys.readouterr().out == ""


def test_tools_root_without_browser_installs_what_it_announces(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(tools, "find_command", lambda *names: find_in(folder, *names))
    write_program(folder / "apt-get", APT.format(folder=folder, status=0))

    assert tools.main() == 0
    assert capsys.readouterr().out == (
        "Installing for the tests: chromium (apt-get, on this system), "
        "chromium-headless-shell (apt-get, on this system)\n"
    )
    commands = (folder / "commands").read_text().splitlines()
    installs = [
        f"-qq install -y --no-install-recommends {name}" for name in ("chromium", "chromium-headless-shell")
    ]
    assert [line for line in commands if line != "-qq update"] == installs


def test_tools_failed_install_prints_its_output(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")
    monkeypatch.setattr(tools, "find_command", lambda *names: None)
    monkeypatch.setattr(tools, "installable", lambda names: ["chromium"])
    write_program(folder / "apt-get", APT.format(folder=folder, status=1))

    assert tools.main() == 1
    assert "$ apt-get -qq update\nnoise\n" in capsys.readouterr().out


def test_tools_without_root_or_browser_says_what_to_install(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_program(folder / "apt-get", APT.format(folder=folder, status=0))
    monkeypatch.setattr("os.geteuid", lambda: 1000)

    assert tools.main() == 1
    printed = capsys.readouterr().out
    assert printed.startswith("chromium is missing: install Chromium or Chrome")
    assert "make test CHROMIUM=/path/to/chromium" in printed
    assert not (folder / "commands").exists()


def test_tools_named_browser_is_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_program(folder / "my-browser", "#!/bin/sh\n")
    monkeypatch.setenv("CHROMIUM", str(folder / "my-browser"))

    assert tools.find_chromium() == str(folder / "my-browser")


def test_tools_named_browser_missing_is_reported_and_not_replaced(
    folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    write_program(folder / "apt-get", APT.format(folder=folder, status=0))
    monkeypatch.setenv("CHROMIUM", "/no/such/browser")

    assert tools.main() == 1
    assert "CHROMIUM=/no/such/browser is no program" in capsys.readouterr().out
    assert not (folder / "commands").exists()


@pytest.mark.parametrize(("ci", "status"), [("", 0), ("true", 1)])
def test_tools_optional_program_missing_fails_under_ci_only(
    folder: Path, monkeypatch: pytest.MonkeyPatch, ci: str, status: int
) -> None:
    write_program(folder / "chromium", "#!/bin/sh\n")
    (folder / "curl").unlink()
    monkeypatch.setenv("CI", ci)

    assert tools.main() == status


def find_in(folder: Path, *names: str) -> str | None:
    return next((str(folder / name) for name in names if (folder / name).exists()), None)
