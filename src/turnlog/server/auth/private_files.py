"""Files beside the log that only their owner may read."""

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def write_private_temp_file(file: Path, data: bytes) -> Iterator[str]:
    """Yield the name of a new private file in the same folder, with the data on the disk.

    The caller renames or links it. It is removed if it still exists afterwards.
    """
    descriptor, name = tempfile.mkstemp(prefix=f"{file.name}.", dir=file.parent)
    try:
        with os.fdopen(descriptor, "wb") as temp_file:
            temp_file.write(data)
            temp_file.flush()
            os.fsync(temp_file.fileno())
        yield name
    finally:
        with suppress(FileNotFoundError):
            os.unlink(name)
