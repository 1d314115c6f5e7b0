"""How long the turns of an application may take."""

import asyncio

import pytest

from tests.support.limited_session import Mind, Scene, team
from tests.support.manual_clock import run_on_clock
from turnlog import App, open_log
from turnlog.app import LOCAL, Sessions
from turnlog.errors import CallerError
from turnlog.events import UiMessage

GUIDE = team(Mind(), asyncio.Event())


@pytest.mark.parametrize(
    ("app", "limit_s"), [(App("limit", GUIDE), 600.0), (App("limit", GUIDE, turn_limit_s=5), 5.0)]
)
def test_a_turn_ends_when_its_applications_time_is_over(app: App, limit_s: float) -> None:
    async def play() -> None:
        log = await open_log("memory:")
        sessions = Sessions(log, [app], 1)
        seat = await sessions.create(LOCAL)
        scene = Scene(log, seat.session_id)
        scene.runner = await sessions.runners.open(seat.session_id)
        await sessions.send(seat, UiMessage(text="hang"))
        await scene.until("block.delta")
        await scene.passes(limit_s - 1)
        assert await scene.ends() == []
        await scene.passes(1)
        assert await scene.ends() == [("Guide", "timeout")]
        [problem] = await scene.bodies("session.error")
        assert problem["message"] == f"The turn took longer than {limit_s:g} s and was ended."
        await sessions.close()
        await log.close()

    run_on_clock(play)


@pytest.mark.parametrize("limit_s", [0, -1, float("nan")])
def test_a_limit_is_above_nothing(limit_s: float) -> None:
    with pytest.raises(CallerError, match="expected a turn_limit_s above 0"):
        App("limit", GUIDE, turn_limit_s=limit_s)
