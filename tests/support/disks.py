"""File systems of a test's own: small ones that a test fills or makes read-only."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

# The process that mounts a file system also unmounts it, when its input ends: then the test is over, or its
# process was killed. A mount that is left would break the clean-up of later runs.
MOUNT = """
mount -t tmpfs -o size="$2" tmpfs "$1" || exit 1
echo mounted
cat
exec umount -l "$1"
"""


@contextmanager
def mounted_disk(folder: Path, size_bytes: int) -> Iterator[Path]:
    """A file system of a size; the test is skipped where none can be mounted."""
    folder.mkdir()
    with subprocess.Popen(
        ["sh", "-c", MOUNT, "sh", str(folder), str(size_bytes)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,  # a signal to all processes of a run does not end it
    ) as keeper:
        assert keeper.stdin is not None
        assert keeper.stdout is not None
        assert keeper.stderr is not None
        if keeper.stdout.readline() != "mounted\n":
            pytest.skip(f"a small file system is needed, and none can be mounted: {keeper.stderr.read()}")
        yield folder
        keeper.stdin.close()
        assert keeper.wait() == 0


def fill(disk: Path, room_bytes: int = 0) -> Path:
    """A file that leaves so much room."""
    ballast = disk / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
        file.truncate(max(0, file.tell() - room_bytes))
    return ballast
