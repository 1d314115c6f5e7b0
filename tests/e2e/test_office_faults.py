"""The example `office` when something goes wrong: restarts, crashes, stops, permissions, errors."""

import os
import select
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.examples import emptied, standing
from tests.e2e.harness import Server
from tests.e2e.office_desk import Desk, bodies, of, serving, typed, unended, words
from tests.support.limits import HANG_S


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("log")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    with serving(folder) as server:
        yield server


@pytest.fixture
def desk(server: Server) -> Desk:
    return Desk.at(server)


def pid_of(desk: Desk) -> int:
    """The process that plays Julian now."""
    starts = [body for body in bodies(desk.reader.events, "process.start") if body["process"] == "model"]
    return int(starts[-1]["pid"])


def gone(pid: int, limit_s: float = HANG_S) -> bool:
    """Whether a process ends in time; the kernel tells when it has."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([handle], [], [], limit_s)[0])
    finally:
        os.close(handle)


def codes(events: list[Any]) -> list[str]:
    return [body["code"] for body in bodies(events, "session.error")]


def assert_well(desk: Desk) -> None:
    """Nothing is open but the process of the moment, and the next turn works."""
    assert "You said: Still there?" in words(desk.say("Still there?"))
    open_now = unended([event for event in desk.reader.events if event["payload"].get("process") != "server"])
    assert set(open_now) <= {("process", ("model", pid_of(desk)))}


class TestRestart:
    @pytest.mark.parametrize(("how", "reason"), [("stop", "server_shutdown"), ("kill", "process_crash")])
    def test_a_server_that_comes_back_says_so_and_knows_everything(
        self, tmp_path: Path, how: str, reason: str
    ) -> None:
        with serving(tmp_path) as first:
            desk = Desk.at(first)
            desk.summon()
            before = {one["id"] for one in desk.documents()}
            getattr(first, how)()
            assert gone(pid_of(desk))
        with serving(tmp_path, port=first.port) as second:
            desk.moved(second)
            events = desk.until(typed("process.start", process="server"))
            ends = bodies(events, "process.end")
            assert ("server", reason) in [(one["process"], one["reason"]) for one in ends]
            assert ("model", "server_shutdown") in [(one["process"], one["reason"]) for one in ends]
            told = desk.told(lambda message: message["id"] == desk.reader.events[-1]["seq"])
            assert [one["type"] for one in told[-2:]] == ["session_end", "session_start"]
            assert {state for _, state in desk.grid().values()} == {"sleeping"}
            assert before < {one["id"] for one in desk.documents()}
            events = desk.say("Good morning!")
            assert words(events) == "I am back.", "the same conversation"
            assert [one["name"] for one in bodies(events, "roster.status")[0]["agents"]] == [
                "Lyra",
                "Orin",
                "Wren",
            ]
            assert {state for _, state in desk.grid().values()} == {"alive"}
            assert_well(desk)

    def test_a_server_that_is_killed_in_mid_turn_leaves_nothing_open(self, tmp_path: Path) -> None:
        with serving(tmp_path) as first:
            desk = Desk.at(first)
            desk.summon()
            first.send(desk.session, "/wait")
            desk.until(typed("assistant.message"))
            before = standing(first, desk.session)
            first.kill()
            assert gone(pid_of(desk))
        emptied(tmp_path)
        with serving(tmp_path, port=first.port) as second:
            desk.moved(second)
            events = desk.until(typed("process.start", process="server"))
            assert [body["stop_reason"] for body in bodies(events, "agent.end")] == ["error"]
            assert before["open"]["agents"], "it was in mid-turn"
            assert standing(second, desk.session, before["seq"]) == before
            assert_well(desk)


class TestCrash:
    @pytest.mark.parametrize("lines", [1, 2, 3, 8, 16, 28, 45, 75, 100, 120, 140, 163])
    def test_julian_may_die_at_any_line_of_a_summon(self, desk: Desk, lines: int) -> None:
        desk.say(f"/die {lines}")
        desk.command("summon")
        desk.until(typed("process.end", process="model", reason="process_crash", exit_code=137))
        assert {state for _, state in desk.grid(desk.reader.events[-1]["seq"]).values()} == {"sleeping"}
        assert_well(desk)
        known = {body["seat"] for body in bodies(desk.reader.events, "roster.join")}
        assert set(desk.grid()) == known | {4}, "no ghosts"
        identities = {one["id"] for one in desk.documents("agent-identity")}
        assert identities == {f"agent-identity:{seat}" for seat in known}

    @pytest.mark.parametrize(
        ("text", "code"), [("/crash", 1), ("/crash 7", 7), ("/crash -9", 137), ("/leave", 0)]
    )
    def test_a_process_that_goes_is_followed_by_another(self, desk: Desk, text: str, code: int) -> None:
        desk.say("Hello")
        first = pid_of(desk)
        events = desk.say(text)
        assert codes(events) == ["process_exited"]
        assert [body["stop_reason"] for body in bodies(events, "agent.end")] == ["error"]
        [*_, aborted] = bodies(events, "block.end")
        assert (aborted["status"], bool(aborted["text"])) == ("aborted", True)
        [end] = bodies(desk.until(typed("process.end")), "process.end")
        assert (end["reason"], end["pid"], end["exit_code"]) == ("process_crash", first, code)
        assert_well(desk)
        assert pid_of(desk) != first
        assert of(desk.office(), "server_error")[-1]["code"] == "process_exited"

    def test_a_process_that_is_killed_while_nothing_happens(self, desk: Desk) -> None:
        desk.summon()
        os.kill(pid_of(desk), signal.SIGKILL)
        desk.until(typed("process.end", reason="process_crash"))
        assert {state for _, state in desk.grid().values()} == {"sleeping"}
        assert_well(desk)


class TestStop:
    def test_a_turn_that_hangs_is_stopped_and_the_process_stays(self, desk: Desk) -> None:
        desk.server.send(desk.session, "/wait")
        desk.until(typed("assistant.message"))
        pid = pid_of(desk)
        assert desk.server.post("/api/stop", {"session": desk.session})[0] == 202
        events = desk.turn()
        assert [body["stop_reason"] for body in bodies(events, "agent.end")] == ["cancelled"]
        assert_well(desk)
        assert pid_of(desk) == pid

    def test_telling_reading_and_showing_do_not_wait_for_each_other(self, desk: Desk) -> None:
        desk.say("Hello")
        last = desk.reader.events[-1]["seq"]
        os.kill(pid_of(desk), signal.SIGSTOP)  # it neither reads nor writes
        try:
            turn = desk.server.send(desk.session, "Are you there?")["turn"]
            told = desk.told(lambda message: message["id"] > last)
            assert (told[-1]["type"], told[-1]["text"]) == ("user_message", "Are you there?")
        finally:
            os.kill(pid_of(desk), signal.SIGCONT)
        assert words(desk.turn(turn)).startswith("You said: Are you there?")

    def test_leaving_stops_nothing(self, desk: Desk) -> None:
        desk.server.send(desk.session, "/long 20000")
        desk.until(typed("agent.start"))  # and hang up
        assert len(words(desk.turn())) == 20_000


class TestPermission:
    def asked(self, desk: Desk, topic: str) -> Any:
        desk.say(f"Write about {topic}")
        desk.server.send(desk.session, "Delete it")
        return bodies(desk.until(typed("approval.request")), "approval.request")[0]

    def test_a_yes_counts_once(self, desk: Desk, folder: Path) -> None:
        asked = self.asked(desk, "moths")
        file = folder / "office" / "memory" / "notes" / "moths.html"
        assert file.exists()
        first, again = desk.decide(asked, "approve"), desk.decide(asked, "approve")
        assert (first[0], again) == (202, first)
        assert desk.decide(asked, "deny")[0] == 409
        events = desk.turn()
        assert [body["ok"] for body in bodies(events, "tool.result")] == [True]
        assert not file.exists()
        assert len(bodies(desk.reader.events, "approval.decision")) == 1

    def test_a_no_is_told_to_julian(self, desk: Desk, folder: Path) -> None:
        asked = self.asked(desk, "wasps")
        assert desk.decide(asked | {"args_hash": "0" * 32}, "approve")[0] in (400, 404, 409)
        assert desk.decide(asked, "deny")[0] == 202
        [result] = bodies(desk.turn(), "tool.result")
        assert (result["ok"], result["error"]["code"]) == (False, "DENIED")
        assert (folder / "office" / "memory" / "notes" / "wasps.html").exists()
        assert_well(desk)

    def test_a_message_goes_on_without_an_answer(self, desk: Desk) -> None:
        asked = self.asked(desk, "bees")
        desk.say("Never mind")
        assert desk.decide(asked, "approve")[0] in (404, 409)
        assert_well(desk)


class TestErrors:
    def test_a_failed_sign_in(self, desk: Desk) -> None:
        events = desk.say("/auth")
        assert codes(events) == ["auth_failed"]
        assert bodies(events, "process.auth") == [{"method": "none", "needs_setup": True}]
        assert_well(desk)

    def test_a_provider_that_cannot(self, desk: Desk) -> None:
        events = desk.say("/overloaded")
        assert codes(events) == ["overloaded"]
        assert of(desk.office(), "server_error")[-1]["code"] == "unknown"
        assert_well(desk)

    def test_a_process_that_runs_already(self, desk: Desk) -> None:
        desk.say("Hello")
        desk.command("session.start")
        assert codes(desk.until(typed("session.error"))) == ["session_conflict"]
        assert_well(desk)

    def test_lines_that_are_none_are_noted_and_break_nothing(self, desk: Desk) -> None:
        events = desk.say("/garbage")
        assert [body["reason"] for body in bodies(events, "parse.reject")] == ["bad_line"] * 4
        assert "weather_report" in [body["kind"] for body in bodies(events, "claude_cli.line")]
        assert_well(desk)

    def test_a_text_that_was_said_in_vain_is_taken_back(self, desk: Desk) -> None:
        events = desk.say("/stumble")
        [retracted] = bodies(events, "block.retract")
        assert retracted["reason"] == "abandoned"
        assert words(events).endswith("waiting.")
        assert_well(desk)

    def test_long_results_are_cut_in_the_dialect_and_whole_in_the_log(self, desk: Desk) -> None:
        events = desk.say("/dump 20000")
        assert len(bodies(events, "tool.result")[-1]["result"]) == 20_000
        assert len(of(desk.office(), "claude_tool_result")[-1]["content"]) == 10_000
        assert of(desk.office(), "artifact_written")[-1]["meta"] is None, "a text has no meta tags"

    def test_a_turn_that_takes_too_long(self, tmp_path: Path) -> None:
        with serving(tmp_path, "hasty") as server:
            desk = Desk.at(server)
            events = desk.say("/wait")
            assert codes(events) == ["turn_timeout"]
            assert bodies(events, "agent.end")[-1]["stop_reason"] == "timeout"
            assert of(desk.office(), "claude_result")[-1]["subtype"] == "timeout"
            server.stop()
        with serving(tmp_path, port=server.port) as patient:
            desk.moved(patient)
            assert_well(desk)

    def test_a_process_with_nothing_to_do_goes_and_comes_back(self, tmp_path: Path) -> None:
        with serving(tmp_path, "idle") as server:
            desk = Desk.at(server)
            desk.summon()
            events = desk.until(typed("process.end"))
            assert bodies(events, "process.end")[0]["reason"] == "inactivity_timeout"
            assert codes(events) == ["inactivity_timeout"]
            assert {state for _, state in desk.grid().values()} == {"sleeping"}
            assert words(desk.say("Good morning!")) == "I am back."

    def test_a_program_that_closes_its_stdin(self, tmp_path: Path) -> None:
        with serving(tmp_path, "deaf") as server:
            desk = Desk.at(server)
            events = desk.say("Hello")
            assert codes(events) == ["stdin_write_failed"] * 3 + ["process_exited"]
            assert bodies(events, "agent.end")[-1]["stop_reason"] == "error"
            assert of(desk.office(), "server_error")[0]["code"] == "stdin_write_failed"

    def test_a_program_that_is_not_there(self, tmp_path: Path) -> None:
        with serving(tmp_path, "empty") as server:
            desk = Desk.at(server)
            events = desk.say("Hello")
            assert codes(events) == ["setup_required"]
            assert of(desk.office(), "server_error")[0]["code"] == "setup_required"
            assert of(desk.office(), "session_start") == []
