"""How a command gets at a log and at a session in it, and what it says about damage."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from turnlog.cli.terminal import escape_controls
from turnlog.errors import NotFound
from turnlog.log import Damage, Log, SessionRecord, open_log, sqlite_path

T = TypeVar("T")

LOG_OPTION: dict[str, Any] = {  # where a command looks for its log, as an option of click
    "default": "sqlite:///turnlog.db",
    "envvar": "TURNLOG_LOG",
    "show_default": True,
    "show_envvar": True,
    "help": "Where the log is.",
}
MAX_CANDIDATES = 5  # sessions that an ambiguous name is told with
INTERRUPT_EXIT_CODE = 130  # what shells expect of a command that Ctrl+C ended


def run_command(work: Coroutine[Any, Any, T]) -> T:
    """Run the work of a command; Ctrl+C ends it without a word."""
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPT_EXIT_CODE) from None


@asynccontextmanager
async def open_cli_log(log_url: str, *, writable: bool = False) -> AsyncIterator[Log]:
    """A log to read, beside a process that may be writing it; or to write, as the one process that does."""
    if not writable:
        check_log_exists(log_url)
    log = await open_log(log_url, writable=writable)
    try:
        with silence_log():
            yield log
    finally:
        await log.close()


@contextmanager
def silence_log() -> Iterator[None]:
    """The commands say themselves what is wrong with a log: without this it would be said twice."""
    handler, logger = logging.NullHandler(), logging.getLogger("turnlog.log")
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)


def check_log_exists(log_url: str) -> None:
    """Raise `NotFound` with the whole path, and how to name another log, if there is none."""
    if not log_url.startswith("sqlite:"):
        return
    path = sqlite_path(log_url).resolve()
    if not path.exists():
        raise NotFound(f"there is no log at {path}; name another one with --log or TURNLOG_LOG")


async def find_session_id(log: Log, name: str) -> str:
    """Return the id of the session that a person named, by its id or the beginning of it.

    Raise `NotFound` if there is none, or more than one.
    """
    try:
        return (await log.info(name)).session_id
    except NotFound:
        ids = [head.session_id for head in await log.sessions()]
    found = [session_id for session_id in ids if name and session_id.startswith((name, f"sess_{name}"))]
    if not found:
        raise NotFound(f"no session {name[:80]}; `turnlog sessions` lists what there is")
    if len(found) > 1:
        more = f" and {len(found) - MAX_CANDIDATES} more" if len(found) > MAX_CANDIDATES else ""
        raise NotFound(f"{name[:80]} is the beginning of several: {', '.join(found[:MAX_CANDIDATES])}{more}")
    return found[0]


async def find_records(log: Log, names: Sequence[str]) -> list[SessionRecord]:
    """Return the sessions that a person named, each once; all if none is named."""
    if not names:
        return await log.sessions()
    ids = [await find_session_id(log, name) for name in names]
    return [await log.info(session_id) for session_id in dict.fromkeys(ids)]


async def latest_session(log: Log) -> str:
    """The session that was made last."""
    heads = await log.sessions()
    if not heads:
        for name in await log.damaged_sessions():
            await log.info(name)  # says what is wrong with it
        raise NotFound("there is no session in this log yet")
    return heads[-1].session_id


def damaged_record_message(name: str) -> str:
    """A session that nobody can read before its record is repaired."""
    return escape_controls(
        f"{name} cannot be read: its own record is damaged; the next process to write repairs it"
    )


def format_damage(damage: Damage) -> str:
    """One damage in one line."""
    place = damage.session_id or "the log"
    if damage.first >= 0:
        place += f" seq {seq_range(damage.first, damage.last)}"
    return escape_controls(f"{place}: {damage.problem}")


def seq_range(first: int, last: int) -> str:
    """Seqs from one to another."""
    return f"{first}" if first == last else f"{first} to {last}"
