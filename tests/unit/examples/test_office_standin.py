"""The stand-in of the example `office`: it speaks stream-json as the reference of the original has it."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.unit.examples.office_host import STREAMED, Host, hosting, of, typed, words
from turnlog.events import AssistantMessage, AssistantThinking, ToolResult
from turnlog.team.events import JobSuggest, RosterJoin, RosterStatus, ScreenCommand


def heard(folder: Path, *texts: str) -> Host:
    """A whole conversation."""
    with hosting(folder) as host:
        for text in texts:
            host.turn(text)
        assert host.end() == 0
        return host


def decide(host: Host, answer: dict[str, Any]) -> None:
    [asked] = of(host.until(typed("control_request")), "control_request")
    body = {"subtype": "success", "request_id": asked["request_id"], "response": answer}
    host.tell(type="control_response", response=body)


class TestLines:
    def test_a_block_comes_in_pieces_and_whole_before_it_stops(self, tmp_path: Path) -> None:
        with hosting(tmp_path) as host:
            lines = host.turn("Hello")
        events = [line["event"] for line in of(lines, "stream_event")]
        kinds = [event["type"] for event in events]
        assert (kinds[0], kinds[-2:]) == ("message_start", ["message_delta", "message_stop"])
        pieces = [event["delta"]["text"] for event in events if "text" in event.get("delta", {})]
        assert len(pieces) > 1
        assert "".join(pieces) == words(lines)
        stops = [number for number, line in enumerate(lines) if "content_block_stop" in json.dumps(line)]
        assert [lines[number - 1]["type"] for number in stops] == ["assistant"] * 2
        ids = {line["message"]["id"] for line in of(lines, "assistant")} | {events[0]["message"]["id"]}
        assert len(ids) == 1
        assert all(line["session_id"] and line["uuid"] for line in lines)

    def test_without_partial_messages_blocks_come_whole_only(self, tmp_path: Path) -> None:
        with hosting(tmp_path, "--verbose") as host:
            lines = host.turn("Hello")
            assert host.end() == 0
        assert of(lines, "stream_event") == []
        assert [said.text for said in host.payloads(AssistantMessage)] == [words(lines)]
        assert len(host.payloads(AssistantThinking)) == 1

    def test_every_turn_has_an_init_and_a_result_which_name_the_message(self, tmp_path: Path) -> None:
        with hosting(tmp_path) as host:
            turns = [host.turn("One"), host.turn("Two")]
        for number, lines in enumerate(turns):
            [init], [result] = of(lines, "system", "init"), of(lines, "result")
            assert {"Write", "Bash", "Task"} <= set(init["tools"])
            assert (result["is_error"], result["result_index"], result["num_turns"]) == (False, number, 1)
            assert result["user_message_uuid"] == f"u-{number}"
            assert of(lines, "assistant")[0]["user_message_uuid"] == f"u-{number}"
        costs = [of(lines, "result")[0]["total_cost_usd"] for lines in turns]
        assert 0 < costs[0] < costs[1], "costs are sums of the process"

    def test_the_same_messages_give_the_same_lines(self, tmp_path: Path) -> None:
        told = []
        for name in ("a", "b"):
            folder = tmp_path / name
            folder.mkdir()
            with hosting(folder, *STREAMED, "--session-id", "s-1") as host:
                host.turn("[SUMMON AGENTS]")
                assert host.end() == 0
            told.append(host.raw.replace(str(folder).encode(), b""))
        assert told[0] == told[1]

    def test_what_the_host_asks_is_answered(self, tmp_path: Path) -> None:
        with hosting(tmp_path) as host:
            for number, subtype in enumerate(["initialize", "set_model", "fly"]):
                host.tell(type="control_request", request_id=f"r-{number}", request={"subtype": subtype})
                answer = host.until(typed("control_response"))[-1]["response"]
                expected = "error" if subtype == "fly" else "success"
                assert (answer["request_id"], answer["subtype"]) == (f"r-{number}", expected)
            host.tell(type="nonsense")
            host.process.stdin.write(b"no line\n") if host.process.stdin else None
            assert words(host.turn("Hello"))

    def test_a_message_during_a_turn_waits_for_its_own(self, tmp_path: Path) -> None:
        with hosting(tmp_path) as host:
            host.say("One")
            host.say("Two")
            lines = host.until(typed("result")) + host.until(typed("result"))
        states = [(line["command_uuid"], line["state"]) for line in of(lines, "command_lifecycle")]
        assert ("u-0", "queued") not in states
        assert states.index(("u-1", "queued")) < states.index(("u-1", "started"))
        assert [line["user_message_uuid"] for line in of(lines, "result")] == ["u-0", "u-1"]

    def test_messages_are_repeated_if_that_is_wanted(self, tmp_path: Path) -> None:
        with hosting(tmp_path, "--replay-user-messages") as host:
            [again] = [line for line in of(host.turn("Hello"), "user") if line.get("isReplay")]
        assert again["message"]["content"] == "Hello"


class TestTeam:
    @pytest.mark.parametrize(
        "text", ["[WAKE AGENTS] <agent-payloads>", '[WAKE AGENTS] <a><agent name="L" position="x"/></a>']
    )
    def test_a_wake_that_cannot_be_read_wakes_nobody(self, tmp_path: Path, text: str) -> None:
        host = heard(tmp_path, text)
        assert (host.payloads(RosterJoin), host.payloads(RosterStatus)) == ([], [])

    def test_a_wake_of_nobody_says_who_is_there(self, tmp_path: Path) -> None:
        host = heard(tmp_path, "[WAKE AGENTS]")
        assert [status.agents for status in host.payloads(RosterStatus)] == [()]
        assert host.payloads(ScreenCommand)[0].expression == "sad"

    @pytest.mark.parametrize(
        ("form", "missing"),
        [
            ('{"name": "Librarian"}', {"description", "skills"}),
            ('{"name": "", "description": "Sorts books. All of them."}', {"name", "skills"}),
            ('{"name": "a", "description": "b", "skills": ["c"]}', set()),
            ("no form", None),
        ],
    )
    def test_help_with_a_job_is_what_is_missing(
        self, tmp_path: Path, form: str, missing: set[str] | None
    ) -> None:
        suggested = heard(tmp_path, f"[JOB HELP] {form}").payloads(JobSuggest)
        assert [set(one.suggestions) for one in suggested] == ([] if missing is None else [missing])


class TestTools:
    def test_where_nobody_can_be_asked_the_answer_is_no(self, tmp_path: Path) -> None:
        with hosting(tmp_path, "--verbose") as host:
            lines = host.turn("Delete it")
            assert host.end() == 0
        assert len(of(lines, "system", "permission_denied")) == 1
        assert host.payloads(ToolResult)[0].error.code == "DENIED"

    def test_other_arguments_than_asked_for_are_taken(self, tmp_path: Path) -> None:
        (tmp_path / "other.html").write_text("x")
        with hosting(tmp_path) as host:
            host.say("Delete it")
            decide(host, {"behavior": "allow", "updatedInput": {"command": "rm other.html"}})
            host.until(typed("result"))
        assert not (tmp_path / "other.html").exists()

    @pytest.mark.parametrize("command", ["rm ../secret", "rm a b", "ls", "rm none.html"])
    def test_nothing_outside_of_its_folder_and_no_other_command(self, tmp_path: Path, command: str) -> None:
        inner = tmp_path / "inner"
        inner.mkdir()
        (tmp_path / "secret").write_text("x")
        with hosting(inner) as host:
            host.say("Delete it")
            decide(host, {"behavior": "allow", "updatedInput": {"command": command}})
            host.until(typed("result"))
            assert host.end() == 0
        assert (tmp_path / "secret").exists()
        assert [result.ok for result in host.payloads(ToolResult)] == [False]


class TestEnding:
    def interrupt(self, host: Host) -> list[Any]:
        host.tell(type="control_request", request_id="stop", request={"subtype": "interrupt"})
        return host.until(typed("result"))

    def test_a_text_is_interrupted_in_mid_sentence(self, tmp_path: Path) -> None:
        with hosting(tmp_path, *STREAMED, "--pace-s", "0.02") as host:
            host.say("/long 3000")
            host.until(lambda line: "text_delta" in json.dumps(line))
            [aborted] = [line for line in self.interrupt(host) if line.get("aborted")]
            assert host.end() == 0
        assert 0 < len(aborted["message"]["content"][0]["text"]) < 3000
        assert host.payloads(AssistantMessage) == []

    def test_a_question_is_withdrawn(self, tmp_path: Path) -> None:
        with hosting(tmp_path) as host:
            host.say("Delete it")
            [asked] = of(host.until(typed("control_request")), "control_request")
            lines = self.interrupt(host)
            assert host.end() == 0
        assert of(lines, "control_cancel_request")[0]["request_id"] == asked["request_id"]
        assert [result.ok for result in host.payloads(ToolResult)] == [False]

    def test_without_a_host_nobody_waits_for_ever(self, tmp_path: Path) -> None:
        for text, wanted in (("/wait", "assistant"), ("Delete it", "control_request")):
            with hosting(tmp_path) as host:
                host.say(text)
                host.until(typed(wanted))
                assert host.end() == 0

    def test_an_interrupt_of_nothing_is_harmless(self, tmp_path: Path) -> None:
        with hosting(tmp_path) as host:
            host.tell(type="control_request", request_id="stop", request={"subtype": "interrupt"})
            host.until(typed("control_response"))
            assert words(host.turn("Hello"))

    def test_ids_of_a_turn_that_died_do_not_come_again(self, tmp_path: Path) -> None:
        calls = []
        options = ["--session-id", "s-1"]
        for _ in range(2):
            with hosting(tmp_path, *STREAMED, *options) as host:
                host.say("Delete it")
                asked = host.until(typed("control_request"))[-1]
                calls.append(asked["request"]["tool_use_id"])
                host.process.kill()
            options = ["--resume", "s-1"]
        assert calls[0] != calls[1]

    @pytest.mark.parametrize(
        "options", [("--resume", "nobody"), ("--resume", "../x"), ("--session-id", "s-1")]
    )
    def test_a_session_that_is_not_there_or_in_use_is_refused(
        self, tmp_path: Path, options: tuple[str, ...]
    ) -> None:
        with hosting(tmp_path, "--session-id", "s-1") as host:
            host.turn("Hello")
        with hosting(tmp_path, *options) as host:
            assert host.end() == 1
            assert b"session" in host.stderr.read()
