"""A Claude Code process whose server drains, or has lost its session."""

import asyncio
from pathlib import Path

from tests.support.claude_sessions import make_app, played, room
from tests.support.limits import HANG_S
from tests.unit.app.desk import play
from turnlog.errors import Fenced

NEVER_S = 3600.0
# answers a message when the file `go` is there, and writes each message to a file
GATED = """
while True:
    message = line()
    if message is None:
        break
    with open("prompts", "a") as file:
        file.write("x")
    init()
    while not os.path.exists("go"):
        time.sleep(0.01)
    say("result", subtype="success", is_error=False, result="yes")
"""


def test_a_turn_of_a_process_is_finished_before_its_session_is_handed_over(tmp_path: Path) -> None:
    app = make_app(tmp_path, played(GATED))

    async def run() -> None:
        async with room(app) as office:
            first = await office.say("one")
            await office.until("agent.start")
            second = await office.say("two")
            drain = asyncio.create_task(office.desk.sessions.drain(NEVER_S))
            await asyncio.sleep(0)
            assert not drain.done()
            (tmp_path / "go").touch()
            await asyncio.wait_for(drain, HANG_S)
            # the second message is left to the next server
            assert (tmp_path / "prompts").read_text() == "x"
            assert await office.ends() == ["end_turn"]
            [end] = await office.events("agent.end")
            assert end.trace_id == first != second
            assert await office.codes() == []
            session_id = office.seat.session_id
            leases = office.desk.log.leases
            assert [lease.session_id for lease in await leases.claim_wanted("next")] == [session_id]

    play(run)


def test_a_server_that_has_lost_its_session_sends_no_prompt(tmp_path: Path) -> None:
    app = make_app(tmp_path, played(GATED))

    async def run() -> None:
        async with room(app) as office:
            runner = await office.runner()
            confirmed = 0

            async def refuse(lease: object) -> None:
                nonlocal confirmed
                confirmed += 1
                raise Fenced("another process owns it now")

            office.desk.log.leases.confirm = refuse  # type: ignore[method-assign]
            await office.say("one")
            async with asyncio.timeout(HANG_S):
                while runner.error is None:  # noqa: ASYNC110  it has no signal
                    await asyncio.sleep(0)
            assert confirmed == 1
            assert isinstance(runner.error, Fenced)
            assert not (tmp_path / "prompts").exists()
            assert await office.pids() == []

    play(run)
