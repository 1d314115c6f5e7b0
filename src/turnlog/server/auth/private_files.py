"""Files beside the log that only their owner may read."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def write_private_temp_file(file: Path, data: bytes) -> Iterator[str]:
    """Yield the name of a new file beside another, on the disk and for its owner alone.

    The caller gives it its place. It is removed if it is still there afterwards.
    """
    number, name = tempfile.mkstemp(prefix=f"{file.name}.", dir=file.parent)
    try:
        with os.fdopen(number, "wb") as opened:
            opened.write(data)
            opened.flush()
            os.fsync(opened.fileno())
        yield name
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)
