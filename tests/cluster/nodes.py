"""Web nodes and workers as real processes on one PostgreSQL, and readers that move between them.

The test sets the pace: models and tools wait at gates (`apps`), and the file of effects has what they did.
"""

import asyncio
import hashlib
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster import node_settings
from tests.cluster.apps import FOLDER_VARIABLE, NODE_VARIABLE
from tests.e2e.forks import Fork
from tests.e2e.harness import ROOT, Reader, Server
from tests.support.limits import HANG_S
from tests.support.postgres_server import PostgresServer
from turnlog.agents.runtime.runner_pool import QUIET_S
from turnlog.events import Envelope, decode_envelope
from turnlog.log import Log, envelope_json
from turnlog.log.postgres.connections import PATIENCE_S
from turnlog.log.postgres.store import PostgresStore
from turnlog.wire.sse import ServerSentEvent

LEASE_S = 3.0
SILENCE_S = 2.0  # of the engine, after which a web node sends its readers away
APP = "tests.cluster.apps:app"
POLL_S = 0.02
MAX_LOOKS = int(HANG_S / POLL_S)


def wait_until(condition: Callable[[], object], what: str = "") -> Any:
    """Return the first true value of a condition."""
    for _ in range(MAX_LOOKS):
        value = condition()
        if value:
            return value
        time.sleep(POLL_S)  # between two looks at another process
    raise AssertionError(f"this did not come true: {what or condition}")


@dataclass
class Node(Server):
    """A running node. A worker has no routes but those of its health."""

    name: str = ""

    @property
    def is_running(self) -> bool:
        return self.process.poll() is None

    def signal(self, number: signal.Signals) -> None:
        self.process.send_signal(number)

    def health(self) -> int:
        """Return the status of /healthz; 0 if the node does not accept connections."""
        with suppress(OSError):
            return self.get("/healthz")[0]
        return 0

    def states(self) -> dict[str, str]:
        """Return what the list of sessions shows."""
        states: dict[str, str] = {}
        path = "/api/sessions"
        while path:
            status, answer = self.get(path)
            assert status == 200, answer
            states |= {item["session_id"]: item["state"] for item in answer["sessions"]}
            path = f"/api/sessions?after={answer['next']}" if answer.get("next") else ""
        return states

    def answer_approval(self, session_id: str, request: Any, decision: str = "approve") -> None:
        payload = {
            "call_id": request["payload"]["call_id"],
            "args_hash": request["payload"]["args_hash"],
            "decision": decision,
        }
        event = {"type": "approval.decision", "payload": payload}
        status, answer = self.post("/api/events", {"session": session_id, "events": [event]})
        assert status == 202, answer


class Follower:
    """A reader in a thread of its own. When its stream ends it resumes at the next node that accepts it.

    The test may change the list of nodes meanwhile.
    """

    def __init__(self, nodes: list[Node], session_id: str) -> None:
        self.nodes = nodes
        self._reader = Reader(self.nodes[0], session_id)
        self._changed = threading.Condition()
        self._is_stopped = False
        self._events: list[Any] = []
        self._decoded_messages = 0
        self.ends: list[tuple[str, str]] = []  # the node of each stream that ended, and the last id of it
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        # a thread that outlived its nodes would take the time of the next tests
        while not self._is_stopped and any(node.is_running for node in list(self.nodes)):
            nodes = list(self.nodes)
            node = nodes[number % len(nodes)]
            self._reader.server = node
            self._reader.status = 0
            with suppress(OSError):
                asyncio.run(self._reader.read(self._take, limit_s=HANG_S))
            if self._reader.status == 200:
                self.ends.append((node.name, self._reader.last_id))
            else:
                time.sleep(POLL_S)  # before the next attempt
            number += 1
            with self._changed:
                self._changed.notify_all()

    def _take(self, message: ServerSentEvent) -> bool:
        with self._changed:
            self._changed.notify_all()
        return self._is_stopped

    @property
    def events(self) -> list[Any]:
        # each message is decoded once, although a waiting test looks at all events for each new one
        new = self._reader.messages[self._decoded_messages :]
        self._decoded_messages += len(new)
        self._events += [json.loads(message.data) for message in new if message.event == "message"]
        return list(self._events)

    @property
    def resets(self) -> int:
        return sum(message.event == "reset" for message in list(self._reader.messages))

    def find(self, type_name: str, **fields: Any) -> list[Any]:
        """Return the events of a type whose payload has some fields."""
        return [
            event
            for event in self.events
            if event["type"] == type_name
            and all(event["payload"].get(name) == value for name, value in fields.items())
        ]

    def wait_for(self, type_name: str, count: int = 1, **fields: Any) -> Any:
        """Wait for events of a type; return the last one of that number."""
        with self._changed:
            is_there = self._changed.wait_for(lambda: len(self.find(type_name, **fields)) >= count, HANG_S)
        types = [event["type"] for event in self.events]
        assert is_there, f"no {count} {type_name} {fields} among {types}"
        return self.find(type_name, **fields)[count - 1]

    def wait_for_text(self, text: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: text in self.text, HANG_S), self.text

    @property
    def text(self) -> str:
        return "".join(event["payload"]["text"] for event in self.events if event["type"] == "block.delta")

    def stop(self) -> None:
        """Read no more. The thread ends with its stream, or with the process."""
        self._is_stopped = True


@dataclass
class Cluster:
    """The nodes on one engine."""

    engine: PostgresServer
    folder: Path
    nodes: dict[str, Node] = field(default_factory=dict)
    token: str = hashlib.sha256(b"cluster").hexdigest()
    lease_s: float = LEASE_S
    patience_s: float = PATIENCE_S
    quiet_s: float = QUIET_S

    def start(
        self,
        role: str,
        name: str,
        url: str = "",
        options: Sequence[str] = (),
        control: str = "",
        drain_s: float = HANG_S,
    ) -> Node:
        """Start a node and wait until it serves. A node of the same name must have ended."""
        key_file = self.folder / "key"
        if not key_file.exists():
            key_file.write_text("a secret of the tests, forty characters.")
            key_file.chmod(0o600)
        arguments = [
            "serve", APP, "--role", role, "--log", url or self.engine.url(), "--port", "0",
            "--key-file", str(key_file), "--drain", str(drain_s), *options,
        ]  # fmt: skip
        env = os.environ | {
            "TURNLOG_TOKEN": self.token,
            FOLDER_VARIABLE: str(self.folder),
            NODE_VARIABLE: name,
            node_settings.LEASE_VARIABLE: str(self.lease_s),
            node_settings.SILENCE_VARIABLE: str(SILENCE_S),
            node_settings.PATIENCE_VARIABLE: str(self.patience_s),
            node_settings.QUIET_VARIABLE: str(self.quiet_s),
            node_settings.CONTROL_VARIABLE: control,
        }
        process = Fork(arguments, ROOT, env, node_settings.prepare)
        node = Node(process, 0, token=self.token, name=name)
        self.nodes[name] = node
        line = process.stdout.readline()
        assert "http://127.0.0.1:" in line, line
        node.port = int(line.split("127.0.0.1:")[1].split("/")[0])
        if role != "worker":
            node.link = process.stdout.readline().rpartition(" ")[2].strip()
        return node

    def start_all(self, **roles: str) -> list[Node]:
        return [self.start(role, name) for name, role in roles.items()]

    # what models and tools do

    def open_gate(self, *names: str) -> None:
        for name in names:
            (self.folder / f"gate-{name}").touch()

    def close_gate(self, name: str) -> None:
        (self.folder / f"gate-{name}").unlink()

    @property
    def effects(self) -> list[str]:
        file = self.folder / "effects"
        return file.read_text().splitlines() if file.exists() else []

    def wait_for_effect(self, *words: str, count: int = 1) -> str:
        """Wait until lines of effects begin with some words; return the node of the last one."""

        def find() -> list[str]:
            prefix = " ".join([*words, ""])
            return [line for line in self.effects if line.startswith(prefix)]

        wait_until(lambda: len(find()) >= count, f"{count} of {words}")
        return find()[count - 1].split()[-1]

    def count_effects(self, *words: str) -> int:
        return sum(line.startswith(" ".join([*words, ""])) for line in self.effects)

    # what the log has

    def events(self, session_id: str) -> list[Envelope]:
        """Return all events of a session."""

        async def read() -> list[Envelope]:
            log = Log(PostgresStore(self.engine.url(), writable=False), writable=False)
            events: list[Envelope] = []
            try:
                while page := await log.read(session_id, events[-1].seq if events else -1):
                    events += [decode_envelope(envelope_json(row)) for row in page]
            finally:
                await log.close()
            return events

        return asyncio.run(read())

    def owner_node(self, session_id: str) -> str:
        """Return the node that has the lease of a session; "" if none has."""
        rows = self.engine.execute(
            f"select node from turnlog.lease where session = '{session_id}' and owner is not null"
        )
        return str(rows[0][0]) if rows else ""

    def wait_for_owner(self, session_id: str, *nodes: str) -> str:
        return str(wait_until(lambda: (owner := self.owner_node(session_id)) in nodes and owner))

    def close(self) -> None:
        for node in self.nodes.values():
            if node.is_running:
                node.signal(signal.SIGCONT)
                node.kill()
            node.process.wait()
            assert node.process.stdout is not None
            node.process.stdout.close()


@contextmanager
def opened_cluster(engine: PostgresServer, folder: Path) -> Iterator[Cluster]:
    cluster = Cluster(engine, folder)
    try:
        yield cluster
    finally:
        cluster.close()


def run_refused(arguments: Sequence[str], env: dict[str, str]) -> str:
    """Run a command that must fail; return what it says."""
    command = [str(Path(ROOT, ".venv/bin/turnlog")), *arguments]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode != 0, done.stdout
    return done.stderr


def assert_read_once(follower: Follower, events: Sequence[Envelope]) -> None:
    """Check that a reader got every event of the log once and in order, whatever happened to its streams."""
    seqs = [event["seq"] for event in follower.events]
    assert seqs == sorted(set(seqs)), f"doubled or out of order: {seqs}"
    known = set(seqs)
    missing = [event for event in events if event.seq not in known and event.type != "block.delta"]
    assert not missing, f"missing {[(event.seq, event.type) for event in missing]}"
    assert not follower.resets
