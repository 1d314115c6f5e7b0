"""`turnlog state` and `turnlog rebuild`: what the events make, now and then, and making it again."""

import asyncio
import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.unit.cli.harness import Place, error, no_log, said, turn
from turnlog import Agent, App
from turnlog.agents import Scripted
from turnlog.app.read_models import ReadModelStore
from turnlog.events import UiMessage
from turnlog.log import Document, Log

HERE = "tests.unit.cli.test_state"


def make(name: str, start: Any) -> App:
    def said(state: Any, payload: UiMessage, _: Any) -> Any:
        return {**state, "said": payload.text}

    return App(name, Agent("A", "", Scripted(lambda _: [])), reducers={UiMessage: said}, initial_state=start)


tour = make("tour", dict)
other = make("other", dict)
strange = make("tour", lambda: {"what": object()})


@pytest.fixture
def filled(place: Place) -> Place:
    place.session("sess_1", turn())
    place.session("sess_2", said("One", "Two"))
    return place


def state(place: Place, *arguments: str) -> Any:
    result = place.run("state", *arguments)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


class TestState:
    def test_it_is_everything_that_is_shown(self, filled: Place) -> None:
        shown = state(filled, "sess_1")
        assert list(shown) == ["seq", "state", "transcript", "meters", "open", "roster"]
        assert (shown["seq"], shown["state"]) == (12, {})
        assert [bubble["text"] for bubble in shown["transcript"]] == ["Rome", "Let me see."]
        assert shown["meters"]["session"]["agents"] == 2
        assert shown["open"] == {"agents": [], "calls": [], "blocks": [], "queue": []}

    def test_as_of_a_seq(self, filled: Place) -> None:
        shown = state(filled, "sess_1", "--at", "4")
        assert shown["seq"] == 4
        assert [block["text"] for block in shown["open"]["blocks"]] == ["Let me see."]
        assert state(filled, "sess_1", "--at", "-1")["transcript"] == []

    def test_an_application_makes_its_own_state(self, filled: Place) -> None:
        assert state(filled, "sess_1", "--app", f"{HERE}:tour")["state"] == {"said": "Rome"}
        assert state(filled, "sess_2", "--at", "0", "--app", f"{HERE}:tour")["state"] == {"said": "One"}

    def test_beside_a_process_that_writes_the_log(self, filled: Place) -> None:
        async def beside(log: Log) -> Any:
            return await asyncio.to_thread(state, filled, "sess_2")

        assert filled.work(beside)["seq"] == 1

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["sess_9"], "no session sess_9; `turnlog sessions` lists all sessions"),
            (["sess_2", "--at", "2"], "expected a seq up to 1, got 2"),
            (["sess_2", "--app", f"{HERE}:other"], "sess_2 is a session of tour, not of other"),
            (["sess_2", "--app", f"{HERE}:strange"], "the state of tour is not JSON: "),
        ],
    )
    def test_what_cannot_be_shown_is_said_in_a_line(
        self, filled: Place, arguments: list[str], words: str
    ) -> None:
        line = error(filled.run("state", *arguments))
        assert line.startswith(words)
        assert "(at " not in line, "there is no request whose path it could be"

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (["sess_2", "--at", "nine"], "Invalid value for '--at'"),
            (["sess_2", "--at", "-2"], "Invalid value for '--at'"),
            (["sess_2", "--at", "9" * 30], "Invalid value for '--at'"),
            (["sess_2", "--app", "nothing"], "expected MODULE:APP, got 'nothing'"),
            (["sess_2", "--app", "json:dumps"], "json:dumps is not a turnlog.App"),
            (["sess_2", "--app", "unheard.of:app"], "No module named"),
            ([], "Missing argument 'SESSION'"),
        ],
    )
    def test_wrong_words(self, filled: Place, arguments: list[str], words: str) -> None:
        result = filled.run("state", *arguments)
        assert (result.exit_code, words in result.stderr) == (2, True), result.stderr

    def test_a_log_that_is_not_there_is_not_made(self, place: Place) -> None:
        assert error(place.run("state", "sess_1")) == no_log(place)
        assert list(place.path.parent.iterdir()) == []


def documents(place: Place) -> list[Document]:
    async def all_versions(log: Log) -> list[Document]:
        return [*await log.documents(), *await log.documents(version=ReadModelStore(log).documents_version)]

    return place.work(all_versions)


def derived(path: Path) -> dict[str, list[Any]]:
    with closing(sqlite3.connect(path)) as connection:
        return {
            name: connection.execute(
                f"select session, {key}, body, version from {name} order by 1, 2"
            ).fetchall()
            for name, key in (("document", "id"), ("snapshot", "name"))
        }


class TestRebuild:
    def test_documents_are_made_again_byte_for_byte(self, filled: Place) -> None:
        async def ask(log: Log) -> None:
            for name in ("sess_1", "sess_2"):
                await ReadModelStore(log).write_documents(name)

        filled.work(ask)
        before = derived(filled.path)
        filled.spoil("update document set body = '{}' where id = 'message:evt_0'")
        assert derived(filled.path) != before
        assert filled.run("rebuild").output == "5 documents of 2 sessions\n"
        assert derived(filled.path) == before

    def test_what_nothing_makes_any_more_goes(self, filled: Place) -> None:
        stale = Document("sess_1", "message:gone", "message", "transcript", b"{}")
        filled.work(lambda log: log.put_document(stale))
        filled.work(lambda log: log.put_snapshot("sess_1", "panels", 3, b"{}"))
        assert filled.run("rebuild").exit_code == 0
        assert stale not in documents(filled)
        assert filled.work(lambda log: log.snapshot("sess_1", "panels", 99)) is None

    def test_an_empty_log_has_none(self, place: Place) -> None:
        place.work(lambda log: log.sessions())
        assert place.run("rebuild").output == "0 documents of 0 sessions\n"

    def test_of_a_damaged_session_what_is_left(self, filled: Place) -> None:
        filled.spoil_event(0)
        result = filled.run("rebuild")
        assert (result.exit_code, result.stdout) == (0, "3 documents of 2 sessions\n"), result.output
        assert "is damaged at seq" in result.stderr
        again = filled.run("rebuild")
        assert (again.stdout, again.stderr) == (result.stdout, "")

    def test_a_log_that_somebody_writes_is_refused(self, filled: Place) -> None:
        async def refused(log: Log) -> str:
            return error(await asyncio.to_thread(filled.run, "rebuild"))

        assert filled.work(refused) == "log.db is being written by another process; stop that one first"

    def test_a_log_that_is_not_there_is_not_made(self, place: Place) -> None:
        assert error(place.run("rebuild")) == no_log(place)
        assert list(place.path.parent.iterdir()) == []
