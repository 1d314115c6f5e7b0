"""A turn that meets a full disk, a real one: it ends when there is room, and the next one begins."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.security.apps import endless, plain
from tests.security.desk import Desk, run
from tests.security.desk import desk as served
from tests.support.disks import fill, mounted_disk
from tests.unit.log.delegates import until
from turnlog.agents.runtime.runner_pool import RunnerPool
from turnlog.log.writer import WriteHealth

PAUSES_S = (0.001,)  # of a writer that gives up soon
DISK_BYTES = 64 << 20  # more than the write-ahead log takes while a turn goes on


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    with mounted_disk(tmp_path / "disk", DISK_BYTES) as folder:
        yield folder


async def health(at: Desk) -> int:
    return (await at.get(None, "/healthz")).status


async def until_it_is_healthy(at: Desk) -> None:
    while await health(at) != 200:
        pass


async def metrics(at: Desk) -> dict[str, str]:
    lines = (await at.get("root", "/metrics")).body.decode().split("\n")
    return dict(line.split() for line in lines if line.startswith(("turnlog_write", "turnlog_last")))


def test_turn_that_meets_a_full_disk_goes_on_when_there_is_room_and_can_be_stopped(
    disk: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        monkeypatch.setattr("turnlog.agents.runtime.session_writer.PAUSES_S", PAUSES_S)
        async with served([endless, plain], f"sqlite:///{disk}/log.db") as at:
            session = await at.session("ada", "endless")
            begun = await at.send("ada", session, "go")
            await at.told("ada", session, "block.delta")
            ballast = fill(disk)
            await until(lambda: "a session's task failed" in caplog.text)
            ballast.unlink()
            [retraction] = await at.told("ada", session, "block.retract")
            assert (retraction["trace_id"], retraction["payload"]["reason"]) == (begun["turn"], "interrupted")
            await at.post("ada", "/api/stop", {"session": session})
            [end] = await at.told("ada", session, "agent.end")
            assert (end["trace_id"], end["payload"]["stop_reason"]) == (begun["turn"], "cancelled")
            following = await at.send("ada", session, "next")
            starts = await at.told("ada", session, "agent.start", 2)
            assert starts[-1]["trace_id"] == following["turn"]

    run(scenario())


def test_server_on_a_full_disk_is_not_healthy_until_there_is_room(disk: Path) -> None:
    async def scenario() -> None:
        async with served(plain, f"sqlite:///{disk}/log.db") as at:
            session = await at.session("ada")
            before = await metrics(at)
            assert (await health(at), before["turnlog_write_failing"]) == (200, "0")
            ballast = fill(disk)
            statuses = set()
            while 507 not in statuses:  # what fits into the blocks that SQLite has already is still taken
                answer = await at.post("ada", "/api/send", {"session": session, "message": "x" * 9000})
                statuses.add(answer.status)
            failing = await at.get(None, "/healthz")
            assert failing.status == 503
            assert json.loads(failing.body)["error"] == "the log cannot be written: the last write failed"
            assert (await metrics(at))["turnlog_write_failing"] == "1"
            ballast.unlink()
            await until_it_is_healthy(at)
            after = await metrics(at)
            name = "turnlog_last_write_timestamp_seconds"
            assert float(after[name]) > float(before[name])

    run(scenario())


def test_control_a_server_that_does_not_look_after_its_turns_leaves_one_open(
    disk: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        monkeypatch.setattr("turnlog.agents.runtime.session_writer.PAUSES_S", PAUSES_S)
        monkeypatch.setattr(RunnerPool, "_reopen_failed", lambda _: None)
        async with served([endless, plain], f"sqlite:///{disk}/log.db") as at:
            session, other = await at.session("ada", "endless"), await at.session("ada", "plain")
            await at.send("ada", session, "go")
            await at.told("ada", session, "agent.start")
            ballast = fill(disk)
            await until(lambda: "a session's task failed" in caplog.text)
            ballast.unlink()
            await at.send("ada", other, "hello")
            await at.told("ada", other, "agent.end")
            assert "agent.end" not in [event["type"] for event in await at.log("ada", session)]

    run(scenario())


def test_control_a_server_that_does_not_notice_failing_writes_says_that_it_works(
    disk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(WriteHealth, "record_outcomes", lambda *_: None)
        async with served(plain, f"sqlite:///{disk}/log.db") as at:
            session = await at.session("ada")
            ballast = fill(disk)
            message = {"session": session, "message": "x" * 9000}
            while (await at.post("ada", "/api/send", message)).status != 507:
                pass
            assert await health(at) == 200
            ballast.unlink()

    run(scenario())
