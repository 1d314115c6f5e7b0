"""A session that a process answers: what goes down to it, what comes up, and how it starts and ends."""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import uvloop

from tests.support.claude_sessions import Room, is_there, lawful, make_app, played, room
from tests.support.claude_standin import COMMAND
from tests.support.session_runners import claude_runtime
from tests.unit.app.desk import ADA, BOB, desk, play
from turnlog import App, open_log
from turnlog.agents.claude.claude_code import ClaudeCode
from turnlog.agents.claude.runtime import MAX_ATTEMPTS
from turnlog.errors import CallerError, InvalidEvent
from turnlog.events import Envelope, Event
from turnlog.events.content import PromptDocument
from turnlog.log import Log, MemoryStore
from turnlog.state.tree import scope_without_actor
from turnlog.team.roster import Roster, TeamMember


async def texts(room: Room) -> list[str]:
    return [message["text"] for message in await room.bodies("assistant.message")]


def test_messages_are_answered_one_after_the_other_by_one_process(tmp_path: Path) -> None:
    app = make_app(tmp_path, [*COMMAND, "--model", "m7"])

    async def run() -> None:
        async with room(app) as office:
            turns = [await office.say(text) for text in ("one", "two", "three")]
            await office.rests(turns[-1])
            said = ["You said: one This is our turn 1.", "You said: two This is our turn 2."]
            assert (await texts(office))[:2] == said
            starts = await office.events("agent.start")
            assert [start.trace_id for start in starts] == turns
            [start] = [one for one in await office.bodies("process.start") if one["process"] == "model"]
            assert (start["model"], is_there(start["pid"])) == ("m7", True)
        assert not is_there(start["pid"])

    play(run)


def test_a_closed_session_has_the_end_of_its_process_and_everything_in_it(tmp_path: Path) -> None:
    app = make_app(tmp_path)

    async def run() -> None:
        log = Log(MemoryStore())
        async with room(app, log) as office:
            await office.say("/wait")
            await office.until("assistant.message")
            await office.say("and later")
        events = await office.events()
        ends = [(end["reason"], end.get("exit_code")) for end in await office.bodies("process.end")]
        assert ends == [("server_shutdown", 143), ("server_shutdown", None)]
        assert await office.bodies("session.error") == [
            {"code": "process_exited", "message": "The server was stopped."}
        ]
        async with desk(app, log=log) as later:  # what was not taken up is
            again = Room(later, await later.sessions.get_membership(ADA, office.seat.session_id))
            await again.rests(events[-1].trace_id or "")
            await again.until("assistant.message", text="You said: and later This is our turn 2.")
            await again.until("agent.end", stop_reason="end_turn")
        lawful(app, await again.events())
        await log.close()

    play(run)


def test_a_crash_closes_the_turn_and_the_next_process_goes_on_with_the_conversation(tmp_path: Path) -> None:
    app = make_app(tmp_path)

    async def run() -> None:
        async with room(app, log := Log(MemoryStore())) as office:
            await office.ask("one")
            await office.ask("/crash 7")
            await office.until("process.end", reason="process_crash")
            await office.ask("three")
            assert (await texts(office))[-1] == "You said: three This is our turn 3."
            assert await office.lives() == [("process_crash", 7)]
            assert await office.codes() == ["process_exited"]
            assert await office.ends() == ["end_turn", "error", "end_turn"]
            one, other = await office.pids()
            assert not is_there(one)
        lawful(app, await office.events())
        assert not is_there(other)
        await log.close()

    play(run)


def test_a_message_that_kills_every_process_is_given_up(tmp_path: Path) -> None:
    app = make_app(tmp_path, played("line(); sys.exit(3)"))

    async def run() -> None:
        async with room(app) as office:
            await office.ask("die")
            assert await office.ends() == ["error"]
            assert await office.codes() == ["process_exited"]
            await office.until("process.end", reason="process_crash")
            assert await office.lives() == [("process_crash", 3)] * MAX_ATTEMPTS
            lawful(app, await office.events())

    play(run)


def test_message_that_names_a_file_of_another_session_reaches_no_process_with_it(tmp_path: Path) -> None:
    received = tmp_path / "received.jsonl"
    app = make_app(tmp_path, played(f"open({str(received)!r}, 'a').write(sys.stdin.readline())"))

    async def run() -> None:
        async with room(app) as office:
            other = await office.desk.sessions.create(BOB)
            names = [
                await office.desk.log.put_blob(
                    seat.session_id, b"of " + seat.principal.name.encode(), "text/plain"
                )
                for seat in (office.seat, other)
            ]
            own, foreign = names
            parts = (PromptDocument(src=f"api/blobs/{own}"), PromptDocument(src=foreign))
            await office.say("Read.", content=parts)
            await office.until("agent.end")
        assert "of ada" in received.read_text()
        assert "of bob" not in received.read_text()

    play(run)


def test_a_message_that_was_not_taken_up_goes_down_again(tmp_path: Path) -> None:
    code = """
if not os.path.exists("seen"):
    open("seen", "w").close(); line(); os.kill(os.getpid(), 9)
line(); init(); say("result", subtype="success", is_error=False); line()
"""
    app = make_app(tmp_path, played(code))

    async def run() -> None:
        async with room(app) as office:
            await office.ask("again")
            assert await office.ends() == ["end_turn"]
            assert await office.lives() == [("process_crash", 137)]
            assert await office.codes() == []

    play(run)


def test_a_conversation_that_nobody_knows_is_given_up(tmp_path: Path) -> None:
    code = """
line()
if "--resume" in sys.argv:
    sys.exit(1)
init(); say("result", subtype="success", is_error=False); line(); sys.exit(1)
"""
    app = make_app(tmp_path, played(code))

    async def run() -> None:
        async with room(app) as office:
            await office.ask("one")
            await office.ask("two")  # the process goes without a word, and so does one that resumes
            assert await office.ends() == ["end_turn", "end_turn"]
            assert len(await office.pids()) == 3
            assert await office.codes() == ["conversation_lost"]

    play(run)


@pytest.mark.parametrize(
    ("command", "options", "code"),
    [
        (["no-such-program"], {}, "setup_required"),
        (COMMAND, {"cwd": "/no/such/folder"}, "unknown"),
        ([*COMMAND, "\0"], {}, "unknown"),
    ],
    ids=["no program", "no folder", "no command"],
)
def test_a_process_that_cannot_be_started_ends_the_turn(command: Any, options: Any, code: str) -> None:
    app = App("office", ClaudeCode(command, **options))

    async def run() -> None:
        async with room(app) as office:
            await office.command("session.start")
            await office.until("session.error")
            await office.ask("hello")
            assert await office.codes() == [code, code]
            assert await office.ends() == ["error"]
            assert await office.pids() == []

    play(run)


def test_a_process_that_does_not_listen_is_ended(tmp_path: Path) -> None:
    app = make_app(tmp_path, played("os.close(0); signal.pause()"))

    async def run() -> None:
        async with room(app) as office:
            await office.ask("x" * 500_000)  # more than a pipe holds
            assert await office.ends() == ["error"]
            assert await office.codes() == ["stdin_write_failed"] * MAX_ATTEMPTS + ["process_exited"]
            await office.until("process.end")
            assert {reason for reason, _ in await office.lives()} == {"process_crash"}

    play(run)


@pytest.mark.parametrize(
    "loop", [asyncio.SelectorEventLoop, uvloop.new_event_loop], ids=["asyncio", "uvloop"]
)
@pytest.mark.parametrize(
    "code",
    [
        "os.close(0); signal.pause()",
        "sys.stdin.buffer.raw.read(1); os.close(0); signal.pause()",
    ],
    ids=["before a write", "after a write"],
)
def test_process_that_closes_its_stdin_a_short_message_ends_the_turn(
    tmp_path: Path, code: str, loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    app = make_app(tmp_path, played(code))

    async def run() -> None:
        async with room(app) as office:
            await office.ask("hi")
            assert await office.ends() == ["error"]
            assert await office.codes() == ["stdin_write_failed"] * MAX_ATTEMPTS + ["process_exited"]

    with asyncio.Runner(loop_factory=loop) as runner:
        runner.run(run())


def test_process_turn_taken_up_forgets_its_tries(tmp_path: Path) -> None:
    code = """
if not os.path.exists("died"):
    open("died", "w").close()
    line()
    sys.exit(1)
line()
init()
say("result", subtype="success", is_error=False, result="yes")
signal.pause()
"""
    app = make_app(tmp_path, played(code))

    async def run() -> None:
        async with room(app) as office:
            await office.ask("hi")
            assert await office.ends() == ["end_turn"]
            assert claude_runtime(await office.runner())._attempts == {}

    play(run)


def test_people_start_and_end_the_process(tmp_path: Path) -> None:
    app = make_app(tmp_path)

    async def run() -> None:
        async with room(app) as office:
            await office.command("session.end")  # there is none
            await office.command("session.start", demo_mode=True)
            start = await office.until("process.start", process="model")
            assert (start["demo_mode"], is_there(start["pid"])) == (True, True)
            await office.command("session.start")
            await office.until("session.error", code="session_conflict")
            await office.ask("one")
            hanging, later = await office.say("/wait"), await office.say("nobody hears this")
            await office.until("assistant.message", text="One moment.")
            await office.command("session.end")
            await office.command("session.start")
            await office.until("process.end", reason="user_ended")
            await office.ask("two")
            assert await office.ends() == ["end_turn", "cancelled", "cancelled", "end_turn"]
            assert (await texts(office))[-1] == "You said: two This is our turn 1."
            assert await office.lives() == [("user_ended", 143)]
            assert await office.codes() == ["session_conflict"]
            ends = await office.events("agent.end")
            assert [end.trace_id for end in ends[1:3]] == [hanging, later]

    play(run)


def test_what_waits_for_a_process_that_nobody_wants_is_over(tmp_path: Path) -> None:
    app = make_app(tmp_path, played("line(); signal.pause()"))

    async def run() -> None:
        async with room(app, log := Log(MemoryStore())) as office:
            told = await office.say("one")
            await office.until("process.start", process="model")
            await office.command("session.end")
            await office.rests(told)
            assert await office.ends() == ["cancelled"]
        lawful(app, await office.events())
        await log.close()

    play(run)


def test_a_stop_interrupts_and_the_process_goes_on(tmp_path: Path) -> None:
    app = make_app(tmp_path)

    async def run() -> None:
        async with room(app) as office:
            await office.desk.sessions.stop(office.seat)  # nothing runs
            hanging = await office.say("/wait")
            await office.until("assistant.message", text="One moment.")
            await office.desk.sessions.stop(office.seat)
            await office.rests(hanging)
            await office.ask("two")
            assert await office.ends() == ["cancelled", "end_turn"]
            assert len(await office.pids()) == 1
            assert await office.codes() == []

    play(run)


def test_permissions_are_given_and_refused_and_passed_over(tmp_path: Path) -> None:
    app = make_app(tmp_path)

    async def run() -> None:
        async with room(app, log := Log(MemoryStore())) as office:
            for decision in ("approve", "deny"):
                await office.ask("Write about ships")
                turn = await office.ask("Delete it")
                await office.decide(decision)
                await office.rests(turn)
            waiting = await office.ask("Delete it")
            assert await office.say("Never mind") == waiting
            await office.until("assistant.message", text="You said: Never mind This is our turn 6.")
            results = [one for one in await office.bodies("tool.result") if one["tool"] == "Bash"]
            assert [(one["ok"], (one["error"] or {}).get("code")) for one in results] == [
                (True, None),
                (False, "DENIED"),
                (False, "CANCELLED"),
            ]
            said = [text for text in await texts(office) if "ships.html alone" in text]
            assert said[-1].endswith("The user went on with a message.")
            artifacts = await office.bodies("artifact.write")
            assert [one["is_new"] for one in artifacts] == [True, True]
        lawful(app, await office.events())
        await log.close()

    play(run)


def test_commands_and_messages_for_somebody_of_the_team_go_down(tmp_path: Path) -> None:
    app = make_app(tmp_path)

    async def run() -> None:
        async with room(app, log := Log(MemoryStore())) as office:
            await office.command("summon")
            await office.until("roster.join", name="Wren")
            await office.ask("Hello", target="Lyra")
            last = (await office.bodies("assistant.message"))[-1]
            assert (last["text"], last["speaker"]) == ("Lyra here. You said: Hello", "Lyra")
            await office.command("offer_work", agent="Lyra", jobs=["sort the shelf"])
            await office.until("roster.offer")
            await office.command("job_help", form={"name": "librarian"})
            await office.until("job.suggest")
            [summon, *_] = await office.events("ui.command")
            assert summon.trace_id in {one.trace_id for one in await office.events("agent.start")}
            await office.until("agent.end", trace_id=(await office.events("ui.command"))[-1].trace_id)
            assert {member.state for member in on_the_grid(app, await office.events())} == {"alive"}
        roster = lawful(app, await office.events())
        assert {member.state for member in roster.teams[""].seats.values()} == {"sleeping"}
        await log.close()

    play(run)


def on_the_grid(app: App, events: Sequence[Envelope]) -> list[TeamMember]:
    roster = Roster()
    for event in events:
        roster.apply(event, app.catalog.decode_payload(event))
    return list(roster.teams[""].seats.values())


def test_a_server_that_died_while_a_permission_was_asked_for_leaves_nothing_open(tmp_path: Path) -> None:
    app = make_app(tmp_path)

    async def run() -> None:
        async with room(app, log := Log(MemoryStore())) as office:
            await office.ask("Delete it")
            shot = await office.events()
            copy = Log(MemoryStore())
            session = await copy.create("office")
            catalog = app.catalog
            await copy.append(
                session,
                [
                    Event(
                        type=one.type,
                        id=one.id,
                        payload=catalog.decode_payload(one),
                        body=bytes(one.payload),
                        origin=one.origin,
                        scope=scope_without_actor(one),
                        live=False,
                    )
                    for one in shot
                    if one.type != "block.delta"
                ],
            )
        await log.close()
        async with desk(app, log=copy) as later:
            again = Room(later, await later.sessions.get_membership(ADA, session))
            assert await again.ends() == []
            await again.runner()
            assert await again.ends() == ["error"]
            assert await again.lives() == [("server_shutdown", None)]
            await again.ask("Hello")
        lawful(app, await again.events())
        await copy.close()

    play(run)


class Picky:
    """A log that takes no thoughts."""

    def __init__(self, log: Log) -> None:
        self._log = log

    def __getattr__(self, name: str) -> Any:
        return getattr(self._log, name)

    def submit(self, session_id: str, events: Sequence[Event], **options: Any) -> Any:
        if any(event.type == "assistant.thinking" for event in events):
            raise InvalidEvent("no thoughts here", "$.payload")
        return self._log.submit(session_id, events, **options)


def test_what_cannot_be_written_ends_the_process_and_the_next_turn_works(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    app = make_app(tmp_path)

    async def run() -> None:
        log: Any = Picky(Log(MemoryStore()))
        async with room(app, log) as office:
            await office.ask("one")  # he thinks before he speaks
            assert set(await office.ends()) == {"error"}
            assert "unknown" in await office.codes()
            await office.until("process.end", reason="process_crash")
            await office.ask("Who is here?")
            assert (await office.ends())[-1] == "end_turn"
        lawful(app, await office.events())
        await log.close()

    play(run)
    assert "cannot be appended" in caplog.text


def test_a_session_that_is_closed_ends_its_process(tmp_path: Path) -> None:
    app = make_app(tmp_path)

    async def run() -> None:
        async with room(app) as office:
            await office.ask("one")
            [pid] = await office.pids()
            runner = await office.runner()
            await office.desk.log.close_session(office.seat.session_id)
            output_task = claude_runtime(runner)._output_task
            assert output_task is not None
            await asyncio.wait([output_task])
            assert not is_there(pid)

    play(run)


def test_a_process_can_be_asked_without_a_server(tmp_path: Path) -> None:
    async def run() -> None:
        julian = ClaudeCode(COMMAND, name="Julian", cwd=tmp_path)
        assert await julian.ask("one") == "You said: one This is our turn 1."
        log = await open_log("memory:")
        session = await log.create("Julian")
        for number in (1, 2):
            entries = [entry async for entry in julian.run("two", log=log, session_id=session)]
            assert entries[-1].type == "agent.end"
            assert f"turn {number}." in entries[-1].payload.result  # type: ignore[union-attr]
        await log.close()

    play(run)


@pytest.mark.parametrize(
    "wrong", [{"command": "claude"}, {"command": []}, {"inactivity_s": 0}], ids=["text", "nothing", "no time"]
)
def test_a_command_is_a_list_and_time_is_given(wrong: Any) -> None:
    with pytest.raises(CallerError):
        ClaudeCode(**wrong)


def test_a_process_is_no_agent() -> None:
    app = App("office", ClaudeCode())
    with pytest.raises(CallerError, match="is a process"):
        _ = app.agent
    assert (app.runtime.takes_commands, app.has_agents) == (True, False)
