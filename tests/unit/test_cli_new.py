"""`turnlog new`: what it makes, what it calls it, and what it refuses."""

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.e2e.harness import ROOT
from tests.support.limits import HANG_S
from turnlog.cli import main


def made(folder: str | Path) -> Result:
    return CliRunner().invoke(main, ["new", str(folder)])


def files_in(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def run(folder: Path, *command: str) -> str:
    """A Python program in a folder; what it prints."""
    ran = subprocess.run(
        [sys.executable, *command], cwd=folder, capture_output=True, text=True, timeout=HANG_S
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def test_its_test_passes_and_its_code_is_clean(tmp_path: Path) -> None:
    folder = tmp_path / "My shop.2"
    result = made(folder)
    assert (result.exit_code, result.stderr) == (0, "")
    assert files_in(folder) == {
        "pyproject.toml",
        "README.md",
        ".gitignore",
        "my_shop_2/__init__.py",
        "tests/test_my_shop_2.py",
    }
    assert not [path for path in files_in(folder) if "$" in (folder / path).read_text()]
    assert "turnlog serve my_shop_2:app" in result.stdout
    assert "1 passed" in run(folder, "-W", "error", "-m", "pytest", "-q", "-p", "no:cacheprovider")
    config = ("--config", str(ROOT / "pyproject.toml"), "--no-cache", ".")
    run(folder, "-m", "ruff", "check", *config)
    run(folder, "-m", "ruff", "format", "--check", *config)


def test_a_folder_that_is_empty_will_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "shop"
    folder.mkdir()
    monkeypatch.chdir(folder)
    assert made(".").exit_code == 0
    assert "shop/__init__.py" in files_in(folder)


def test_what_is_there_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / ".hidden").write_text("mine")
    result = made(tmp_path / "shop")
    assert result.exit_code == 1
    assert "is not empty; choose a new or an empty folder" in result.stderr
    assert files_in(tmp_path) == {"shop/.hidden"}


@pytest.mark.parametrize(
    "name", ["7up", "class", "json", "turnlog", "tests", "späti", "a/..", "x" * 65, "_", "shop!"]
)
def test_what_cannot_be_a_new_package_is_refused_and_nothing_is_made(name: str, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    result = made(tmp_path / "7" / name)
    assert result.exit_code == 2
    assert "expected a folder name that can be a Python package name" in result.stderr
    assert files_in(tmp_path) == set()


def test_what_cannot_be_written_is_said_in_a_line(tmp_path: Path) -> None:
    (tmp_path / "shop").write_text("a file")
    result = made(tmp_path / "shop")
    assert (result.exit_code, result.stderr) == (1, f"Error: cannot write {tmp_path}/shop: Not a directory\n")
