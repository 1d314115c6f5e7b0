"""`ids=dense`: the messages of `office` numbered from 0, and a reader that continues with such a number."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.support.tables import for_each_row
from tests.unit.app.desk import make_app, play
from tests.unit.server.test_closed import HEADERS, fill
from turnlog.app import LOCAL
from turnlog.server import create_app
from turnlog.server.auth.credentials import BuiltinAuth, hash_token
from turnlog.server.streaming import message_numbers
from turnlog.wire.sse import Decoder

DENSE = "/api/events?dialect=office&ids=dense"
PLAIN = "/api/events?dialect=office"

Closed = tuple[TestClient, list[str]]


@pytest.fixture
def closed(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Closed]:
    """Sessions of a few turns, whose streams end. Positions are stored for every third message of one."""
    monkeypatch.setattr(message_numbers, "STEP_MESSAGES", 3)
    monkeypatch.setattr(message_numbers, "MAX_COUNTED_SESSIONS", 1)
    url, names = f"sqlite:///{tmp_path_factory.mktemp('dense') / 'log.db'}", list[str]()

    async def run() -> None:
        names.extend(await fill(url))

    play(run)
    app = create_app(make_app(), url, auth=BuiltinAuth(b"k" * 32, {hash_token("t"): LOCAL}))
    with TestClient(app, base_url="http://localhost", headers=HEADERS) as client:
        yield client, names


def read(client: TestClient, url: str, session: str, last_id: str = "") -> list[tuple[str | None, Any]]:
    headers = {"last-event-id": last_id} if last_id else {}
    response = client.get(f"{url}&session={session}", headers=headers)
    if response.status_code == 204:
        return []
    assert response.status_code == 200, response.text
    decoder, messages = Decoder(), list[tuple[str | None, Any]]()
    for line in response.content.split(b"\n\n"):
        messages += [(decoder.last_id, json.loads(one.data)) for one in decoder.feed(line + b"\n\n")]
    return messages


def test_ids_are_dense_from_0_and_the_rest_is_the_same(closed: Closed) -> None:
    client, [session, _] = closed
    plain = [body for _, body in read(client, PLAIN, session)]
    dense = read(client, DENSE, session)
    assert [body["id"] for _, body in dense] == list(range(len(plain)))
    assert [cursor for cursor, _ in dense] == [str(number) for number in range(len(plain))]
    assert [{**body, "id": None} for _, body in dense] == [{**body, "id": None} for body in plain]
    assert [body["id"] for body in plain] != list(range(len(plain))), "the control: seqs have gaps"


def test_a_reader_continues_after_any_number_by_query_and_by_header(closed: Closed) -> None:
    client, sessions = closed
    for session in sessions:
        whole = read(client, DENSE, session)
        for number in [*reversed(range(len(whole))), 3, 4, 5]:
            assert read(client, f"{DENSE}&after={number}", session) == whole[number + 1 :]
            assert read(client, f"{DENSE}&after=0", session, str(number)) == whole[number + 1 :]


def test_a_number_that_there_is_not_begins_again_with_a_reset(closed: Closed) -> None:
    client, [session, _] = closed
    whole = read(client, DENSE, session)
    (_, reset), *rest = read(client, f"{DENSE}&after={len(whole)}", session)
    assert (reset["type"], reset["reason"], rest) == ("reset", "ahead", whole)
    (_, reset), *rest = read(client, f"{DENSE}&after=1:zzzz", session)
    assert (reset["type"], reset["reason"], rest) == ("reset", "epoch", whole)


@for_each_row(
    "query",
    [
        "dialect=office&ids=sparse",
        "dialect=blocks&ids=dense",
        "ids=dense",
        "dialect=office&ids=dense&types=ui",
        "dialect=office&ids=dense&depth=0",
        "dialect=office&ids=dense&turn=tr_1",
    ],
)
def test_what_cannot_be_numbered_is_refused(closed: Closed, query: str) -> None:
    client, [session, _] = closed
    response = client.get(f"/api/events?session={session}&{query}")
    assert response.status_code == 400
    assert response.json()["error"].endswith("(at ids)")


def test_several_sessions_cannot_be_numbered(closed: Closed) -> None:
    client, names = closed
    assert client.get(f"{DENSE}&session={','.join(names)}").status_code == 400
