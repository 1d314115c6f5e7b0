"""Recordings: what a source may write, and what the server decides about it."""

from typing import Any

import pytest

from tests.unit.app.desk import ADA, ROOT, Desk, desk, play
from turnlog.app import Membership, Principal
from turnlog.app.recordings import RecordedEvent, RecordingState
from turnlog.errors import Conflict, Fenced, Forbidden, InvalidEvent

BOT = Principal("bot", frozenset({"source"}))
OTHER = Principal("other", frozenset({"source"}))
RECORDER = "recorder-1"


def event(type: str, number: int, agent: str | None = "agt_1", **payload: Any) -> RecordedEvent:
    trace = "tr_1" if type in ("ui.message", "agent.start") else None
    return RecordedEvent(type, payload, f"evt_own_{number}", f"$.events[{number}]", agent, trace)


MESSAGE = event("ui.message", 0, None, text="Hi")
START = event("agent.start", 1, name="Support", via="prompt")
CALL = event("tool.call", 2, call_id="c1", tool="search", args={}, executor="runtime")
RESULT = event("tool.result", 3, call_id="c1", tool="search", ok=True, result=1, error=None)
END = event("agent.end", 4, stop_reason="end_turn")


class Bench:
    """A session of Ada that the bot records."""

    def __init__(self, place: Desk, ada: Membership, bot: Membership, state: RecordingState) -> None:
        self.place = place
        self.recordings = place.sessions.recordings
        self.ada = ada
        self.bot = bot
        self.fence = state.fence

    async def add(self, *items: RecordedEvent) -> list[int]:
        _, seqs = await self.recordings.append(self.bot, RECORDER, self.fence, items)
        return seqs

    async def types(self) -> list[str]:
        return [envelope.type for envelope in await self.place.told(self.ada)]


async def set_up(place: Desk) -> Bench:
    ada = await place.sessions.create(ADA)
    bot = await place.sessions.get_membership(BOT, ada.session_id)
    return Bench(place, ada, bot, await place.sessions.recordings.begin(bot, RECORDER))


def test_the_server_decides_origin_depth_turn_actor_and_recorder() -> None:
    async def run() -> None:
        async with desk() as place:
            bench = await set_up(place)
            child = event(
                "agent.start", 5, "agt_2", name="Child", via="call", parent_id="agt_1", call_id="c1"
            )
            end = event("agent.end", 6, "agt_2", stop_reason="end_turn")
            forged = START._replace(payload={**START.payload, "recorder": "somebody"})
            await bench.add(MESSAGE, forged, CALL, child._replace(trace_id="tr_forged"), end, RESULT, END)
            told = await place.told(bench.ada)
            message, start, call, second, *_ = told[-7:]
            assert (message.origin, message.actor, message.trace_id) == ("ui", "bot", "tr_1")
            assert (start.origin, call.origin, second.origin) == ("system", "model", "system")
            assert (second.depth, second.trace_id, second.agent_name) == (1, "tr_1", "Child")
            assert b'"recorder":"bot"' in bytes(start.payload)

    play(run)


IMAGES = {"images": [{"src": "https://evil.example/a.png", "media_type": "image/png"}]}
REFUSED: list[tuple[str, list[RecordedEvent], str]] = [
    (
        "a type of members",
        [START, event("session.member", 2, principal="eve", roles=["owner"])],
        "may not write",
    ),
    ("a stop", [START, event("ui.command", 2, command={"kind": "stop"})], "may not write"),
    ("a decision", [START, event("approval.decision", 2, call_id="c", decision="approve")], "may not write"),
    (
        "a checkpoint",
        [START, event("agent.checkpoint", 2, source="a", version="1", blob="b")],
        "may not write",
    ),
    ("an unknown type", [START, event("agent.nothing", 2)], "agent.nothing"),
    ("a wrong payload", [START, event("tool.call", 2, call_id="c")], "tool"),
    ("a message for the server's agent", [MESSAGE], "agent.start of this message"),
    (
        "a message that names a speaker",
        [event("ui.message", 0, None, text="x", speaker="Ada"), START],
        "speaker",
    ),
    ("a message without a turn", [MESSAGE._replace(trace_id=None), START], "new turn"),
    ("an agent that is not open", [CALL], "open agent"),
    ("an agent without an id", [START._replace(agent_id=None)], "new agent"),
    ("an agent twice", [START, START._replace(id="evt_own_9")], "new agent"),
    ("a turn of no name", [START._replace(trace_id=None)], "new turn"),
    (
        "a child of a stranger",
        [event("agent.start", 1, name="A", via="call", parent_id="agt_9")],
        "open agent",
    ),
    ("a result without a call", [START, RESULT], "open call"),
    ("a second result", [START, CALL, RESULT, RESULT._replace(id="evt_own_9")], "open call"),
    ("an end before a result", [START, CALL, END], "before the end"),
    ("a second end", [START, END, END._replace(id="evt_own_9")], "open agent"),
    ("an id of the server", [START._replace(id="evt_" + "a" * 40)], "id of your own"),
    ("a bad id", [START._replace(agent_id="nobody")], "agent_id"),
    ("an image of another site", [START, CALL, RESULT._replace(payload=RESULT.payload | IMAGES)], "images"),
]


@pytest.mark.parametrize(("items", "problem"), [row[1:] for row in REFUSED], ids=[row[0] for row in REFUSED])
def test_what_does_not_fit_is_refused_whole_and_what_fits_is_accepted(
    items: list[RecordedEvent], problem: str
) -> None:
    async def run() -> None:
        async with desk() as place:
            bench = await set_up(place)
            before = await bench.types()
            with pytest.raises(InvalidEvent, match=problem):
                await bench.add(*items)
            assert await bench.types() == before
            assert len(await bench.add(MESSAGE, START, CALL, RESULT, END)) == 5  # the control

    play(run)


def test_an_agent_of_another_runtime_is_out_of_reach() -> None:
    async def run() -> None:
        async with desk() as place:
            ada = await place.sessions.create(ADA)
            await place.say(ada, "confirm it")
            await place.until(ada, "tool.await")
            runner = await place.wait_for_runner(ada)
            [agent_id] = runner.tree.open
            bot = await place.sessions.get_membership(BOT, ada.session_id)
            state = await place.sessions.recordings.begin(bot, RECORDER)
            end = event("agent.end", 4, agent_id, stop_reason="end_turn")
            with pytest.raises(InvalidEvent, match="open agent of this recording"):
                await place.sessions.recordings.append(bot, RECORDER, state.fence, [end])

    play(run)


def test_the_same_events_again_change_nothing_and_others_conflict() -> None:
    async def run() -> None:
        async with desk() as place:
            bench = await set_up(place)
            seqs = await bench.add(MESSAGE, START, CALL)
            assert await bench.add(MESSAGE, START, CALL) == seqs
            assert await bench.add(CALL, RESULT, END) == [seqs[2], seqs[2] + 1, seqs[2] + 2]
            types = await bench.types()
            assert await bench.add(MESSAGE, START, CALL) == seqs
            assert await bench.types() == types
            with pytest.raises(Conflict):
                await bench.add(CALL._replace(payload={**CALL.payload, "tool": "other"}))
            with pytest.raises(InvalidEvent, match="new agent"):
                await bench.add(START._replace(id="evt_own_9", trace_id="tr_2"))  # it has ended

    play(run)


def test_only_sources_record_and_none_uses_the_recording_of_another() -> None:
    async def run() -> None:
        async with desk() as place:
            bench = await set_up(place)
            session = bench.ada.session_id
            for principal in (ADA, ROOT, Principal("tools", frozenset({"executor"}))):
                membership = await place.sessions.get_membership(ROOT, session)
                membership = Membership(membership.record, membership.app, principal, frozenset({"owner"}))
                with pytest.raises(Forbidden):
                    await bench.recordings.begin(membership, RECORDER)
                with pytest.raises(Forbidden):
                    await bench.recordings.append(membership, RECORDER, bench.fence, [START])
                with pytest.raises(Forbidden):
                    await bench.recordings.release(membership, RECORDER, bench.fence)
            other = await place.sessions.get_membership(OTHER, session)
            with pytest.raises(Fenced):
                await bench.recordings.append(other, RECORDER, bench.fence, [START])
            for recorder, fence in (("recorder-2", bench.fence), (RECORDER, bench.fence + 1), (RECORDER, 0)):
                with pytest.raises(Fenced):
                    await bench.recordings.append(bench.bot, recorder, fence, [START])
            with pytest.raises(Conflict, match="another recorder"):
                await bench.recordings.begin(other, RECORDER)
            again = await bench.recordings.begin(bench.bot, RECORDER)
            assert again.fence == bench.fence
            await bench.add(START, END)  # the control

    play(run)


def test_a_session_in_which_a_turn_runs_is_not_given_up() -> None:
    async def run() -> None:
        async with desk() as place:
            ada = await place.sessions.create(ADA)
            bot = await place.sessions.get_membership(BOT, ada.session_id)
            async with place.sessions.runners.use(ada.session_id):  # type: ignore[union-attr]
                with pytest.raises(Conflict, match="a turn runs"):
                    await place.sessions.recordings.begin(bot, RECORDER)
            await place.sessions.recordings.begin(bot, RECORDER)

    play(run)


def test_a_silent_recording_is_closed_by_the_next_runner() -> None:
    async def run() -> None:
        async with desk() as place:
            bench = await set_up(place)
            await bench.add(MESSAGE, START, CALL)
            recording = bench.recordings._open[bench.ada.session_id]
            bench.recordings._begin_expiry(recording, recording.renewal_count - 1)  # it was renewed since
            await bench.add()
            bench.recordings._begin_expiry(recording, recording.renewal_count)  # the time is over
            await place.until(bench.ada, "agent.end")
            told = await place.told(bench.ada, "tool.result", "agent.end")
            assert [envelope.origin for envelope in told] == ["system", "system"]
            with pytest.raises(Fenced):
                await bench.add(RESULT)
            turn = await place.say(bench.ada, "Hello")
            await place.until(bench.ada, "agent.end", trace_id=turn)

    play(run)


def test_a_released_recording_leaves_its_open_agents_to_the_next_runner() -> None:
    async def run() -> None:
        async with desk() as place:
            bench = await set_up(place)
            await bench.add(MESSAGE, START, CALL)
            await bench.recordings.release(bench.bot, RECORDER, bench.fence)
            await place.until(bench.ada, "agent.end", stop_reason="error")
            with pytest.raises(Fenced):
                await bench.add(RESULT)

    play(run)
