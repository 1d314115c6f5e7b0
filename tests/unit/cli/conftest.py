"""Fixtures for the tests of the command."""

from pathlib import Path

import pytest

from tests.unit.cli.harness import Place


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path / "log.db")
