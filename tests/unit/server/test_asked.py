"""Streams and responses that are not begun: what is refused has done nothing, and who asks is not kept."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from starlette.testclient import TestClient

import turnlog
from tests.unit.app.desk import make_app, play
from turnlog.app import LOCAL
from turnlog.events import AssistantMessage
from turnlog.log import open_log
from turnlog.server import create_app
from turnlog.server.auth.credentials import BuiltinAuth, hash_token
from turnlog.server.limits import Limits
from turnlog.wire.cursor import parse_cursor
from turnlog.wire.sse import Decoder

HEADERS = {"authorization": "Bearer t"}


@contextmanager
def site(url: str = "memory:", **limits: Any) -> Iterator[TestClient]:
    auth = BuiltinAuth(b"k" * 32, {hash_token("t"): LOCAL})
    app = create_app(make_app(), url, auth=auth, limits=Limits(**limits))
    with TestClient(app, base_url="http://localhost", headers=HEADERS) as client:
        yield client


def made(client: TestClient) -> str:
    name: str = client.post("/api/sessions", json={}).json()["session_id"]
    return name


def last(client: TestClient) -> int:
    [session] = client.get("/api/sessions").json()["sessions"]
    seq: int = session["last"]
    return seq


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/agent/run", {"user_prompt": "hello"}),
        ("/agent/tool_results", {"tool_results": [{"tool_use_id": "call_1", "content": 1}]}),
    ],
)
def test_a_response_that_cannot_be_told_is_refused_before_anything_is_done(
    path: str, body: dict[str, Any]
) -> None:
    with site(program_streams=0) as client:
        asked = {"agent_uuid": made(client), **body}
        before = last(client)
        refused = client.post(path, json=asked)
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
        assert last(client) == before
    with site() as client:
        asked = {"agent_uuid": made(client), **body}
        before = last(client)
        assert client.post(f"{path}?dialect=klingon", json=asked).status_code == 400
        assert last(client) == before


def test_one_stream_too_many_says_when_to_come_again() -> None:
    with site(program_streams=0) as client:
        refused = client.get(f"/api/events?session={made(client)}")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")


def test_who_asks_for_the_headers_alone_is_answered_and_keeps_no_stream() -> None:
    with site(program_streams=1) as client:
        name = made(client)
        for _ in range(3):
            response = client.head(f"/api/events?session={name}")
            assert (response.status_code, response.content) == (200, b"")
            assert response.headers["content-type"].startswith("text/event-stream")
        assert client.head("/api/events?session=sess_none").status_code == 404


def test_a_turn_cut_inside_an_event_goes_on_with_the_event_in_another_dialect() -> None:
    with site() as client:
        run = client.post(
            "/agent/run?stream_meta_history_and_tool_results=true", json={"user_prompt": "long " * 900}
        )
        session, turn = run.headers["turnlog-session"], run.headers["turnlog-turn"]
        inside = [one.id for one in Decoder().feed(run.content) if "." in one.id]
        assert inside
        for last_id in inside:
            path = f"/api/events?session={session}&turn={turn}"
            rest = Decoder().feed(client.get(path, headers={"last-event-id": last_id}).content)
            assert parse_cursor(rest[0].id) == replace(parse_cursor(last_id), chunk=None)


def test_a_closed_session_is_read_on_inside_its_last_event(tmp_path: Any) -> None:
    url, names = f"sqlite:///{tmp_path / 'log.db'}", list[str]()

    async def fill() -> None:
        log = await open_log(url)
        names.append(await log.create(make_app().name))
        text = AssistantMessage(text="long " * 2000)
        await log.append(names[0], [turnlog.event(text, origin="model")])
        await log.close_session(names[0])
        await log.close()

    play(fill)
    with site(url) as client:
        path = f"/api/events?session={names[0]}&dialect=blocks"
        whole = Decoder().feed(client.get(path).content)
        assert len(whole) > 2
        for place, message in enumerate(whole[:-1]):
            rest = client.get(path, headers={"last-event-id": message.id})
            assert [one.data for one in Decoder().feed(rest.content)] == [m.data for m in whole[place + 1 :]]
        assert client.get(path, headers={"last-event-id": whole[-1].id}).status_code == 204
