"""Row 42: a worker, which runs agents elsewhere, reports about its own parts and about nothing else."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.security.apps import plain
from tests.security.desk import Answer, Desk, desk, run
from turnlog import App
from turnlog.adapters import RemoteAgent
from turnlog.adapters.remote.remote_part import RemotePart
from turnlog.events.roles import SERVER_ROLES
from turnlog.server.routes import parts

LONG_LEASE_S = 600.0  # no test waits for it
ROOT = "{root}"  # stands for the agent that answers the user
WRONG_REPORTS: dict[str, Any] = {
    "an agent of another session": {"do": "text", "agent_id": "{other}", "piece": "x"},
    "an agent that is not there": {"do": "text", "agent_id": "agt_nobody", "piece": "x"},
    "an event": {"type": "session.member", "payload": {"principal": "bot", "roles": ["owner"]}},
    "an unknown report": {"do": "checkpoint", "agent_id": ROOT, "source": "a", "version": "1", "blob": "b"},
    "a private method": {"do": "_begin", "agent_id": ROOT},
    "the end of everything": {"do": "flush", "agent_id": ROOT, "reason": "end_turn"},
    "an origin": {"do": "text", "agent_id": ROOT, "piece": "x", "origin": "app"},
    "a depth": {"do": "text", "agent_id": ROOT, "piece": "x", "depth": 0},
    "an address to fetch": {
        "do": "result",
        "agent_id": ROOT,
        "call_id": "call_1",
        "images": [{"src": "http://10.0.0.1/", "media_type": "image/png"}],
    },
    "a start with the id of another agent": {
        "do": "start_child",
        "agent_id": ROOT,
        "child_id": "{other}",
        "agent": {"name": "Child"},
    },
    "a hand-off to the id of another agent": {
        "do": "hand_off",
        "agent_id": ROOT,
        "child_id": "{other}",
        "agent": {"name": "Child"},
    },
}


@dataclass
class Serving:
    """A server with an application that workers answer, and a part that `bot` holds there."""

    at: Desk
    session: str
    other: str  # an agent of another session
    part: str = ""
    root: str = ""
    numbers: dict[str, int] = field(default_factory=dict)

    async def post(self, who: str, path: str, worker: str = "worker-1", **fields: Any) -> Answer:
        return await self.at.post(who, path, {"app": "support", "worker": worker, **fields})

    async def take(self, who: str = "bot", worker: str = "worker-1") -> Answer:
        return await self.post(who, "/api/parts/take", worker, part=self.part, source="fake", version="1")

    async def begin(self, who: str = "bot", worker: str = "worker-1") -> Answer:
        agent = {"name": "Support"}
        return await self.post(
            who, "/api/parts/begin", worker, part=self.part, can_read=True, fresh_agent=agent, agent=agent
        )

    async def report(self, number: int, who: str = "bot", worker: str = "worker-1", **fields: Any) -> Answer:
        return await self.post(who, "/api/parts/report", worker, part=self.part, number=number, **fields)

    def fill(self, value: Any) -> Any:
        """Put the ids of agents in the place of their names."""
        if isinstance(value, dict):
            return {name: self.fill(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self.fill(item) for item in value]
        return {ROOT: self.root, "{other}": self.other}.get(value, value) if isinstance(value, str) else value

    async def types(self) -> list[str]:
        return [event["type"] for event in await self.at.log("ada", self.session)]


@asynccontextmanager
async def serving(**options: Any) -> AsyncIterator[Serving]:
    """A part that `bot` has begun."""
    agent = RemoteAgent("Support", lease_s=LONG_LEASE_S, **options)
    async with desk([App("support", agent), plain]) as at:
        elsewhere = await at.session("cyd", "plain")
        await at.send("cyd", elsewhere, "say hello")
        [start] = await at.told("cyd", elsewhere, "agent.start")
        session = await at.session("ada", "support")
        await at.send("ada", session, "Hi")
        held = Serving(at, session, start["agent_id"])
        [held.part] = (await held.post("bot", "/api/parts")).value["offers"]
        assert (await held.take()).status == 200
        begun = await held.begin()
        assert begun.status == 200, begun.body
        held.root = begun.value["team"][0]["scope"]["agent_id"]
        yield held


TEXT = {"do": "text", "agent_id": ROOT, "piece": "Hello."}
END = {"kind": "finished", "state": "e30="}


def test_a_worker_answers_and_what_it_sends_twice_is_stored_once() -> None:
    async def scenario() -> None:
        async with serving() as held:
            reports = held.fill([TEXT, {"do": "complete_message", "agent_id": ROOT}])
            for _ in range(2):
                assert (await held.report(0, reports=reports)).status == 200
            assert (await held.report(2)).status == 409, "a number was left out"
            assert (await held.report(1, outcome=END)).status == 200
            assert (await held.report(1, outcome=END)).status == 410, "the part is over"
            texts = [
                event["payload"]["text"]
                for event in await held.at.log("ada", held.session)
                if event["type"] == "assistant.message"
            ]
            assert texts == ["Hello."]
            assert "agent.end" in await held.types()

    run(scenario())


@pytest.mark.parametrize("name", WRONG_REPORTS)
def test_a_report_about_anything_else_is_refused_whole(name: str) -> None:
    async def scenario() -> None:
        async with serving() as held:
            before = await held.types()
            answer = await held.report(0, reports=held.fill([TEXT, WRONG_REPORTS[name]]))
            assert answer.status == 400, answer.body
            assert await held.types() == before
            assert (await held.report(0, reports=held.fill([TEXT]), outcome=END)).status == 200

    run(scenario())


def test_control_without_a_look_at_other_logs_an_agent_gets_the_id_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def accept(part: RemotePart, batch: Any) -> None:
        pass

    async def scenario() -> None:
        monkeypatch.setattr(RemotePart, "_check", accept)
        async with serving() as held:
            wrong = held.fill(WRONG_REPORTS["a start with the id of another agent"])
            assert (await held.report(0, reports=[wrong], outcome=END)).status == 200
            starts = [e for e in await held.at.log("ada", held.session) if e["type"] == "agent.start"]
            assert held.other in [event["agent_id"] for event in starts]

    run(scenario())


def test_the_agent_that_answers_the_user_ends_with_the_outcome_alone() -> None:
    async def scenario() -> None:
        async with serving() as held:
            end = held.fill({"do": "end", "agent_id": ROOT, "reason": "error"})
            assert (await held.report(0, reports=[end])).status == 200
            assert "agent.end" not in await held.types()
            assert (await held.report(1, reports=held.fill([TEXT]), outcome=END)).status == 200
            ends = [e["payload"] for e in await held.at.log("ada", held.session) if e["type"] == "agent.end"]
            assert [end["stop_reason"] for end in ends] == ["end_turn"]

    run(scenario())


@pytest.mark.parametrize(
    "outcome",
    [
        {"kind": "paused", "questions": [{"agent_id": ROOT, "call_id": "call_1"}]},
        {"kind": "paused", "state": "e30=", "questions": [{"agent_id": "{other}", "call_id": "call_1"}]},
        {"kind": "finished", "recorder": "ada"},
        {"kind": "won"},
    ],
    ids=["no state", "a question of another session", "an unknown field", "an unknown kind"],
)
def test_an_outcome_that_does_not_fit_the_part_is_refused(outcome: Any) -> None:
    async def scenario() -> None:
        async with serving() as held:
            answer = await held.report(0, outcome=held.fill(outcome))
            assert answer.status == 400, answer.body
            assert "agent.end" not in await held.types()

    run(scenario())


OTHERS = [("bot", "worker-2"), ("rival", "worker-1")]


@pytest.mark.parametrize(("who", "worker"), OTHERS)
def test_another_worker_gets_nothing_of_a_part(who: str, worker: str) -> None:
    async def scenario() -> None:
        async with serving() as held:
            before = await held.types()
            answers = [
                await held.take(who, worker),
                await held.begin(who, worker),
                await held.report(0, who, worker, reports=held.fill([TEXT]), outcome=END),
                await held.report(0, who, worker, outcome={"kind": "abandoned"}),
                await held.post(who, "/api/parts/file", worker, part=held.part, file=0),
            ]
            assert [answer.status for answer in answers] == [410] * 5
            assert await held.types() == before
            holds = [{"part": held.part}]
            news = (await held.post(who, "/api/parts", worker, holds=holds)).value
            assert (news["offers"], news["stopped"]) == ([], [held.part])

    run(scenario())


@pytest.mark.parametrize(("who", "worker"), OTHERS)
def test_control_a_part_without_a_holder_is_everybodys(
    monkeypatch: pytest.MonkeyPatch, who: str, worker: str
) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(RemotePart, "_check_holder", lambda part, key: None)
        async with serving() as held:
            assert (await held.report(0, who, worker, reports=held.fill([TEXT]), outcome=END)).status == 200
            assert "assistant.message" in await held.types()

    run(scenario())


@pytest.mark.parametrize("who", ["ada", "root", "worker", "cyd"])
def test_only_a_source_may_work(who: str) -> None:
    async def scenario() -> None:
        async with serving() as held:
            answers = [
                await held.post(who, "/api/parts"),
                await held.take(who),
                await held.begin(who),
                await held.post(who, "/api/parts/file", part=held.part, file=0),
                await held.report(0, who, reports=held.fill([TEXT]), outcome=END),
            ]
            assert [answer.status for answer in answers] == [403] * 5
            assert "assistant.message" not in await held.types()

    run(scenario())


def test_control_without_the_role_every_operator_works(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        monkeypatch.setattr(parts, "SOURCE", min(SERVER_ROLES - {"source", "executor"}))
        async with desk(App("support", RemoteAgent("Support"))) as at:
            session = await at.session("ada", "support")
            await at.send("ada", session, "Hi")
            answer = await at.post("root", "/api/parts", {"app": "support", "worker": "worker-1"})
            assert len(answer.value["offers"]) == 1

    run(scenario())


def test_an_application_that_names_its_workers_refuses_other_sources() -> None:
    async def scenario() -> None:
        async with serving(workers=["bot"]) as held:
            assert (await held.post("rival", "/api/parts")).status == 403
            assert (await held.take("rival")).status == 403

    run(scenario())


def test_control_an_application_that_names_none_accepts_every_source() -> None:
    async def scenario() -> None:
        async with serving() as held:
            await held.at.send("ada", await held.at.session("ada", "support"), "Hi")
            assert len((await held.post("rival", "/api/parts")).value["offers"]) == 1

    run(scenario())


def test_the_state_of_a_session_goes_to_the_worker_that_took_its_part_alone() -> None:
    async def scenario() -> None:
        async with serving() as held:
            secret = "c2VjcmV0"  # "secret" in base64
            assert (await held.report(0, outcome={"kind": "finished", "state": secret})).status == 200
            await held.at.send("ada", held.session, "again")
            news = await held.post("bot", "/api/parts")
            assert secret not in str(news.value)
            [held.part] = news.value["offers"]
            assert (await held.take()).value["checkpoint"]["state"] == secret
            refused = await held.take("rival")
            assert refused.status == 410
            assert secret not in str(refused.value)

    run(scenario())
