"""A file system of a test is gone when the process of the test is, however it ends."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.harness import ROOT
from tests.support.disks import mounted_disk

HOLD = """
import sys
from pathlib import Path
from tests.support.disks import mounted_disk
with mounted_disk(Path(sys.argv[1]), 1 << 20) as folder:
    (folder / "file").touch()
    print("mounted", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder on which a file system can be mounted."""
    with mounted_disk(tmp_path / "first", 1 << 20) as first:
        assert os.path.ismount(first)
    assert not os.path.ismount(tmp_path / "first")
    return tmp_path / "disk"


def test_mounted_disk_of_a_killed_process_is_unmounted(folder: Path) -> None:
    command = [sys.executable, "-c", HOLD, str(folder)]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"mounted\n"
        assert os.path.ismount(folder)
        process.kill()
    while os.path.ismount(folder):
        pass
    assert not (folder / "file").exists()
