"""A stop in a channel ends what is there and in none, and nothing else (protocol 4.8)."""

from tests.support.agent_logs import Ledger
from tests.support.agent_vectors import event_of
from tests.support.limited_session import LIMIT_S, Scene, on_clock, opened
from tests.support.session_runners import agent_runtime
from turnlog.events import EventDraft, Scope, UiCommand
from turnlog.events.ui import Stop


async def stop(scene: Scene, channel: str | None) -> None:
    """A member of a channel stops what runs, and the driver has seen it."""
    item = EventDraft(UiCommand(command=Stop()), Scope(channel=channel), "ui")
    await scene.log.append(scene.session, [event_of(item)])
    await scene.runner.wait_for_head()
    async with scene.runner.lock:
        pass
    await scene.runner.wait_for_head()


async def waits_and_hangs(scene: Scene, deltas: int) -> None:
    """A turn that waits for the buyer, and one that speaks to the seller without an end."""
    await scene.send("confirm", channel="buyer")
    await scene.until("tool.await")
    await scene.send("hang", channel="seller")
    await scene.until("block.delta", deltas)


async def ended(scene: Scene) -> list[str | None]:
    """The turns that were stopped, in order."""
    events = await scene.events()
    Ledger(events)  # nothing in it happens out of order, or twice
    return [event.trace_id for event in events if event.type == "agent.end"]


@on_clock
async def test_what_waits_in_another_channel_goes_on_waiting() -> None:
    async with opened() as scene:
        await waits_and_hangs(scene, 2)
        await stop(scene, "seller")
        assert (await ended(scene), scene.mind.hung_up) == (["tr_2"], ["hang"])
        await scene.answer(True)
        await scene.until("agent.end", 2)
        assert await scene.ends() == [("Guide", "cancelled"), ("Guide", "end_turn")]


@on_clock
async def test_what_runs_in_another_channel_runs_on_and_the_next_in_line_has_its_turn() -> None:
    async with opened() as scene:
        await waits_and_hangs(scene, 2)
        await scene.send("end", channel="buyer")
        await stop(scene, "buyer")
        assert (await ended(scene), scene.mind.hung_up) == (["tr_1"], [])
        await stop(scene, "helper")  # in which nothing is
        assert await ended(scene) == ["tr_1"]
        await stop(scene, "seller")
        await scene.until("agent.end", 3)
        assert await ended(scene) == ["tr_1", "tr_2", "tr_3"]
        assert not agent_runtime(scene.runner)._completions.active_agents


@on_clock
async def test_what_is_in_no_channel_is_stopped_from_each_and_a_stop_in_none_stops_all() -> None:
    async with opened() as scene:
        await scene.send("hang")
        await scene.until("block.delta")
        await stop(scene, "buyer")
        assert await ended(scene) == ["tr_1"]
        await waits_and_hangs(scene, 3)
        await stop(scene, None)
        assert sorted(map(str, await ended(scene))) == ["tr_1", "tr_2", "tr_3"]


@on_clock
async def test_a_turn_that_is_just_being_started_in_another_channel_is_not_touched() -> None:
    async with opened() as scene:
        await scene.send("hang", channel="seller")
        await stop(scene, "buyer")
        await scene.until("block.delta")
        assert (await ended(scene), scene.mind.hung_up) == ([], [])
        await scene.send("hang", channel="seller")
        await stop(scene, "seller")  # ends the first; the second is in line
        await scene.until("block.delta", 2)
        assert await ended(scene) == ["tr_1"]
        await scene.passes(LIMIT_S)
        assert await ended(scene) == ["tr_1", "tr_2"]


@on_clock
async def test_a_stop_that_a_process_did_not_live_to_carry_out_is_the_channels_own_too() -> None:
    async with opened() as scene:
        await scene.send("confirm", channel="buyer")
        await scene.until("tool.await")
        await scene.send("confirm", channel="seller")
        await scene.until("tool.await", 2)
        await scene.runner.close()
        item = EventDraft(UiCommand(command=Stop()), Scope(channel="seller"), "ui")
        await scene.log.append(scene.session, [event_of(item)])
        after = Scene(scene.log, scene.session)
        await after.open()
        assert (await ended(after), await after.ends()) == (["tr_2"], [("Guide", "cancelled")])
        assert len(after.runner.tree.open) == 1
        await after.runner.close()
