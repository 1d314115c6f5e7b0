"""The parts of `deploy/compose/compose.yaml`, run on this machine: databases, web nodes, workers and nginx.

The scripts, command lines and the configuration are those of the folder. Addresses, ports and the folder of
the secrets are replaced, and the drain is shorter.
"""

import contextlib
import http.client
import json
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest

from tests.conftest import program
from tests.support.deploy_files import COMPOSE, read_yaml
from tests.support.docs_nginx import free_port
from tests.support.limits import HANG_S
from tests.support.postgres_server import USER, PostgresServer, running_server, server_folder, user_options

[FILE] = read_yaml(COMPOSE / "compose.yaml")
NAME = "log.example.org"
TURNLOG = str(Path(sys.executable).parent / "turnlog")
LOG_URL = "postgresql://turnlog@db1,db2,db3/turnlog"
Process = subprocess.Popen[str]


class Databases(NamedTuple):
    """A primary and two standbys, as `init.sh` and `standby.sh` make them."""

    primary: PostgresServer
    ports: list[int]

    @property
    def url(self) -> str:
        hosts = ",".join(f"127.0.0.1:{port}" for port in self.ports)
        return f"postgresql://turnlog@{hosts}/turnlog"


class Node:
    """A process of the command line of a service."""

    def __init__(self, name: str, log_url: str, secrets: Path, port: int = 0) -> None:
        service = FILE["services"][name]
        self._words = [word.replace("/run/secrets", str(secrets)) for word in service["command"]]
        self._words = [word.replace(LOG_URL, log_url) for word in self._words]
        self._words += ["--host=127.0.0.1", f"--port={port}", "--drain=2"]  # the last one counts
        self._environment = {
            key: value.replace("/run/secrets", str(secrets)) for key, value in service["environment"].items()
        } | {"FORWARDED_ALLOW_IPS": "127.0.0.1"}
        self.process: Process | None = None
        self.port = port

    def start(self) -> None:
        process = subprocess.Popen(
            [TURNLOG, *self._words], env=os.environ | self._environment, stdout=subprocess.PIPE, text=True
        )
        self.process = process
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/", line)
        assert found, line
        self.port = int(found[1])
        self._words[-2] = f"--port={self.port}"  # the same one after a restart

    def end(self, number: signal.Signals) -> int:
        """Send a signal; return the exit code."""
        assert self.process is not None
        self.process.send_signal(number)
        code = self.process.wait(HANG_S)
        assert self.process.stdout is not None
        self.process.stdout.close()
        return code

    def close(self) -> None:
        if self.process is not None and self.process.poll() is None:
            self.end(signal.SIGKILL)

    def is_healthy(self) -> bool:
        """Run the health check of the file."""
        test = FILE["services"]["web1"]["healthcheck"]["test"]
        assert test[:3] == ["CMD", "python", "-c"]
        code = test[3].replace(":8765/", f":{self.port}/").replace("timeout=5", f"timeout={HANG_S}")
        return subprocess.run([sys.executable, "-c", code], stderr=subprocess.DEVNULL).returncode == 0


class Site(NamedTuple):
    """All parts together."""

    databases: Databases
    web: list[Node]
    folder: Path
    plain: int
    tls: int
    token: str

    @property
    def secrets(self) -> Path:
        return self.folder / "secrets"

    def open(self) -> http.client.HTTPSConnection:
        trusted = ssl.create_default_context(cafile=self.secrets / "tls_certificate")
        return NamedConnection(self.tls, trusted)

    def headers(self, **more: str) -> dict[str, str]:
        named = {name.replace("_", "-"): value for name, value in more.items()}
        return {"host": f"{NAME}:{self.tls}", "authorization": f"Bearer {self.token}"} | named

    def ask(self, method: str, path: str, body: object = None, **more: str) -> tuple[int, Any, bytes]:
        with contextlib.closing(self.open()) as line:
            text = None if body is None else json.dumps(body)
            line.request(method, path, text, self.headers(content_type="application/json", **more))
            answer = line.getresponse()
            return answer.status, answer.headers, answer.read()

    def session(self) -> str:
        status, _, body = self.ask("POST", "/api/sessions", {})
        assert status == 201, body
        return str(json.loads(body)["session_id"])

    def send(self, session: str, message: str) -> None:
        status, _, body = self.ask("POST", "/api/send", {"session": session, "message": message})
        assert status == 202, body

    @contextlib.contextmanager
    def events(self, session: str, **more: str) -> Iterator[http.client.HTTPResponse]:
        with contextlib.closing(self.open()) as line:
            line.request("GET", f"/api/events?session={session}", headers=self.headers(**more))
            answer = line.getresponse()
            assert answer.status == 200
            yield answer


class NamedConnection(http.client.HTTPSConnection):
    """A connection to the name of the site, which is this machine here. The certificate must have it."""

    def __init__(self, port: int, trusted: ssl.SSLContext) -> None:
        super().__init__(NAME, port, timeout=HANG_S, context=trusted)
        self._trusted = trusted

    def connect(self) -> None:
        plain = socket.create_connection(("127.0.0.1", self.port), HANG_S)
        self.sock = self._trusted.wrap_socket(plain, server_hostname=NAME)


def next_event(stream: http.client.HTTPResponse) -> tuple[str, str] | None:
    """Return the id and the data of the next event; None if the stream has ended."""
    place = ""
    while line := stream.readline().decode():
        name, _, value = line.strip().partition(": ")
        if name == "id":
            place = value
        elif name == "data" and place:
            return place, value
    return None


def read_until(stream: http.client.HTTPResponse, text: str) -> list[tuple[str, str]]:
    """Return the events up to one with a text in it."""
    events = []
    while event := next_event(stream):
        events.append(event)
        if text in event[1]:
            return events
    raise AssertionError(f"the stream has ended without {text}")


@contextlib.contextmanager
def running_databases(secrets: Path) -> Iterator[Databases]:
    """Run the scripts as the images do: `init.sh` on a new database, `standby.sh` in place of the server."""
    with server_folder() as folder, contextlib.ExitStack() as closing:
        shutil.copytree(COMPOSE / "postgres", folder, dirs_exist_ok=True)
        for name in ("db_password", "replication_password"):
            file = Path(shutil.copy(secrets / name, folder))
            if os.geteuid() == 0:
                shutil.chown(file, USER)
        primary = PostgresServer(folder, "db1", fsync="on", cluster_name="db1")
        programs = primary._programs
        data = folder / "db1"
        environment = {
            "PATH": f"{programs}:{os.environ['PATH']}",
            "LC_ALL": "C",
            "SECRETS": str(folder),
            "PGHOST": "127.0.0.1",
            "PGUSER": "postgres",
            "PGPORT": str(primary.port),
        }
        primary.run_program(
            "initdb", "-D", str(data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C.UTF-8",
            "--no-sync", "--data-checksums",
        )  # fmt: skip
        primary.start()
        closing.callback(primary.kill)
        init = environment | {"PGDATA": str(data)}
        subprocess.run([folder / "init.sh"], env=init, cwd=folder, check=True, **user_options())
        primary.stop()  # the image stops it here, too
        primary.start()

        ports = [primary.port]
        for name in ("db2", "db3"):
            ports.append(free_port())
            service = FILE["services"][name]
            standby = {
                **environment,
                **service["environment"],
                "PGDATA": str(folder / name),
                "PRIMARY_HOST": "127.0.0.1",
                "PRIMARY_PORT": str(primary.port),
            }
            own = ["listen_addresses=127.0.0.1", "unix_socket_directories=", f"port={ports[-1]}"]
            words = [*service["command"], *(word for setting in own for word in ("-c", setting))]
            with (folder / f"{name}.out").open("wb") as output:
                process = subprocess.Popen(
                    [folder / "standby.sh", *words],
                    env=standby,
                    cwd=folder,
                    stdout=output,
                    stderr=output,
                    **user_options(),
                )
            closing.callback(end_process, process, signal.SIGINT)
            while subprocess.run(
                [programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(ports[-1])]
            ).returncode:
                assert process.poll() is None, (folder / f"{name}.out").read_text()
        databases = Databases(primary, ports)
        wait_for_standbys(databases.url, (secrets / "db_password").read_text().strip())
        yield databases


def wait_for_standbys(url: str, password: str) -> None:
    with psycopg.connect(
        url, password=password, autocommit=True, target_session_attrs="read-write"
    ) as connection:
        query = "select 1 from pg_stat_replication where sync_state = 'quorum' offset 1"
        while not connection.execute(query).fetchall():
            pass


def end_process(process: "subprocess.Popen[Any]", number: signal.Signals) -> None:
    process.send_signal(number)
    process.wait(HANG_S)


def configure_nginx(site: Site) -> Path:
    """Write the configuration of the folder with the ports and files of this run."""
    text = (COMPOSE / "nginx.conf").read_text()
    for service, node in zip(("web1", "web2"), site.web, strict=True):
        address = FILE["services"][service]["networks"]["front"]["ipv4_address"]
        text = text.replace(f"server {address}:8765", f"server 127.0.0.1:{node.port}")
    text = text.replace("listen 80;", f"listen 127.0.0.1:{site.plain};")
    text = text.replace("listen 443 ", f"listen 127.0.0.1:{site.tls} ")
    text = text.replace("/run/secrets", str(site.secrets)).replace("/tmp/nginx", str(site.folder))
    # a test needs few, and an ordinary user may not raise its limit
    text = text.replace("worker_connections 16384", "worker_connections 256")
    text = text.replace("worker_rlimit_nofile 65536;", "").replace(
        "worker_processes auto", "worker_processes 1"
    )
    file = site.folder / "nginx.conf"
    file.write_text(text)
    return file


@contextlib.contextmanager
def running_nginx(nginx: str, site: Site) -> Iterator[None]:
    log = site.folder / "error.log"
    options = ["-p", str(site.folder), "-e", str(log), "-c", str(configure_nginx(site)), "-g", "daemon off;"]
    process = subprocess.Popen([nginx, *options])
    try:
        while process.poll() is None:
            with contextlib.suppress(ConnectionRefusedError):
                if site.ask("GET", "/healthz")[0] == 200:
                    break
        assert process.poll() is None, log.read_text()
        yield
    finally:
        end_process(process, signal.SIGTERM)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory, nginx: str) -> Iterator[Site]:
    program("openssl")
    folder = tmp_path_factory.mktemp("site")
    script = Path(shutil.copy(COMPOSE / "secrets.sh", folder))
    token = subprocess.run([script], capture_output=True, text=True, check=True).stdout.split("\n")[1].strip()
    secrets = folder / "secrets"
    if os.geteuid() == 0:  # the user that the containers have is not the one of these processes
        shutil.chown(secrets / "pgpass", 0)
    with running_databases(secrets) as databases, contextlib.ExitStack() as closing:
        nodes = [Node(name, databases.url, secrets) for name in ("web1", "web2", "worker1", "worker2")]
        for node in nodes:
            closing.callback(node.close)
            node.start()
        made = Site(databases, nodes[:2], folder, free_port(), free_port(), token)
        closing.enter_context(running_nginx(nginx, made))
        yield made


def test_cluster_check_finds_nothing_to_change(site: Site) -> None:
    done = subprocess.run(
        [TURNLOG, "cluster-check", site.databases.url],
        env=os.environ | {"PGPASSFILE": str(site.secrets / "pgpass")},
        capture_output=True,
        text=True,
        check=False,
    )
    levels = {line.split()[0] for line in done.stdout.strip().split("\n")}
    assert (done.returncode, levels) == (0, {"ok"}), done.stdout + done.stderr
    assert "2 synchronous standbys (ANY 1 (db1, db2, db3))" in done.stdout


def test_database_refuses_other_roles_and_wrong_passwords(site: Site) -> None:
    port = site.databases.ports[0]
    for url in (
        f"postgresql://turnlog:wrong@127.0.0.1:{port}/turnlog",
        f"postgresql://postgres@127.0.0.1:{port}/postgres",
    ):
        done = subprocess.run(
            [TURNLOG, "cluster-check", url],
            env=os.environ | {"PGPASSFILE": "/nonexistent"},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode != 0
        assert re.search("password authentication failed|no pg_hba.conf entry", done.stderr), done.stderr


def test_control_a_database_without_these_rules_lets_a_wrong_password_in() -> None:
    with running_server() as server:
        words = [TURNLOG, "cluster-check", server.url().replace("turnlog@", "turnlog:wrong@")]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert "ok       version" in done.stdout


def test_events_of_a_worker_come_through_a_web_node_while_the_turn_goes_on(site: Site) -> None:
    session = site.session()
    with site.events(session) as stream:
        first = next_event(stream)
        assert first is not None
        site.send(session, "Oslo")
        events = read_until(stream, '"tool.await"')  # the turn waits for the page: it has not ended
    asked = next(place for place, data in events if '"ui.message"' in data)
    with site.events(session, last_event_id=asked) as again:
        assert next_event(again) == events[[place for place, _ in events].index(asked) + 1]


def test_readers_and_requests_go_to_the_other_node_when_one_stops(site: Site) -> None:
    session = site.session()
    with site.events(session) as stream:
        first = next_event(stream)
    assert first is not None
    for node, number in zip(site.web, (signal.SIGTERM, signal.SIGKILL), strict=True):
        assert node.is_healthy()
        with contextlib.ExitStack() as closing:
            # one stream on each node: nginx takes them in turn
            streams = [closing.enter_context(site.events(session)) for _ in site.web]
            for stream in streams:
                assert next_event(stream) == first
            code = node.end(number)
            assert code == (0 if number == signal.SIGTERM else -number)
            assert not node.is_healthy()

            site.send(session, "Oslo")
            with site.events(session, last_event_id=first[0]) as again:
                read_until(again, '"ui.message"')
            assert [site.ask("GET", "/api/me")[0] for _ in range(6)] == [200] * 6
        node.start()


def test_cookies_are_secure_because_of_the_proxy_and_of_no_other_peer(site: Site) -> None:
    status, headers, _ = site.ask("POST", "/api/sign-in", {})
    assert status == 204
    assert "; Secure" in headers["set-cookie"]
    # another address of loopback stands for a peer that is not the proxy
    line = http.client.HTTPConnection(
        "127.0.0.1", site.web[0].port, timeout=HANG_S, source_address=("127.0.0.2", 0)
    )
    with contextlib.closing(line):
        own = {"x-forwarded-proto": "https", "content-type": "application/json"}
        line.request("POST", "/api/sign-in", "{}", site.headers(**own))
        assert "Secure" not in line.getresponse().headers["set-cookie"]


def test_plain_http_is_sent_to_tls_and_metrics_stay_inside(site: Site) -> None:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", site.plain, timeout=HANG_S)) as line:
        line.request("GET", "/api/me", headers={"host": NAME})
        answer = line.getresponse()
        assert (answer.status, answer.headers["location"]) == (301, f"https://{NAME}/api/me")
    assert site.ask("GET", "/metrics")[0] == 404
    with contextlib.closing(
        http.client.HTTPConnection("127.0.0.1", site.web[0].port, timeout=HANG_S)
    ) as line:
        line.request("GET", "/metrics", headers=site.headers())
        assert line.getresponse().status == 200


def test_control_a_client_that_trusts_another_certificate_gets_no_answer(site: Site) -> None:
    line = NamedConnection(site.tls, ssl.create_default_context())
    with contextlib.closing(line), pytest.raises(ssl.SSLCertVerificationError):
        line.request("GET", "/healthz", headers=site.headers())
