"""A closed session over HTTP: read whole, in every dialect and with every filter; then there is no more."""

import json
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

import turnlog
from tests.unit.app.desk import ADA, desk, make_app, play
from turnlog.app import LOCAL
from turnlog.log import open_log
from turnlog.server import create_app
from turnlog.server.auth.credentials import BuiltinAuth, hash_token
from turnlog.testing.closing import close_event
from turnlog.wire.sse import Decoder

TURNS = 5
HEADERS = {"authorization": "Bearer t"}


async def fill(url: str) -> list[str]:
    """Two closed sessions with some turns; the second begins with much that other dialects do not tell."""
    log, names = await open_log(url), []
    async with desk(log=log) as at:
        for titles in (0, 500):
            seat = await at.sessions.create(ADA)
            quiet = [
                turnlog.event("session.title", {"title": "x" * 100}, origin="app") for _ in range(titles)
            ]
            await log.append(seat.session_id, quiet)
            for number in range(TURNS):
                turn = await at.say(seat, f"hello {number}")
                await at.until(seat, "agent.end", trace_id=turn)
            names.append(seat.session_id)
    for name in names:
        await log.close_session(name, [close_event()])
    await log.close()
    return names


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TestClient, list[str]]]:
    url, names = f"sqlite:///{tmp_path_factory.mktemp('closed') / 'log.db'}", list[str]()

    async def run() -> None:
        names.extend(await fill(url))

    play(run)
    app = create_app(make_app(), url, auth=BuiltinAuth(b"k" * 32, {hash_token("t"): LOCAL}))
    with TestClient(app, base_url="http://localhost", headers=HEADERS) as client:
        yield client, names


def read(client: TestClient, path: str, last_id: str = "") -> tuple[int, list[str], str]:
    """Status, data and the cursor at the end of a stream that ends."""
    response = client.get(path, headers={"last-event-id": last_id} if last_id else {})
    decoder = Decoder()
    data = [message.data for message in decoder.feed(response.content) if message.event == "message"]
    return response.status_code, data, decoder.last_id or last_id


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ("", None),
        ("&types=ui", TURNS),
        ("&types=tool", 0),
        ("&types=session.close", 1),
        ("&types=ui.message&depth=0", TURNS),
        ("&dialect=blocks", None),
        ("&dialect=blocks-raw", None),
        ("&dialect=blocks-xml", None),
        ("&dialect=office", None),
        ("&dialect=agentic", None),
        ("&dialect=ag-ui", None),
        ("&dialect=ai-sdk", None),
        ("&dialect=blocks&types=ui", 0),
    ],
)
def test_it_is_read_whole_and_then_there_is_nothing(
    closed: tuple[TestClient, list[str]], query: str, count: int | None
) -> None:
    client, [name, _] = closed
    status, data, last_id = read(client, f"/api/events?session={name}{query}")
    assert status == 200
    assert len(data) == count if count is not None else len(data) >= 3 * TURNS
    assert read(client, f"/api/events?session={name}{query}", last_id) == (204, [], last_id)


@pytest.mark.parametrize("query", ["", "&types=ui", "&dialect=blocks", "&dialect=office"])
def test_two_of_them_on_one_stream_too(closed: tuple[TestClient, list[str]], query: str) -> None:
    client, names = closed
    path = f"/api/events?session={','.join(names)}{query}"
    status, data, last_id = read(client, path)
    assert (status, len(last_id.split(","))) == (200, 2)
    alone = [text for name in names for text in read(client, f"/api/events?session={name}{query}")[1]]
    assert sorted(data) == sorted(alone)
    assert read(client, path, last_id) == (204, [], last_id)
    first = last_id.split(",")[0]
    rest = read(client, path, f"{first},-1")
    assert (rest[0], rest[2]) == (200, last_id)
    assert sorted(rest[1]) == sorted(read(client, f"/api/events?session={names[1]}{query}")[1])


@pytest.mark.parametrize("query", ["&dialect=blocks", "&dialect=blocks-raw", "&types=agent,ui"])
def test_what_has_no_frame_hides_nothing_that_comes_after(
    closed: tuple[TestClient, list[str]], query: str
) -> None:
    client, names = closed
    first, second = (without_deltas(read(client, f"/api/events?session={name}{query}")[1]) for name in names)
    assert first == second
    assert len(first) > TURNS


def without_deltas(data: list[str]) -> list[str]:
    """The types of messages but for pieces of texts: their number depends on when they were written."""
    types = []
    for text in data:
        message = json.loads(text) if text.startswith("{") else {"type": text.partition(" ")[0]}
        piece = message["type"] == "content_block_delta" or not message.get("final", True)
        types += [] if piece else [message["type"]]
    return types


def test_the_id_of_an_office_event_rises_and_is_a_cursor(closed: tuple[TestClient, list[str]]) -> None:
    client, [name, _] = closed
    path = f"/api/events?session={name}&dialect=office"
    events = [json.loads(text) for text in read(client, path)[1]]
    ids = [event["id"] for event in events]
    assert ids == sorted(set(ids))
    said = [event["text"] for event in events if event["type"] == "user_message"]
    assert said == [f"hello {number}" for number in range(TURNS)]
    for place, after in enumerate(ids[:-1]):
        assert [json.loads(text) for text in read(client, f"{path}&after={after}")[1]] == events[place + 1 :]


def test_its_last_event_says_who_closed_it(closed: tuple[TestClient, list[str]]) -> None:
    client, [name, _] = closed
    last = json.loads(read(client, f"/api/events?session={name}")[1][-1])
    assert (last["type"], last["payload"]) == ("session.close", {"by": "ada", "reason": "done"})
    lines = client.get(f"/api/log?session={name}").text.splitlines()
    assert json.loads(lines[-1]) == last


def test_it_can_be_looked_at_and_takes_nothing(closed: tuple[TestClient, list[str]]) -> None:
    client, [name, _] = closed
    for path in (f"/api/state?session={name}", f"/api/log?session={name}"):
        assert client.get(path).status_code == 200
    refused = client.post("/api/send", json={"session": name, "message": "hello"})
    assert (refused.status_code, refused.json()) == (409, {"error": f"{name} is closed"})
    listed = client.get("/api/sessions").json()["sessions"]
    assert {one["state"] for one in listed} == {"closed"}
