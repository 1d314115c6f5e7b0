"""What members may post: by role, by channel, and whose answer counts (protocol 4, 8.2)."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.unit.adapters.scripted_runner import ScriptedRunner
from tests.unit.app.desk import (
    ADA,
    BOB,
    CASES,
    EVE,
    CloseCase,
    Desk,
    NoteFact,
    agent,
    bodies,
    desk,
    make_app,
    play,
)
from turnlog import Agent, View, tool
from turnlog.adapters import Finished, ForeignAgent, Part, PartOutput, Paused, Question
from turnlog.agents import Scripted, ToolContext, ToolUse
from turnlog.agents.claude.claude_code import ClaudeCode
from turnlog.app import App, ClientEvent, Membership, Principal, Roles
from turnlog.errors import BadInput, Conflict, InvalidEvent, NotFound, TurnlogError, UnknownType
from turnlog.events.view_nodes import Button
from turnlog.parse import AgentInfo
from turnlog.state.history import Message

CASE = make_app(
    "case",
    vocabulary=CASES,
    roles=Roles(postable_events={"guest": [NoteFact], "mute": [], "owner": [NoteFact, CloseCase]}),
)
SHOP = App("shop", {"buyer": agent("B"), "seller": agent("S")})


@asynccontextmanager
async def shop() -> AsyncIterator[tuple[Desk, Membership, Membership, Membership]]:
    """Ada's shop, in which bob buys and eve sells."""
    async with desk(SHOP) as at:
        ada = await at.sessions.create(ADA)
        yield at, ada, await at.member(ada, BOB, "buyer"), await at.member(ada, EVE, "seller")


async def refused(kind: type[TurnlogError], work: Any) -> str:
    with pytest.raises(kind) as refusal:
        await work
    return str(refusal.value)


def answer(call_id: str, result: Any, tool: str = "confirm") -> dict[str, Any]:
    return {"call_id": call_id, "tool": tool, "ok": True, "result": result, "error": None}


@pytest.mark.parametrize(
    ("roles", "notes", "closes"),
    [
        (("owner",), True, True),
        (("guest",), True, False),
        (("mute",), False, False),
        (("guest", "mute"), True, False),
        (("clerk",), False, False),  # the table is closed: a role that is not in it posts nothing
        (("mute", "clerk"), False, False),
    ],
)
def test_a_role_posts_what_the_application_says(roles: tuple[str, ...], notes: bool, closes: bool) -> None:
    async def run() -> None:
        async with desk(CASE) as at:
            ada = await at.sessions.create(ADA)
            bob = await at.member(ada, BOB, *roles)
            for name, allowed in (("case.note_fact", notes), ("case.close_case", closes)):
                if allowed:
                    assert await at.post(bob, name, {}) > 0
                else:
                    said = await refused(InvalidEvent, at.post(bob, name, {}))
                    assert f"your role may not post {name}" in said
            assert all(
                event.actor == "bob" for event in await at.told(ada, "case.note_fact", "case.close_case")
            )

    play(run)


@pytest.mark.parametrize(
    ("type", "payload", "kind"),
    [
        ("ui.message", {"text": "hi", "speaker": "Eve"}, InvalidEvent),
        ("ui.message", {"text": "hi", "channel": "sea"}, InvalidEvent),
        ("session.member", {"principal": "bob", "roles": ["owner"]}, InvalidEvent),
        ("agent.start", {"name": "X", "via": "prompt"}, InvalidEvent),
        ("process.start", {"pid": 1}, InvalidEvent),
        ("case.unknown", {}, UnknownType),
        ("broker.note", {}, UnknownType),
        ("case.note_fact", {"text": 1}, InvalidEvent),
    ],
)
def test_what_no_page_may_say_is_refused(type: str, payload: Any, kind: type[TurnlogError]) -> None:
    async def run() -> None:
        async with desk(CASE) as at:
            ada = await at.sessions.create(ADA)
            last = (await at.log.info(ada.session_id)).last
            await refused(kind, at.post(ada, type, payload))
            assert (await at.log.info(ada.session_id)).last == last

    play(run)


def test_a_post_is_all_or_nothing() -> None:
    async def run() -> None:
        async with desk(CASE) as at:
            ada = await at.sessions.create(ADA)
            posted = [
                ClientEvent("case.note_fact", {}, "evt_1"),
                ClientEvent("case.note_fact", {"text": 1}, "evt_2"),
            ]
            await refused(InvalidEvent, at.sessions.post(ada, posted))
            assert await at.told(ada, "case.note_fact") == []
            assert await at.sessions.post(ada, []) == []

    play(run)


def test_the_same_post_twice_is_one() -> None:
    async def run() -> None:
        async with desk(CASE) as at:
            ada = await at.sessions.create(ADA)
            first = await at.post(ada, "case.note_fact", {"text": "a"}, "evt_mine")
            assert await at.post(ada, "case.note_fact", {"text": "a"}, "evt_mine") == first
            await refused(Conflict, at.post(ada, "case.note_fact", {"text": "b"}, "evt_mine"))
            assert len(await at.told(ada, "case.note_fact")) == 1

    play(run)


def test_calls_for_another_process_are_answered_by_executors_and_owners_only() -> None:
    async def run() -> None:
        for role, server_roles, allowed in (
            ("guest", (), False),
            ("admin", (), False),
            ("guest", ("executor",), True),
            ("guest", ("source",), False),
            ("owner", (), True),
        ):
            async with desk() as at:
                ada = await at.sessions.create(ADA)
                bob = await at.member(ada, Principal("bob", frozenset(server_roles)), role)
                await at.say(ada, "weigh apples")
                call = await at.until(ada, "tool.call")
                result = answer(call["call_id"], 5, "weigh")
                if allowed:
                    seq = await at.post(bob, "tool.result", result)
                    await at.until(ada, "assistant.message", text="It said 5.")
                    assert await at.post(bob, "tool.result", result) == seq
                else:
                    said = await refused(InvalidEvent, at.post(bob, "tool.result", result))
                    assert "is for another process: expected the role executor or owner" in said
                    assert await at.told(ada, "tool.result") == []

    play(run)


def test_the_page_of_any_member_answers_what_the_page_is_asked_once() -> None:
    async def run() -> None:
        async with desk() as at:
            ada = await at.sessions.create(ADA)
            bob = await at.member(ada, BOB, "guest")
            await at.say(ada, "confirm it")
            [call] = (await at.until(ada, "tool.await"))["calls"]
            assert list(await at.sessions.list_frontend_calls(bob)) == [call["call_id"]]
            seq = await at.post(bob, "tool.result", answer(call["call_id"], True))
            await at.until(ada, "agent.end")
            assert await at.post(ada, "tool.result", answer(call["call_id"], True)) == seq
            said = await refused(Conflict, at.post(ada, "tool.result", answer(call["call_id"], False)))
            assert said.startswith(f"{call['call_id']} has another answer already")
            [result] = await at.told(ada, "tool.result")
            assert (result.actor, result.origin) == ("bob", "ui")

    play(run)


def test_of_two_answers_in_one_post_the_second_is_the_same_or_a_conflict() -> None:
    async def run() -> None:
        async with desk() as at:
            ada = await at.sessions.create(ADA)
            await at.say(ada, "confirm it")
            [call] = (await at.until(ada, "tool.await"))["calls"]
            yes, no = [
                ClientEvent("tool.result", answer(call["call_id"], result), f"evt_{result}")
                for result in (True, False)
            ]
            assert "another answer" in await refused(Conflict, at.sessions.post(ada, [yes, no]))
            first, again = await at.sessions.post(ada, [yes, yes._replace(id="evt_again")])
            assert first == again
            await at.until(ada, "agent.end")
            assert await at.sessions.post(ada, [yes]) == [first]
            assert len(await at.told(ada, "tool.result")) == 1

    play(run)


def test_a_decision_that_comes_again_while_its_call_ends_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        ready = asyncio.Event()

        @tool(approval=True)
        async def dig() -> str:
            """Dig a hole."""
            await ready.wait()
            return "a hole"

        def script(messages: list[Message]) -> Iterator[str | ToolUse]:
            yield ToolUse("dig", {}) if messages[-1].content[-1]["type"] == "text" else "Done."

        async with desk(make_app(agent=Agent("Digger", "", Scripted(script), tools=[dig]))) as at:
            ada = await at.sessions.create(ADA)
            await at.say(ada, "dig")
            asked = await at.until(ada, "approval.request")
            yes = {"call_id": asked["call_id"], "args_hash": asked["args_hash"], "decision": "approve"}
            seq = await at.post(ada, "approval.decision", yes)
            look = at.log.closing_event

            async def ended(session_id: str, key: str) -> Any:
                """Nothing has ended, and then the call does."""
                found = await look(session_id, key)
                ready.set()
                await at.until(ada, "agent.end")
                await at.wait_for_runner(ada)
                return found

            monkeypatch.setattr(at.log, "closing_event", ended)
            assert await at.post(ada, "approval.decision", yes) == seq

    play(run)


def test_a_decision_is_for_the_call_whose_arguments_it_names_if_two_agents_use_one_call_id() -> None:
    answers: list[tuple[str | None, str]] = []

    async def ask_twice(part: Part, output: PartOutput) -> Finished | Paused:
        builder = output.builder
        if part.message is None:
            agents = {agent.agent_id: agent.scope.agent_name for agent in builder.open_agents}
            answers.extend((agents[key[0]], type(value).__name__) for key, value in part.answers.items())
            return Finished()
        questions = []
        for name in ("First", "Second"):
            child = builder.start_child(output.root, None, AgentInfo(name, source_id=name))
            builder.call(child, "delete", {"path": name}, "call_1")
            builder.complete_message(child)
            questions.append(Question(child, "call_1"))
        await output.flush()
        return Paused(b"waits", questions)

    async def run() -> None:
        async with desk(make_app(agent=ForeignAgent(ScriptedRunner(ask_twice), {}))) as at:
            ada = await at.sessions.create(ADA)
            await at.say(ada, "delete")
            await at.until(ada, "approval.request")
            first, second = bodies(await at.told(ada, "approval.request"))
            no = {"call_id": "call_1", "args_hash": second["args_hash"], "decision": "deny"}
            await at.post(ada, "approval.decision", no)
            yes = {"call_id": "call_1", "args_hash": first["args_hash"], "decision": "approve"}
            await at.post(ada, "approval.decision", yes)
            await at.until(ada, "agent.end")
            await at.wait_for_runner(ada)
        assert sorted(answers) == [("First", "Approved"), ("Second", "Denied")]

    play(run)


def test_a_decision_about_a_call_that_another_process_runs_counts_once_from_whom_it_names() -> None:
    @tool(executor="remote", approval=True, roles=("admin",))
    def dig(name: str) -> str:
        """Dig a hole."""
        raise NotImplementedError

    def script(messages: list[Message]) -> Iterator[str | ToolUse]:
        yield ToolUse("dig", {"name": "hole"}) if messages[-1].content[-1]["type"] == "text" else "Done."

    async def run() -> None:
        async with desk(make_app(agent=Agent("Digger", "", Scripted(script), tools=[dig]))) as at:
            ada = await at.sessions.create(ADA)
            bob, eve = await at.member(ada, BOB, "admin"), await at.member(ada, EVE, "guest")
            await at.say(bob, "dig")
            asked = await at.until(ada, "approval.request")
            yes = {"call_id": asked["call_id"], "args_hash": asked["args_hash"], "decision": "approve"}
            await refused(InvalidEvent, at.post(eve, "approval.decision", yes))
            dug = answer(asked["call_id"], "a hole", "dig")
            await refused(InvalidEvent, at.post(bob, "tool.result", dug))
            seq = await at.post(bob, "approval.decision", yes)
            assert await at.post(bob, "approval.decision", yes) == seq, "the call is still to be run"
            await refused(Conflict, at.post(bob, "approval.decision", yes | {"decision": "deny"}))
            await refused(InvalidEvent, at.post(bob, "tool.result", dug))

    play(run)


def test_a_message_of_an_office_says_whom_it_is_for() -> None:
    async def run() -> None:
        routed = "[ROUTE TO AGENT: Lyra] How are you?"
        cases = {
            routed: ("How are you?", "Lyra"),
            "How are you?": ("How are you?", None),
            "[ROUTE TO AGENT: Lyra]": ("[ROUTE TO AGENT: Lyra]", None),
        }
        async with desk(make_app(), App("office", ClaudeCode(["no-such-program"]))) as at:
            office, plain = await at.sessions.create(ADA, "office"), await at.sessions.create(ADA, "plain")
            for text in cases:
                await at.say(office, text)
            await at.say(office, routed, target="Orin")
            await at.say(plain, routed)
            said = bodies(await at.told(office, "ui.message"))
            assert [(one["text"], one.get("target")) for one in said] == [*cases.values(), (routed, "Orin")]
            assert bodies(await at.told(plain, "ui.message")) == [{"text": routed}]

    play(run)


def test_who_does_not_see_a_channel_answers_nothing_in_it() -> None:
    async def run() -> None:
        async with shop() as (at, ada, bob, eve):
            await at.say(bob, "confirm it")
            [call] = (await at.until(ada, "tool.await"))["calls"]
            result = answer(call["call_id"], True)
            assert await at.sessions.list_frontend_calls(eve) == {}
            await refused(NotFound, at.post(eve, "tool.result", result))
            await at.post(bob, "tool.result", result)
            await at.until(ada, "agent.end")
            await refused(NotFound, at.post(eve, "tool.result", result))
            assert await at.post(ada, "tool.result", result) > 0, "the owner sees it"

    play(run)


def test_a_message_goes_to_a_channel_of_its_sender() -> None:
    async def run() -> None:
        async with shop() as (at, ada, bob, eve):
            for seat, channel in ((bob, None), (bob, "buyer"), (ada, "seller"), (ada, None)):
                await at.say(seat, "hello", channel=channel)
            told = await at.told(ada, "ui.message")
            assert [one.channel for one in told] == ["buyer", "buyer", "seller", None]
            assert [body.get("channel") for body in bodies(told)] == ["buyer", "buyer", "seller", None]
            for seat, channel in ((bob, "seller"), (eve, "buyer"), (ada, "clerk"), (bob, "owner")):
                said = await refused(BadInput, at.say(seat, "hello", channel=channel))
                assert f"expected a channel of yours, got {channel}" in said

    play(run)


def test_an_action_is_in_the_channel_of_its_view_whoever_acts() -> None:
    @tool
    def offer(context: ToolContext) -> str:
        """Show a button."""
        context.show_view(View.of("offer", Button("take", "Take it", repeat=True)))
        return "shown"

    def selling(messages: list[Message]) -> Iterator[str | ToolUse]:
        words = str(messages[-1].content[-1].get("text", ""))
        yield ToolUse("offer") if words == "sell" else "Sold." if "take" in words else "There it is."

    seller = Agent("S", "", Scripted(selling), tools=[offer])

    async def run() -> None:
        async with desk(App("shop", {"buyer": agent("B"), "seller": seller})) as at:
            ada = await at.sessions.create(ADA)
            await at.say(ada, "sell", channel="seller")
            await at.until(ada, "agent.end")
            both = await at.member(ada, BOB, "buyer", "seller")
            for seat in (ada, both):
                click = {"action": {"kind": "button.click", "button_id": "take"}, "view_id": "offer"}
                await at.post(seat, "ui.action", click)
                await at.until(ada, "ui.action", channel="seller", actor=seat.principal.name)
            await at.until(ada, "assistant.message", channel="seller", text="Sold.")
            assert {one.channel for one in await at.told(ada, "ui.action", "agent.start")} == {"seller"}

    play(run)


def test_a_message_in_another_channel_frees_nobody() -> None:
    async def run() -> None:
        async with shop() as (at, ada, bob, eve):
            waiting = await at.say(bob, "confirm it")
            await at.until(ada, "tool.await")
            other = await at.say(eve, "hello")
            await at.until(ada, "agent.end", trace_id=other)
            assert other != waiting
            assert await at.told(ada, "tool.result") == []
            again = await at.say(bob, "never mind")
            assert again == waiting, "in its own channel it goes to who waits"
            [result] = bodies(await at.told(ada, "tool.result"))
            assert result["error"]["code"] == "CANCELLED"
            await at.until(ada, "agent.end", trace_id=waiting)

    play(run)


def test_while_one_channel_waits_another_has_its_turns_one_after_the_other() -> None:
    async def run() -> None:
        async with shop() as (at, ada, bob, eve):
            waiting = await at.say(bob, "confirm it")
            await at.until(ada, "tool.await")
            turns = await asyncio.gather(*[at.say(eve, f"number {number}") for number in range(3)])
            await at.until(ada, "agent.end", trace_id=turns[-1])
            told = [one for one in await at.told(ada, "agent.start", "agent.end") if one.trace_id != waiting]
            assert [one.type for one in told] == ["agent.start", "agent.end"] * 3
            assert [one.trace_id for one in told[::2]] == turns
            assert {one.channel for one in told} == {"seller"}
            await at.say(ada, "hello to both")
            assert waiting not in [one.trace_id for one in await at.told(ada, "agent.end")]

    play(run)


def test_everything_an_agent_does_stays_in_the_channel() -> None:
    async def run() -> None:
        async with shop() as (at, ada, bob, _):
            turn = await at.say(bob, "erase it")
            await at.until(ada, "agent.end", trace_id=turn)
            channels = {one.channel for one in await at.told(ada) if one.trace_id == turn}
            assert channels == {"buyer"}

    play(run)
