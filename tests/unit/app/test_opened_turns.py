"""A message and the start of its turn are one append if this process owns the session."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.unit.app.desk import ADA, desk, play
from turnlog.errors import Conflict, StoreError
from turnlog.events import CATALOG, AgentStart, Scope, UiMessage
from turnlog.events.ui import ClientTool
from turnlog.ids import new_id, now_ms
from turnlog.log import Log, MemoryStore
from turnlog.log.jobs import AppendRequest, Job, JobOutcome

Hook = Callable[["HookedStore", AppendRequest], list[JobOutcome] | None]


class HookedStore(MemoryStore):
    """Records the types of each append. `before_opening` may do something before a turn is opened, once."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[list[str]] = []
        self.before_opening: Hook | None = None

    def commit(self, jobs: Sequence[Job]) -> list[JobOutcome]:
        for job in jobs:
            if isinstance(job, AppendRequest) and job.events:
                self.batches.append([event.type for event in job.events])
                hook = self.before_opening
                if hook is not None and any(isinstance(event.payload, AgentStart) for event in job.events):
                    self.before_opening = None
                    outcomes = hook(self, job)
                    if outcomes is not None:
                        return outcomes
        return super().commit(jobs)

    def append_elsewhere(self, job: AppendRequest, fence: int | None = None, text: str = "") -> None:
        """Append what another process appends at this moment."""
        payload = UiMessage(text=text)
        event = CATALOG.build_event(
            payload, id=new_id("evt_"), origin="ui", scope=Scope(trace_id=new_id("tr_"))
        )
        request = AppendRequest(job.session_id, (event,) if text else (), now_ms(), fence=fence)
        # in a thread: the log takes what its own writer commits for its own
        with ThreadPoolExecutor(1) as pool:
            [outcome] = pool.submit(super().commit, [request]).result()
        assert not isinstance(outcome, Exception)


def test_an_owner_stores_a_message_with_the_start_of_its_turn() -> None:
    async def run() -> None:
        store = HookedStore()
        async with desk(log=Log(store)) as at:
            ada = await at.sessions.create(ADA)
            await at.wait_for_runner(ada)
            for text in ("one", "two"):
                turn = await at.say(ada, text)
                await at.until(ada, "agent.end", trace_id=turn)
                await at.wait_for_runner(ada)
            assert store.batches.count(["ui.message", "agent.start"]) == 2
            assert ["ui.message"] not in store.batches
        await at.log.close()

    play(run)


def test_a_message_waits_for_a_turn_that_runs() -> None:
    async def run() -> None:
        store = HookedStore()
        async with desk(log=Log(store)) as at:
            ada = await at.sessions.create(ADA)
            await at.wait_for_runner(ada)
            turns = [await at.say(ada, "one"), await at.say(ada, "two"), await at.say(ada, "three")]
            for turn in turns:
                await at.until(ada, "agent.end", trace_id=turn)
            starts = [start.trace_id for start in await at.told(ada, "agent.start")]
            assert starts == turns
            assert ["ui.message"] in store.batches
        await at.log.close()

    play(run)


def test_a_repeated_message_opens_no_second_turn_and_holds_up_no_other() -> None:
    async def run() -> None:
        async with desk() as at:
            ada = await at.sessions.create(ADA)
            await at.wait_for_runner(ada)
            first = await at.sessions.send(ada, UiMessage(text="one"), "evt_key")
            await at.until(ada, "agent.end")
            await at.wait_for_runner(ada)
            assert await at.sessions.send(ada, UiMessage(text="one"), "evt_key") == first
            with pytest.raises(Conflict, match="evt_key is the id of another message"):
                await at.sessions.send(ada, UiMessage(text="other"), "evt_key")
            turn = await at.say(ada, "two")
            await at.until(ada, "agent.end", trace_id=turn)
            assert [start.trace_id for start in await at.told(ada, "agent.start")] == [first.turn, turn]

    play(run)


def test_a_turn_that_another_event_forestalls_starts_once() -> None:
    async def run() -> None:
        store = HookedStore()

        def post_first(hooked: HookedStore, job: AppendRequest) -> None:
            hooked.append_elsewhere(job, text="first")

        async with desk(log=Log(store)) as at:
            ada = await at.sessions.create(ADA)
            await at.wait_for_runner(ada)
            store.before_opening = post_first
            turn = await at.say(ada, "second")
            await at.until(ada, "agent.end", trace_id=turn)
            await at.until(ada, "assistant.message", text="You said first.")
            messages = [message.trace_id for message in await at.told(ada, "ui.message")]
            assert [start.trace_id for start in await at.told(ada, "agent.start")] == messages
            assert len(messages) == 2
        await at.log.close()

    play(run)


def test_a_message_is_stored_although_another_process_owns_the_session_now() -> None:
    async def run() -> None:
        store = HookedStore()

        def take_over(hooked: HookedStore, job: AppendRequest) -> None:
            hooked.append_elsewhere(job, fence=99)

        async with desk(log=Log(store)) as at:
            ada = await at.sessions.create(ADA)
            await at.wait_for_runner(ada)
            store.before_opening = take_over
            turn = await at.say(ada, "hello")
            assert store.batches[-1] == ["ui.message"]
            # the next owner starts the turn
            await at.wait_for_runner(ada)
            await at.until(ada, "agent.end", trace_id=turn)
            assert len(await at.told(ada, "agent.start")) == 1
        await at.log.close()

    play(run)


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_turn_starts_once_if_the_store_does_not_say_whether_it_is_stored(is_stored: bool) -> None:
    async def run() -> None:
        store = HookedStore()

        def fail(hooked: HookedStore, job: AppendRequest) -> list[JobOutcome]:
            if is_stored:
                hooked.commit([job])
            return [StoreError("the connection was lost")]

        async with desk(log=Log(store)) as at:
            ada = await at.sessions.create(ADA)
            await at.wait_for_runner(ada)
            store.before_opening = fail
            with pytest.raises(StoreError, match="the connection was lost"):
                await at.sessions.send(ada, UiMessage(text="hello"), "evt_key")
            turn = (await at.sessions.send(ada, UiMessage(text="hello"), "evt_key")).turn
            await at.until(ada, "agent.end", trace_id=turn)
            assert [start.trace_id for start in await at.told(ada, "agent.start")] == [turn]
            assert len(await at.told(ada, "ui.message")) == 1
        await at.log.close()

    play(run)


def test_the_tools_of_a_message_are_in_the_start_of_its_turn() -> None:
    async def run() -> None:
        async with desk() as at:
            ada = await at.sessions.create(ADA)
            await at.wait_for_runner(ada)
            mark = ClientTool(name="mark", description="Of the page.", parameters={"type": "object"})
            turn = await at.say(ada, "hello", tools=(mark,))
            start = await at.until(ada, "agent.start", trace_id=turn)
            assert {"mark", "confirm"} <= set(start["tools"])

    play(run)
