"""How a command gets at a log, and what it says about damage."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from turnlog.cli.terminal import escape
from turnlog.errors import NotFound
from turnlog.log import Damage, Log, open_log

T = TypeVar("T")

LOG: dict[str, Any] = {  # where a command looks for its log, as an option of click
    "default": "sqlite:///turnlog.db",
    "envvar": "TURNLOG_LOG",
    "show_default": True,
    "show_envvar": True,
    "help": "Where the log is.",
}
INTERRUPTED = 130  # what shells expect of a command that Ctrl+C ended


def run(work: Coroutine[Any, Any, T]) -> T:
    """Run the work of a command; Ctrl+C ends it without a word."""
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPTED) from None


@asynccontextmanager
async def opened(log_url: str, *, writable: bool = False) -> AsyncIterator[Log]:
    """A log to read, beside a process that may be writing it; or to write, as the one process that does."""
    log = await open_log(log_url, writable=writable)
    try:
        with unlogged():
            yield log
    finally:
        await log.close()


@contextmanager
def unlogged() -> Iterator[None]:
    """The commands say themselves what is wrong with a log: without this it would be said twice."""
    handler, logger = logging.NullHandler(), logging.getLogger("turnlog.log")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


async def newest(log: Log) -> str:
    """The session that was made last."""
    heads = await log.sessions()
    if not heads:
        for name in await log.broken():
            await log.info(name)  # says what is wrong with it
        raise NotFound("there is no session in this log yet")
    return heads[-1].session_id


def broken_line(name: str) -> str:
    """A session that nobody can read before its record is repaired."""
    return escape(f"{name} cannot be read: its own record is damaged; the next process to write repairs it")


def damage_line(damage: Damage) -> str:
    """One damage in one line."""
    place = damage.session_id or "the log"
    if damage.first >= 0:
        place += f" seq {span(damage.first, damage.last)}"
    return escape(f"{place}: {damage.problem}")


def span(first: int, last: int) -> str:
    """Seqs from one to another."""
    return f"{first}" if first == last else f"{first} to {last}"
