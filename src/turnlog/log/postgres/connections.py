"""Connections to a PostgreSQL: how they are opened, which errors mean that the engine is away, and text.

A connection goes to the one host of the URL that accepts writes. Errors are of three kinds. The engine is
away, or another transaction was preferred: the caller repeats its work (`EngineAway`). A value cannot be
stored: the job with the value fails (`CallerError`). Everything else is a `StoreError`.

Text of PostgreSQL cannot contain NUL. It is written as U+0001 and "0", and U+0001 as U+0001 and "1".
"""

import logging
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, LiteralString, TypeVar

import psycopg
from psycopg.abc import Buffer
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.string import StrBinaryDumper, TextBinaryLoader

from turnlog.errors import CallerError, StoreAway, StoreError, Unavailable
from turnlog.log.postgres.arrays import escape_nul, register_arrays

T = TypeVar("T")
Connection = psycopg.Connection[Any]
Query = LiteralString

log = logging.getLogger("turnlog.log")

CONNECT_DEFAULTS = {  # a part of the URL wins
    "application_name": "turnlog",
    "connect_timeout": "5",
    "target_session_attrs": "read-write",
    # A host that has vanished is noticed after about 11 s. Nothing is cancelled: the engine may commit.
    "keepalives_idle": "5",
    "keepalives_interval": "2",
    "keepalives_count": "3",
    "tcp_user_timeout": "15000",
}
ENCODING = "UTF8"
# Whatever the defaults of the database are: a paused writer holds its row locks for 3 s at most, the bell may
# be silent for long, a statement sees what others have committed, and acknowledged means durable.
SESSION_SETUP = """
    set search_path to turnlog;
    set idle_in_transaction_session_timeout = '3s';
    set statement_timeout = 0;
    set lock_timeout = 0;
    set idle_session_timeout = 0;
    set default_transaction_isolation = 'read committed';
    select set_config('synchronous_commit', 'on', false)
        where current_setting('synchronous_commit') in ('off', 'local');
    """
# The routine of the engine that warns "canceling wait for synchronous replication", in the engine's language.
WAIT_FOR_STANDBYS = "SyncRepWaitForLSN"

# What to do about an error of PostgreSQL, by words of its message.
ADVICE = {
    "session is read-only": "name the primary in the URL, or all hosts with commas between them",
    "session is not read-only": "leave target_session_attrs out of the URL: a log needs the primary",
    "password authentication failed": "give the right one in PGPASSWORD, or in the file in PGPASSFILE",
    "no password supplied": "give it in PGPASSWORD, or in the file in PGPASSFILE",
    "no pg_hba.conf entry": "let the role log in from this machine: add a line to pg_hba.conf",
    "Connection refused": "start PostgreSQL, or correct host and port in the URL",
    "failed to resolve host": "correct the host in the URL",
    "server does not support SSL": "turn on ssl in PostgreSQL, or leave sslmode out of the URL",
    "permission denied for database": "grant create on the database, or make the role its owner",
    "permission denied for schema": "use the role that made the tables, or grant it their rights",
    "permission denied for table": "use the role that made the tables, or grant it their rights",
    "remaining connection slots": "raise max_connections, or stop a program that uses the database",
    "too many clients": "raise max_connections, or stop a program that uses the database",
    "too many connections": "raise the connection limit of the role or of the database",
}
MISSING_DATABASE = re.compile(r'database "[^"]*" does not exist')
NAMED_PARAMETER = re.compile(r'invalid URI query parameter: "(\w+)"')
# Classes of SQLSTATE after which the same work may succeed: connection, transaction state (read-only after a
# failover, idle too long), resources, shutdown.
RETRY_CLASSES = ("08", "25", "53", "57")
DISK_FULL = "53100"  # stays until a person makes room: reported at once, as for a log on this machine
ROLLBACK_CLASS = "40"  # a deadlock, or a serialization failure
FIRST_PAUSE_S = 0.02
MAX_PAUSE_S = 0.5
PATIENCE_S = 60.0  # how long work is repeated while the engine is away: longer than a failover
CLOSING_MESSAGE = "the log is being closed, and its database does not answer"


class EngineAway(StoreAway):
    """The engine cannot be reached, or has not said whether it has committed. The work may be repeated."""


class LostRace(EngineAway):
    """Another transaction was preferred. The connection is good, and the work may be repeated at once."""


class EscapedTextDumper(StrBinaryDumper):
    """Writes `str` as text without NUL."""

    def dump(self, obj: str) -> Buffer | None:
        if "\0" in obj or "\1" in obj:
            obj = escape_nul(obj)
        return super().dump(obj)


class EscapedTextLoader(TextBinaryLoader):
    """Reads text that `EscapedTextDumper` has written."""

    def load(self, data: Buffer) -> bytes | str:
        text = super().load(data)
        if isinstance(text, str) and "\1" in text:
            text = text.replace("\0010", "\0").replace("\0011", "\1")
        return text


def open_connection(url: str) -> Connection:
    """Open a connection to the writable host of a URL. Raise `EngineAway` or `StoreError`."""
    given = parse_engine_url(url)
    with translate_engine_errors():
        defaults = {name: value for name, value in CONNECT_DEFAULTS.items() if name not in given}
        conninfo = make_conninfo(url, **defaults, client_encoding=ENCODING)
        connection = psycopg.connect(conninfo, autocommit=True)
        try:
            check_encoding(connection)
            connection.adapters.register_dumper(str, EscapedTextDumper)
            connection.adapters.register_loader("text", EscapedTextLoader)
            register_arrays(connection.adapters)
            connection.execute(SESSION_SETUP)
        except BaseException:
            connection.close()
            raise
        return connection


def cut_connection(connection: Connection) -> None:
    """Let the thread that waits for an answer on a connection get an error. Any thread may call this."""
    with (
        suppress(psycopg.Error, OSError),  # it has been closed meanwhile
        socket.fromfd(connection.fileno(), socket.AF_UNIX, socket.SOCK_STREAM) as copy,
    ):
        copy.shutdown(socket.SHUT_RDWR)


def check_encoding(connection: Connection) -> None:
    """Raise `StoreError` for a database that cannot hold every character, or does not know what one is."""
    encoding = connection.info.parameter_status("server_encoding")
    if encoding != ENCODING:
        raise StoreError(
            f"the database has the encoding {encoding}, and a log needs {ENCODING}: make another one with "
            f"createdb --encoding={ENCODING} --template=template0"
        )


def parse_engine_url(url: str) -> dict[str, Any]:
    """Return the parameters of a URL. Raise `CallerError`, without the password that the URL may have.

    An unescaped character of a password moves the rest of it into the host, port or database, which
    messages name. So the text between `//` and the host must have no `@` and no `/`.
    """
    address = url.partition("://")[2]
    credentials = address.rpartition("@")[0]
    if re.search("[/@]|%(?![0-9A-Fa-f]{2})", credentials):
        problem = "a user name or password in the URL of the log has a character that must be escaped"
        raise CallerError(f"{problem}: write @ as %40, / as %2F and % as %25")
    try:
        return conninfo_to_dict(url)
    except psycopg.Error as error:
        parameter = NAMED_PARAMETER.search(str(error))
        found = f", got the parameter {parameter[1]}" if parameter else ""
        raise CallerError(
            f"expected a URL like postgresql://user@host:5432/database?sslmode=require{found}"
        ) from None


def describe_engine_error(error: psycopg.Error) -> str:
    """Return what happened, at each host if there are several, and what to do if it is known."""
    lines = str(error).strip().split("\n")
    attempts = [
        line[2:].partition(": connection failed: ")[2] for line in lines if line.startswith("- host:")
    ]
    text = "; ".join(filter(None, attempts)) or lines[0]
    advice = [ADVICE[words] for words in ADVICE if words in text]
    if MISSING_DATABASE.search(text):
        advice.append("create the database, or correct its name in the URL")
    return "; ".join([text, *dict.fromkeys(advice)])


@contextmanager
def translate_engine_errors() -> Iterator[None]:
    """Raise errors of psycopg as `EngineAway`, `CallerError` or `StoreError`."""
    try:
        yield
    except psycopg.Error as error:
        text = describe_engine_error(error)
        if (error.sqlstate or "")[:2] == ROLLBACK_CLASS:
            raise LostRace(f"PostgreSQL has rolled back: {text}") from error
        if is_retriable(error):
            raise EngineAway(f"PostgreSQL cannot be used: {text}") from error
        if isinstance(error, psycopg.DataError):
            raise CallerError(f"this cannot be stored: {text}") from error
        raise StoreError(f"the log cannot be used: {text}") from error


def is_retriable(error: psycopg.Error) -> bool:
    if isinstance(error, psycopg.InterfaceError):
        return True
    if error.sqlstate is None:  # no answer of the server: the connection is lost, or there was none
        return isinstance(error, psycopg.OperationalError)
    return error.sqlstate[:2] in RETRY_CLASSES and error.sqlstate != DISK_FULL


class EngineLink:
    """One connection that is opened on demand, and again after it was lost.

    `on_connect` gets each new connection before it is used. One thread uses the link at a time.
    """

    def __init__(self, url: str, on_connect: Callable[[Connection], None] = lambda _: None) -> None:
        self._url = url
        self._on_connect = on_connect
        self._connection: Connection | None = None
        self._has_lost_quorum = False

    def open(self) -> Connection:
        if self._connection is not None and self._connection.closed:
            self.drop()
        if self._connection is None:
            connection = self._connection = open_connection(self._url)
            connection.add_notice_handler(self._on_notice)
            try:
                self._on_connect(connection)
            except BaseException:
                self.drop()
                raise
        return self._connection

    def cut(self) -> None:
        """Let the thread that waits for an answer get an error. Another thread calls this."""
        if self._connection is not None:
            cut_connection(self._connection)

    def drop(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _on_notice(self, notice: psycopg.errors.Diagnostic) -> None:
        if notice.source_function == WAIT_FOR_STANDBYS:
            self._has_lost_quorum = True

    def check_quorum(self) -> None:
        """Raise `EngineAway` if a commit since the last call did not reach the standbys."""
        if self._has_lost_quorum:
            self._has_lost_quorum = False
            raise EngineAway("the commit was not replicated: the engine cancelled the wait for a standby")


class Patience:
    """Repeats work while the engine is away, until a time has passed or `stop` is set."""

    def __init__(self, patience_s: float, stop: threading.Event) -> None:
        self._patience_s = patience_s
        self._stop = stop
        self._is_over = False

    def end(self) -> None:
        """Let all work fail from now on, without a try."""
        self._is_over = True

    def repeat(self, work: Callable[[], T], on_failure: Callable[[EngineAway], None]) -> T:
        """Run work until it succeeds. `on_failure` is called before each repetition.

        Raise the last `EngineAway` when the time is over. Raise `Unavailable` when `stop` is set or after
        `end`.
        """
        if self._is_over:
            raise Unavailable(CLOSING_MESSAGE)
        deadline_s: float | None = None
        pause_s = FIRST_PAUSE_S
        while True:
            try:
                return work()
            except EngineAway as error:
                on_failure(error)
                now_s = time.monotonic()
                if deadline_s is None:
                    deadline_s = now_s + self._patience_s
                    if not isinstance(error, LostRace):
                        log.warning("%s; trying again for %d s", error, self._patience_s)
                if now_s >= deadline_s:
                    raise
                if self._stop.wait(pause_s) and not isinstance(error, LostRace):
                    raise Unavailable(CLOSING_MESSAGE) from error
                pause_s = min(2 * pause_s, MAX_PAUSE_S)
