"""The example `weights` over real sockets, its executor in another process (document 002)."""

import asyncio
import http.client
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.examples import bodies, emptied, over, standing
from tests.e2e.harness import ROOT, Reader, Server, running
from tests.e2e.test_crash import NOTHING, open_things
from tests.e2e.weights_desk import (
    APP,
    ENTRY,
    Desk,
    Proxy,
    executing,
    keeping,
    result_of,
    rows_of,
    tree_of,
    words,
)
from tests.statements.test_examples import EXAMPLES, fits
from tests.support.invitations import FORM, redemption
from tests.support.limits import HANG_S
from turnlog.server.auth.credentials import hash_token

SAVE, DELETE = "weight_entry_save_batch", "weight_entry_delete"
NOON = "2026-01-08T12:00:00-05:00"
STORED = (NOON, 187.6, "")


def test_the_whole_flow_in_the_shapes_of_the_document(tmp_path: Path) -> None:
    with keeping(tmp_path) as desk:
        shown = desk.say("Weigh-in 187.6 today")
        assert tree_of(shown)["fields"][0]["value"] == "2026-01-08"
        assert desk.submit(ENTRY)[0] == 202
        saved = desk.turn()
        desk.say("Weigh-in 0 today")
        assert desk.submit(ENTRY | {"weight_lbs": 0})[0] == 202
        refused = desk.turn()
        for case in EXAMPLES["002"][1:]:
            example = {**case["example"], "ts": "..."}
            events = refused if case["example"]["payload"].get("ok") is False else shown + saved
            assert any(fits(example, event) for event in events), case["name"]
            assert not any(fits({**example, "type": "tool.other"}, event) for event in events)
        types = [event["type"] for event in shown if event["type"].startswith(("ui", "assistant"))]
        assert types == ["ui.message", "assistant.message", "assistant.view"]
        [call] = [call for call in bodies(saved, "tool.call") if call["tool"] == SAVE]
        row = {"measured_at": NOON, "weight_lbs": 187.6, "notes": ""}
        assert (call["args"], call["executor"]) == ({"rows": [row]}, "remote")
        assert words(saved) == ["Saved: 187.6 lbs on 2026-01-08."]
        assert desk.stored == [STORED]
        first = [event["type"] for event in shown].index("ui.message")
        traces = [{event["trace_id"] for event in turn} for turn in (shown[first:], saved)]
        assert [len(trace) for trace in traces] == [1, 1], "every event of a turn says which"
        assert traces[0] != traces[1]
        assert {event["session_id"] for event in desk.reader.events} == {desk.session}
        assert open_things(desk.reader.events) == NOTHING


def test_a_value_that_the_executor_refuses_is_corrected_in_the_form(tmp_path: Path) -> None:
    with keeping(tmp_path) as desk:
        events = desk.weigh_in(ENTRY | {"weight_lbs": -1})
        result = result_of(events, SAVE)
        error = {"code": "VALIDATION_ERROR", "message": "weight_lbs must be > 0"}
        assert result["error"] == error | {"details": {"path": ["rows", 0, "weight_lbs"]}}
        assert words(events)[-1] == "That cannot be saved: weight_lbs must be > 0. Please correct it:"
        fields = tree_of(events)["fields"]
        assert [(field.get("value"), field.get("error")) for field in fields] == [
            ("2026-01-08", None),
            (-1, "weight_lbs must be > 0"),
            (None, None),
        ]
        assert desk.stored == []
        assert desk.submit(ENTRY | {"notes": "after breakfast"})[0] == 202
        assert result_of(desk.turn(), SAVE)["ok"]
        assert desk.stored == [(NOON, 187.6, "after breakfast")]


def test_what_does_not_fit_the_form_is_refused_before_anybody_is_asked(tmp_path: Path) -> None:
    with running(APP, tmp_path) as server:
        desk = Desk.at(server, tmp_path)
        desk.say("Weigh-in 187.6 today")
        status, answer = desk.submit({"measured_at": "some day"})
        assert (status, answer["fault"]["code"]) == (400, "VALIDATION_ERROR")
        paths = [problem["path"] for problem in answer["fault"]["details"]["problems"]]
        assert paths == [["values", "measured_at"], ["values", "weight_lbs"]]


def test_two_tabs_that_submit_one_form_save_once(tmp_path: Path) -> None:
    with keeping(tmp_path) as desk:
        desk.say("Weigh-in 187.6 today")

        async def both() -> list[Any]:
            tabs = [asyncio.to_thread(desk.submit, ENTRY | {"weight_lbs": lbs}) for lbs in (187.6, 187.6)]
            return list(await asyncio.gather(*tabs))

        assert sorted(status for status, _ in asyncio.run(both())) == [202, 409]
        desk.turn()
        assert desk.stored == [STORED]
        assert len(desk.audit) == 1


def test_several_entries_are_confirmed_in_a_table_and_saved_with_one_call(tmp_path: Path) -> None:
    with keeping(tmp_path) as desk:
        events = desk.say("188.2 lbs yesterday, tired; 187.6 today")
        assert words(events) == ["Got it. Please confirm the entries:"]
        assert desk.save(rows_of(events))[0] == 202
        events = desk.turn()
        assert result_of(events, SAVE)["result"]["saved"] == 2
        assert desk.stored == [("2026-01-07T12:00:00-05:00", 188.2, "tired"), STORED]
        assert all(row["row_id"].startswith("wt_") for row in rows_of(events)), (
            "the table is shown as it is now"
        )


def test_the_table_is_edited_and_every_change_is_written_down(tmp_path: Path) -> None:
    with keeping(tmp_path) as desk:
        desk.weigh_in(ENTRY)
        [row] = desk.table()
        rows = [
            row | {"weight_lbs": 186.2, "notes": "tired"},
            {"measured_at": "2026-01-07", "weight_lbs": 190},
        ]
        assert desk.save(rows)[0] == 202
        events = desk.turn()
        ids = result_of(events, SAVE)["result"]["ids"]
        assert ids[0] == row["row_id"] != ids[1]
        assert desk.stored == [("2026-01-07T12:00:00-05:00", 190, ""), (NOON, 186.2, "tired")]
        history = words(desk.say("history"))[-1].split("\n")[1:]
        assert [line.split("local: ")[1].split(" (")[0] for line in history] == [
            "changed 187.6 lbs on 2026-01-08 to 186.2 lbs on 2026-01-08, tired",
            "added 190 lbs on 2026-01-07",
            "added 187.6 lbs on 2026-01-08",
        ]
        calls = {call["call_id"] for call in bodies(desk.reader.events, "tool.call")}
        assert {call_id for _, _, call_id, _ in desk.audit} <= calls, (
            "what is written down is found in the log"
        )
        assert [(tool, person) for tool, person, _, _ in desk.audit] == [(SAVE, "local")] * 2


def test_a_wrong_cell_is_refused_with_its_path_and_nothing_is_saved(tmp_path: Path) -> None:
    with keeping(tmp_path) as desk:
        desk.weigh_in(ENTRY)
        [row] = desk.table()
        wrong = [row | {"weight_lbs": 180}, row | {"row_id": None, "weight_lbs": 0, "measured_at": "noon"}]
        status, answer = desk.save(wrong)
        assert status == 400
        fault = answer["fault"]
        assert (fault["code"], fault["details"]["path"]) == ("VALIDATION_ERROR", ["rows", 1, "measured_at"])
        problems = {tuple(problem["path"]): problem["message"] for problem in fault["details"]["problems"]}
        assert problems["rows", 1, "weight_lbs"] == "weight_lbs must be > 0"
        assert desk.stored == [STORED]
        assert len(desk.audit) == 1
        assert desk.save([row | {"weight_lbs": 180}])[0] == 202
        desk.turn()
        assert desk.stored == [(NOON, 180, "")]


def test_a_row_that_is_gone_meanwhile_is_said_at_the_row(tmp_path: Path) -> None:
    with keeping(tmp_path) as desk:
        desk.weigh_in(ENTRY)
        other = Desk.at(desk.server, tmp_path)
        [row] = other.table()
        desk.table()
        assert desk.delete(row["row_id"])[0] == 202
        assert desk.decide(desk.until("approval.request"), "approve")[0] == 202
        desk.turn()
        assert other.save([row, {"measured_at": "2026-01-07", "weight_lbs": 190}])[0] == 202
        events = other.turn()
        gone = f"there is no entry {row['row_id']}"
        assert result_of(events, SAVE)["error"]["message"] == gone
        assert [shown.get("error") for shown in tree_of(events)["rows"]] == [gone, None]
        assert desk.stored == []


@pytest.mark.parametrize(
    ("decision", "said", "left"),
    [
        ("approve", "Deleted: 1.", []),
        ("deny", "Nothing is deleted: a person said no.", [STORED]),
    ],
)
def test_a_row_is_deleted_only_if_a_person_agrees(
    tmp_path: Path, decision: str, said: str, left: list[Any]
) -> None:
    with keeping(tmp_path) as desk:
        desk.weigh_in(ENTRY)
        [row] = desk.table()
        assert desk.delete(row["row_id"])[0] == 202
        asked = desk.until("approval.request")
        assert (asked["tool"], asked["risk"]) == (DELETE, "db_write")
        assert asked["reason"].startswith("Delete weigh-ins")
        assert desk.stored == [STORED], "nothing runs before somebody has agreed"
        assert desk.delete(row["row_id"])[0] == 409
        assert desk.decide(asked, decision)[0] == 202
        events = desk.turn()
        assert words(events)[0] == said
        assert desk.stored == left
        assert len(rows_of(events)) == len(left), "the table is shown as it is now"
        again = desk.decide(asked, "approve")[0]
        assert again == (202 if decision == "approve" else 409), "it is decided once"
        assert [tool for tool, *_ in desk.audit] == [SAVE] + [DELETE] * (not left)


def test_nobody_agrees_in_time(tmp_path: Path) -> None:
    with keeping(tmp_path, "tests.e2e.weights_apps:hasty") as desk:
        desk.weigh_in(ENTRY)
        [row] = desk.table()
        assert desk.delete(row["row_id"])[0] == 202
        events = desk.turn()
        assert bodies(events, "approval.decision")[0]["decision"] == "expired"
        assert result_of(events, DELETE)["error"]["code"] == "DENIED"
        assert words(events)[0] == "Nothing is deleted: no person answered in time."
        assert desk.stored == [STORED]
        assert len(desk.audit) == 1


def test_rows_deleted_in_a_table_are_deleted_if_a_person_agrees(tmp_path: Path) -> None:
    with keeping(tmp_path) as desk:
        assert desk.save(rows_of(desk.say("188.2 yesterday; 187.6 today")))[0] == 202
        today, yesterday = rows_of(desk.turn())
        assert (today["weight_lbs"], yesterday["weight_lbs"]) == (187.6, 188.2)
        assert desk.save([today], (yesterday["row_id"],))[0] == 202
        assert desk.decide(desk.until("approval.request"), "approve")[0] == 202
        desk.turn()
        assert desk.stored == [STORED]


def test_a_table_that_two_tabs_save_is_saved_once_and_nothing_is_deleted(tmp_path: Path) -> None:
    with keeping(tmp_path) as desk:
        rows = rows_of(desk.say("188.2 yesterday; 187.6 today"))
        assert [desk.save(rows)[0], desk.save(rows)[0]] == [202, 409]
        assert len(rows_of(desk.turn())) == 2
        assert len(desk.stored) == 2


def test_an_executor_killed_between_saving_and_answering_has_saved_once(tmp_path: Path) -> None:
    async def work(desk: Desk) -> None:
        async with Proxy(desk.server.port).open() as proxy:
            with executing(desk.server, tmp_path, "--session", desk.session, url=proxy.url) as executor:
                assert (await asyncio.to_thread(desk.submit, ENTRY))[0] == 202
                await asyncio.wait_for(proxy.held.wait(), HANG_S)
                assert desk.stored == [STORED], "it is saved, and nobody knows"
                executor.kill()
                await asyncio.to_thread(executor.wait)

    with running(APP, tmp_path) as server:
        desk = Desk.at(server, tmp_path)
        desk.say("Weigh-in 187.6 today")
        asyncio.run(work(desk))
        assert [item["state"] for item in server.get("/api/sessions")[1]["sessions"]] == ["waiting"]
        with executing(server, tmp_path, "--session", desk.session):
            events = desk.turn()
        assert words(events) == ["Saved: 187.6 lbs on 2026-01-08."]
        assert desk.stored == [STORED]
        [(_, _, _, answered)] = desk.audit
        assert result_of(events, SAVE)["result"] == json.loads(answered)


def test_the_server_may_be_killed_while_a_form_or_an_approval_waits(tmp_path: Path) -> None:
    with running(APP, tmp_path) as server:
        desk, port = Desk.at(server, tmp_path), server.port
        desk.say("Weigh-in 187.6 today")
        server.kill()
    with running(APP, tmp_path, port) as server, executing(server, tmp_path):
        desk.moved(server)
        assert desk.submit(ENTRY)[0] == 202
        assert words(desk.turn()) == ["Saved: 187.6 lbs on 2026-01-08."]
        [row] = desk.table()
        assert desk.delete(row["row_id"])[0] == 202
        asked, before = desk.until("approval.request"), standing(server, desk.session)
        server.kill()
    emptied(tmp_path)
    with running(APP, tmp_path, port) as server, executing(server, tmp_path):
        desk.moved(server)
        assert standing(server, desk.session, before["seq"]) == before
        assert desk.decide(asked, "approve")[0] == 202
        desk.turn()
        assert desk.stored == []
        assert open_things(desk.reader.events) == NOTHING


def test_turn_that_was_killed_in_mid_sentence_goes_on_and_its_form_saves_once(tmp_path: Path) -> None:
    slow = "tests.e2e.weights_apps:slow"
    with running(slow, tmp_path) as server:
        desk, port = Desk.at(server, tmp_path), server.port
        server.send(desk.session, "Weigh-in 187.6 today")
        desk.until("block.delta")
        before = standing(server, desk.session)
        server.kill()
    emptied(tmp_path)
    with running(slow, tmp_path, port) as server, executing(server, tmp_path):
        desk.moved(server)
        assert desk.until("agent.end")["stop_reason"] == "end_turn"
        assert before["open"]["agents"], "it was in mid-turn"
        assert standing(server, desk.session, before["seq"]) == before
        assert desk.submit(ENTRY)[0] == 202
        assert words(desk.turn())[-1] == "Saved: 187.6 lbs on 2026-01-08."
        assert desk.stored == [STORED]
        assert open_things(desk.reader.events) == NOTHING


def test_the_executor_serves_every_session_and_lives_through_a_restart(tmp_path: Path) -> None:
    with running(APP, tmp_path) as server:
        first, port = Desk.at(server, tmp_path), server.port
        with executing(server, tmp_path):
            first.weigh_in(ENTRY)
            second = Desk.at(server, tmp_path)
            second.weigh_in(ENTRY | {"weight_lbs": 188})
            server.kill()
            with running(APP, tmp_path, port) as server:
                first.moved(server)
                first.weigh_in(ENTRY | {"weight_lbs": 189})
    assert [weight for _, weight, _ in first.stored] == [187.6, 188, 189]


def cookie_of(server: Server, session: str, *roles: str) -> dict[str, str]:
    """Somebody who came by a link, with these roles."""
    status, link = server.post("/api/links", {"session": session, "roles": roles})
    assert status == 201
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=HANG_S)
    connection.request("POST", *redemption(link["path"]), {"content-type": FORM})
    answer = connection.getresponse()
    assert answer.status == 303
    cookie = (answer.getheader("set-cookie") or "").split(";")[0]
    connection.close()
    return {"cookie": cookie, "content-type": "application/json"}


def posted(server: Server, headers: dict[str, str], body: object) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=HANG_S)
    connection.request("POST", "/api/events", json.dumps(body), headers)
    status = connection.getresponse().status
    connection.close()
    return status


def test_only_an_executor_answers_the_call(tmp_path: Path) -> None:
    token = "the-token-of-an-executor-0123"
    tokens = tmp_path / "tokens.json"
    tokens.write_text(json.dumps({"worker": {"sha256": hash_token(token), "roles": ["executor"]}}))
    with running(APP, tmp_path, options=["--tokens", str(tokens)]) as server:
        desk = Desk.at(server, tmp_path)
        guest = cookie_of(server, desk.session, "guest")
        hand = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        desk.say("Weigh-in 187.6 today")
        assert desk.submit(ENTRY)[0] == 202
        call = desk.until("tool.call")
        desk.until("agent.usage")
        result = {"saved": 1, "ids": ["wt_x"]}
        payload = {"call_id": call["call_id"], "tool": SAVE, "ok": True, "result": result, "error": None}
        body = {"session": desk.session, "events": [{"type": "tool.result", "payload": payload}]}
        assert posted(server, guest, body) == 400
        assert posted(server, hand, body) == 202
        assert result_of(desk.turn(), SAVE)["result"] == result


def test_everybody_has_their_own_weights_and_changes_are_in_their_name(tmp_path: Path) -> None:
    with keeping(tmp_path) as desk:
        guest = cookie_of(desk.server, desk.session, "guest")
        desk.say("Weigh-in 187.6 today")
        action = {"kind": "form.submit", "form_id": "weight_entry", "values": ENTRY}
        payload = {"view_id": "view_weight_entry", "action": action}
        events = [{"type": "ui.action", "payload": payload}]
        assert posted(desk.server, guest, {"session": desk.session, "events": events}) == 202
        desk.turn()
        assert desk.stored == [STORED]
        [(_, person, _, _)] = desk.audit
        assert person.startswith("guest_")
        assert desk.table() == []


def test_an_executor_without_a_token_says_so_and_ends(tmp_path: Path) -> None:
    with running(APP, tmp_path) as server:
        command = [sys.executable, "-m", "turnlog_examples.weights.executor", "--url", server.url]
        env = os.environ | {"TURNLOG_TOKEN": "nobody-knows-this-token-here"}
        table = ["--db", str(tmp_path / "weights.db")]
        ran = subprocess.run(
            [*command, *table], env=env, cwd=ROOT, capture_output=True, text=True, timeout=HANG_S
        )
        assert ran.returncode == 1
        assert "401" in ran.stderr
        assert "nobody-knows" not in ran.stderr


def test_both_start_together_to_be_tried_out(tmp_path: Path) -> None:
    token = "a-token-to-try-it-out-with"
    command = [sys.executable, "-m", "turnlog_examples.weights", "--folder", str(tmp_path / "kept")]
    env = os.environ | {"TURNLOG_TOKEN": token, "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=env)
    assert process.stdout is not None
    with process.stdout:
        port = int(process.stdout.readline().split("127.0.0.1:")[1].split("/")[0])
        assert "sign in" in process.stdout.readline()
        server = Server(process, port, token=token)
        session = server.session()
        desk = Desk(server, session, Reader(server, session), tmp_path / "kept")
        server.send(session, "Weigh-in 187.6 today")
        assert asyncio.run(desk.reader.read(over))
        assert desk.submit(tree_values(desk.reader.events))[0] == 202
        assert words(desk.turn())[0].startswith("Saved: 187.6 lbs on 20")
        process.send_signal(signal.SIGINT)
        assert process.wait(HANG_S) == 0


def tree_values(events: list[Any]) -> Any:
    """A form as it was shown, sent back."""
    return {field["name"]: field["value"] for field in tree_of(events)["fields"]}
