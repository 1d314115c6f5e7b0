"""What this process opens while it is watched: files, and connections to anywhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_watched: list[list[tuple[str, Any]]] = []  # those who look at present; a hook cannot be taken away again
KINDS = {"open", "socket.connect", "socket.getaddrinfo", "urllib.Request", "subprocess.Popen"}


def _hook(kind: str, given: tuple[Any, ...]) -> None:
    if _watched and kind in KINDS:
        for seen in _watched:
            seen.append((kind, given[1] if kind == "socket.connect" else given[0]))


sys.addaudithook(_hook)


@contextmanager
def watched() -> Iterator[list[tuple[str, Any]]]:
    """Everything that is opened in the meantime, as (kind, what)."""
    seen: list[tuple[str, Any]] = []
    _watched.append(seen)
    try:
        yield seen
    finally:
        _watched.remove(seen)
