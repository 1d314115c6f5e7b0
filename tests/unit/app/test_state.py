"""State, panels and documents of a session: on a ring, beside others who write, as each role sees them."""

from typing import Any

import pytest

from tests.unit.app.desk import ADA, BOB, CASES, NoteFact, agent, desk, play
from turnlog import App
from turnlog.app import ClientEvent, Roles
from turnlog.app.messages import Chat
from turnlog.events import BlockDelta, Payload, UiMessage
from turnlog.ids import new_id
from turnlog.log import AppendResult, Log, MemoryStore
from turnlog.state.rules import Rule


def noted(state: Any, note: NoteFact, _: Any) -> Any:
    return {**state, "notes": [*state["notes"], note.text]}


def make(*channels: str) -> App:
    return App(
        "case",
        {name: agent(name) for name in channels} or agent(),
        vocabulary=CASES,
        reducers={NoteFact: noted},
        rules=[Rule("quiet", "apply", lambda state: False, lambda state: [])],
        initial_state=lambda: {"notes": []},
        roles=Roles(state_views={"buyer": lambda state: len(state["notes"])}),
    )


def note(text: str) -> ClientEvent:
    return ClientEvent("case.note_fact", {"text": text}, new_id("evt_"))


def test_a_long_session_in_memory_goes_on_answering() -> None:
    async def run() -> None:
        log = Log(MemoryStore(ring_events=40))
        async with desk(make(), log=log) as at:
            ada = await at.sessions.create(ADA)
            for number in range(20):
                await at.sessions.chat(ada, Chat(None, [note(str(number))], UiMessage(text=f"say {number}")))
            head = await log.info(ada.session_id)
            assert head.first > 60, "most of it is gone"
            seq, state = await at.sessions.state(ada)
            panels = await at.sessions.load_read_models(ada)
            assert (panels.seq, panels.state) == (seq, state)
            assert len(state["notes"]) == 20
            assert len(panels.transcript.entries) == 60
            assert panels.meters.report()["session"]["turns"] == 20
            assert len(await at.sessions.documents(ada, "message", None)) == 40
            earlier = await at.sessions.load_read_models(ada, head.first)
            assert 0 < len(earlier.transcript.entries) < 60
        await log.close()

    play(run)


@pytest.mark.parametrize(
    ("between", "tries"),
    [
        (NoteFact(text="other"), 2),
        (BlockDelta(block_id="b1", text="word"), 1),  # a model that talks keeps nobody waiting
    ],
)
def test_a_post_is_made_again_only_when_something_durable_came_first(between: Payload, tries: int) -> None:
    async def run() -> None:
        async with desk(make()) as at:
            ada = await at.sessions.create(ADA)
            append, calls = at.log.append, list[Any]()

            async def beside(session_id: str, events: Any, **options: Any) -> AppendResult:
                calls.append(options)
                if len(calls) == 1:
                    made = ada.app.catalog.build_event(between, id=new_id("evt_"), origin="model")
                    await append(session_id, [made])
                return await append(session_id, events, **options)

            at.log.append = beside  # type: ignore[method-assign]
            await at.sessions.post(ada, [note("mine")])
            assert len(calls) == tries
            assert [call["expected_durable_count"] is not None for call in calls] == [True] * tries
            assert len(await at.told(ada, "case.note_fact")) == tries
            assert (await at.sessions.state(ada))[1]["notes"][-1] == "mine"

    play(run)


def test_each_role_sees_its_part_of_the_state_and_its_channel() -> None:
    async def run() -> None:
        async with desk(make("buyer", "seller")) as at:
            ada = await at.sessions.create(ADA)
            bob = await at.member(ada, BOB, "buyer")
            await at.sessions.chat(ada, Chat("seller", [note("a")], UiMessage(text="s", channel="seller")))
            await at.sessions.chat(bob, Chat("buyer", [note("b")], UiMessage(text="t", channel="buyer")))
            assert (await at.sessions.state(ada))[1] == {"notes": ["a", "b"]}
            assert (await at.sessions.state(bob))[1] == (await at.sessions.load_read_models(bob)).state == 2
            assert (await at.sessions.load_read_models(bob, 0)).state == 0
            of_ada, of_bob = [
                {one.id for one in await at.sessions.documents(seat, "message", None)} for seat in (ada, bob)
            ]
            assert of_bob < of_ada
            assert {name.partition(":")[0] for name in of_bob} == {"message@buyer"}
            assert {name.partition(":")[0] for name in of_ada} == {"message@buyer", "message@seller"}

    play(run)
