"""Stored events that no longer fit the class of their type: the journal, `/api/state` and `verify` say so."""

import asyncio
import logging
import sys
from pathlib import Path
from typing import ClassVar

import pytest
from click.testing import CliRunner

from tests.unit.app.desk import ADA, BOB, desk, play
from turnlog import Agent, App, Payload, Vocabulary
from turnlog.agents import Scripted
from turnlog.cli import main
from turnlog.log import Log, MemoryStore, open_log

APP = """
from typing import ClassVar
from turnlog import Agent, App, Payload, Vocabulary
from turnlog.agents import Scripted

class Weigh(Payload, frozen=True, kw_only=True):
    ORIGINS: ClassVar = frozenset({"ui"})
    pounds: %s

scale = Agent("Scale", "", Scripted(lambda messages: ["Hm."]))
app = App("scale", scale, vocabulary=Vocabulary("scale", [Weigh]))
"""


class Old:
    class Weigh(Payload, frozen=True, kw_only=True):
        ORIGINS: ClassVar = frozenset({"ui"})

        pounds: str


class New:
    class Weigh(Payload, frozen=True, kw_only=True):
        ORIGINS: ClassVar = frozenset({"ui"})

        pounds: int


def make_app(payload: type[Payload]) -> App:
    agent = Agent("Scale", "", Scripted(lambda messages: ["Hm."]))
    return App(
        "scale",
        agent,
        vocabulary=Vocabulary("scale", [payload]),
        reducers={payload: lambda state, event, envelope: {"pounds": event.pounds}},
    )


def test_session_opened_with_retyped_events_warns_once_and_tells_owners(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)

    async def run() -> None:
        log = Log(MemoryStore())
        async with desk(make_app(Old.Weigh), log=log) as at:
            seat = await at.sessions.create(ADA)
            await at.post(seat, "scale.weigh", {"pounds": "70"})
            await at.post(seat, "scale.weigh", {"pounds": "71"})
        async with desk(make_app(New.Weigh), log=log) as later:
            owner = await later.sessions.get_membership(ADA, seat.session_id)
            await later.wait_for_runner(owner)
            guest = await later.member(owner, BOB, "guest")
            assert (await later.sessions.state(owner))[1] == {}
            [misfit] = await later.sessions.misfits(owner)
            assert (misfit.type, misfit.count) == ("scale.weigh", 2)
            assert await later.sessions.misfits(guest) == []
        await log.close()

    play(run)
    [warning] = [record.getMessage() for record in caplog.records]
    assert "stored events scale.weigh do not fit their class any more, so the state lacks them" in warning


@pytest.mark.parametrize(("payload", "warnings"), [(New.Weigh, 1), (Old.Weigh, 0)])
def test_start_with_retyped_events_warns_once_of_their_type(
    caplog: pytest.LogCaptureFixture, payload: type[Payload], warnings: int
) -> None:
    """The control is a start with the class as it was."""
    caplog.set_level(logging.WARNING)

    async def run() -> None:
        log = Log(MemoryStore())
        async with desk(make_app(Old.Weigh), log=log) as at:
            for principal in (ADA, BOB):
                seat = await at.sessions.create(principal)
                await at.post(seat, "scale.weigh", {"pounds": "70"})
        await log.create("other")
        async with desk(make_app(payload), log=log) as later:
            await later.sessions.start()
        await log.close()

    play(run)
    # the server also opens the two sessions that it owned when it stopped, and warns of each
    start = "scale: stored events scale.weigh do not fit their class any more"
    messages = [record.getMessage() for record in caplog.records]
    assert sum(message.startswith(start) for message in messages) == warnings
    assert len(messages) in (warnings, 3 * warnings)


async def write_old(log_url: str) -> None:
    log = await open_log(log_url)
    async with desk(make_app(Old.Weigh), log=log) as at:
        seat = await at.sessions.create(ADA)
        await at.post(seat, "scale.weigh", {"pounds": "70"})
    await log.close()


@pytest.mark.parametrize(("kind", "code"), [("int", 1), ("str", 0)])
def test_verify_with_an_app_reports_events_that_do_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, code: int
) -> None:
    log_url = f"sqlite:///{tmp_path}/scale.db"
    asyncio.run(write_old(log_url))
    (tmp_path / f"scale_{kind}.py").write_text(APP % kind)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    result = CliRunner().invoke(main, ["verify", "--log", log_url, "--app", f"scale_{kind}:app"])
    assert result.exit_code == code, result.output
    assert ("1 event scale.weigh" in result.output) is bool(code)
