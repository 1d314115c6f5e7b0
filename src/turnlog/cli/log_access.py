"""Access to a log and its sessions for commands, and messages about damage."""

import asyncio
import logging
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, TypeVar

from turnlog.cli.terminal import escape_controls
from turnlog.errors import NotFound
from turnlog.log import Damage, Log, SessionRecord, open_log, sqlite_path

T = TypeVar("T")

LOG_OPTION: dict[str, Any] = {  # arguments of click.option for --log
    "default": "sqlite:///turnlog.db",
    "envvar": "TURNLOG_LOG",
    "show_default": True,
    "show_envvar": True,
    "help": "The URL of the log.",
}
MAX_CANDIDATES = 5  # sessions that the message about an ambiguous name lists
INTERRUPT_EXIT_CODE = 130  # what shells expect after Ctrl+C


def run_command(work: Coroutine[Any, Any, T]) -> T:
    """Run the work of a command. Ctrl+C ends it without a message."""
    try:
        return asyncio.run(work)
    except KeyboardInterrupt:
        raise SystemExit(INTERRUPT_EXIT_CODE) from None


@asynccontextmanager
async def open_cli_log(log_url: str, *, writable: bool = False) -> AsyncIterator[Log]:
    """Open a log for reading beside a process that may write it, or for writing as the only process."""
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
    # The commands print damage and errors themselves: without this they would be printed twice.
    handler = logging.NullHandler()
    loggers = [logging.getLogger("turnlog.log"), logging.getLogger("psycopg")]
    for logger in loggers:
        logger.addHandler(handler)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeHandler(handler)


def check_log_exists(log_url: str) -> None:
    """Raise `NotFound` with the full path if there is no SQLite log."""
    if not log_url.startswith("sqlite:"):
        return
    path = sqlite_path(log_url).resolve()
    if not path.exists():
        raise NotFound(f"there is no log at {path}; choose another one with --log or TURNLOG_LOG")


async def find_session_id(log: Log, name: str) -> str:
    """Return the id of a session from its id or the beginning of it, with or without `sess_`.

    Raise `NotFound` if no session matches, or more than one.
    """
    try:
        return (await log.info(name)).session_id
    except NotFound:
        session_ids = [record.session_id for record in await log.sessions()]

    matching = [
        session_id for session_id in session_ids if name and session_id.startswith((name, f"sess_{name}"))
    ]
    if not matching:
        raise NotFound(f"no session {name[:80]}; `turnlog sessions` lists all sessions")
    if len(matching) > 1:
        candidates = ", ".join(matching[:MAX_CANDIDATES])
        if len(matching) > MAX_CANDIDATES:
            candidates += f" and {len(matching) - MAX_CANDIDATES} more"
        raise NotFound(f"{name[:80]} matches several sessions: {candidates}")
    return matching[0]


async def find_records(log: Log, names: Sequence[str]) -> list[SessionRecord]:
    if not names:
        return await log.sessions()
    session_ids = [await find_session_id(log, name) for name in names]
    return [await log.info(session_id) for session_id in dict.fromkeys(session_ids)]


async def latest_session(log: Log) -> str:
    """Return the id of the newest session. Raise `NotFound` if there is none."""
    records = await log.sessions()
    if not records:
        for session_id in await log.damaged_sessions():
            await log.info(session_id)  # raises `SessionDamaged`
        raise NotFound("this log has no sessions yet")
    return records[-1].session_id


def damaged_record_message(session_id: str) -> str:
    return escape_controls(
        f"{session_id} cannot be read because its record is damaged; the next process that writes repairs it"
    )


def format_damage(damage: Damage) -> str:
    subject = damage.session_id or "the log"
    if damage.first >= 0:
        subject += f" seq {seq_range(damage.first, damage.last)}"
    return escape_controls(f"{subject}: {damage.problem}")


def seq_range(first: int, last: int) -> str:
    return f"{first}" if first == last else f"{first} to {last}"
