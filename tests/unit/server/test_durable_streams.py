"""`/v1/stream/...`: whose streams they are, limits, sessions as streams, and what survives."""

import asyncio
import json
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from tests.support.tables import for_each_row
from turnlog import App
from turnlog.agents import Agent
from turnlog.agents.models.scripted import Scripted
from turnlog.app import LOCAL, Principal
from turnlog.app.membership import GUEST_PREFIX
from turnlog.events import Event
from turnlog.log import AppendResult, Log, MemoryStore, Store
from turnlog.log.jobs import QuarantineDamage
from turnlog.log.records import Damage
from turnlog.server import create_app
from turnlog.server.auth.credentials import BuiltinAuth, hash_token
from turnlog.server.limits.policy import Limits
from turnlog.server.protocols.durable_streams import DurableStreams
from turnlog.server.protocols.durable_streams.directory import StreamConflict, StreamDirectory, StreamKey
from turnlog.server.protocols.durable_streams.open_stream import (
    MIN_BATCH_EVENTS,
    SNAPSHOT_EVENTS,
    SNAPSHOT_NAME,
    SNAPSHOT_VERSION,
)
from turnlog.server.protocols.durable_streams.reading import make_readable_stream, read_contents
from turnlog.server.protocols.durable_streams.routes import MAX_APPEND_BYTES, make_producer_event_id
from turnlog.server.streaming.query import CursorGone
from turnlog.wire.durable_streams.events import Producer, StreamAppend
from turnlog.wire.durable_streams.framing import StreamFormat, join_contents
from turnlog.wire.durable_streams.requests import parse_create
from turnlog.wire.durable_streams.state import AppendRequestBody, Outcome, StreamState, plan_stream_append
from turnlog.wire.sse import Decoder

APP = App("t", Agent("Echo", "Repeat.", Scripted(lambda _: [])))
PRINCIPALS = {
    "ada": Principal("ada"),
    "bob": Principal("bob"),
    "local": LOCAL,
    "guest": Principal(GUEST_PREFIX + "1"),
}
JSON = {"content-type": "application/json"}
S = "/v1/stream/"


def token_of(name: str) -> str:
    return name * 16


def as_(name: str, headers: dict[str, str] | None = None) -> dict[str, str]:
    return {"authorization": f"Bearer {token_of(name)}"} | (headers or {})


@contextmanager
def serving(log: str | Store = "memory:", limits: Limits = Limits()) -> Iterator[TestClient]:  # noqa: B008
    auth = BuiltinAuth(b"k" * 32, {hash_token(token_of(name)): who for name, who in PRINCIPALS.items()})
    app = create_app(APP, log, auth=auth, limits=limits, protocols=[DurableStreams(long_poll_s=0.01)])
    with TestClient(app, base_url="http://localhost") as client:
        yield client


def create(client: TestClient, path: str, body: str = "", who: str = "ada", **headers: str) -> Any:
    return client.put(S + path, content=body, headers=as_(who, JSON | headers))


def append(client: TestClient, path: str, body: str, who: str = "ada", **headers: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return client.post(S + path, content=body, headers=as_(who, JSON | named))


def read(client: TestClient, path: str, who: str = "ada", query: str = "") -> Any:
    return client.get(S + path + query, headers=as_(who))


# Whose streams they are


def test_a_stranger_gets_404_for_everything() -> None:
    with serving() as client:
        assert create(client, "chat", "[1]").status_code == 201
        for method in ("GET", "HEAD", "DELETE"):
            assert client.request(method, S + "chat", headers=as_("bob")).status_code == 404
        assert append(client, "chat", "2", who="bob").status_code == 404
        fork = create(client, "fork", who="bob", **{"stream-forked-from": S + "chat"})
        assert fork.status_code == 404
        assert client.get(S + "chat").status_code == 401
        assert read(client, "chat").json() == [1]


def test_one_path_of_two_principals_is_two_streams() -> None:
    with serving() as client:
        assert create(client, "chat", "[1]").status_code == 201
        assert create(client, "chat", "[2]", who="bob").status_code == 201
        assert (read(client, "chat").json(), read(client, "chat", "bob").json()) == ([1], [2])


def test_guests_create_no_streams() -> None:
    with serving() as client:
        assert create(client, "chat", who="guest").status_code == 403


def test_streams_are_in_no_list_of_sessions() -> None:
    with serving() as client:
        session = client.post("/api/sessions", json={}, headers=as_("local")).json()["session_id"]
        for number in range(5):
            create(client, f"chat/{number}", who="local")
        listed = client.get("/api/sessions?limit=2", headers=as_("local")).json()["sessions"]
        assert [one["session_id"] for one in listed] == [session]


# Sessions as streams


def test_members_read_a_session_as_a_stream_of_its_events() -> None:
    with serving() as client:
        session = client.post("/api/sessions", json={}, headers=as_("ada")).json()["session_id"]
        page = read(client, session)
        events = page.json()
        assert page.headers["stream-up-to-date"] == "true"
        assert events[0]["type"] == "session.member"
        assert [event["seq"] for event in events] == list(range(len(events)))

        offset = page.headers["stream-next-offset"]
        client.post("/api/send", json={"session": session, "message": "Hello"}, headers=as_("ada"))
        rest = read(client, session, query=f"?offset={offset}").json()
        assert rest[0]["seq"] == len(events)
        assert "Hello" in json.dumps(rest)
        assert client.head(S + session, headers=as_("ada")).headers["content-type"] == "application/json"


def test_a_session_is_not_written_as_a_stream_and_not_shown_to_strangers() -> None:
    with serving() as client:
        session = client.post("/api/sessions", json={}, headers=as_("ada")).json()["session_id"]
        assert read(client, session, "bob").status_code == 404
        for response in (create(client, session), append(client, session, "1")):
            assert response.status_code == 400
            assert "only read" in response.json()["error"]
        assert client.delete(S + session, headers=as_("ada")).status_code == 400


# Limits


def test_a_body_over_the_limit_is_refused() -> None:
    with serving() as client:
        create(client, "big")
        largest = json.dumps("x" * (MAX_APPEND_BYTES - 2))
        assert append(client, "big", largest).status_code == 204
        refused = append(client, "big", largest + " ")
        assert refused.status_code == 413
        assert refused.json()["error"].startswith(f"expected at most {MAX_APPEND_BYTES} bytes")
        assert len(read(client, "big").json()) == 1


def test_a_principal_creates_a_limited_number_of_streams() -> None:
    with serving(limits=Limits(sessions_per_hour=2)) as client:
        assert create(client, "one").status_code == 201
        assert create(client, "one").status_code == 200  # an existing one costs nothing
        assert client.delete(S + "one", headers=as_("ada")).status_code == 204
        assert create(client, "one").status_code == 201
        refused = create(client, "two")
        assert refused.status_code == 429
        assert "too many new sessions" in refused.json()["error"]
        assert create(client, "two", who="bob").status_code == 201
    with serving() as client:
        assert [create(client, name).status_code for name in ("one", "two", "three")] == [201] * 3


def test_paths_and_json_have_limits() -> None:
    with serving() as client:
        assert create(client, "x" * 1024).status_code == 201
        assert create(client, "x" * 1025).status_code == 404
        create(client, "deep")
        refused = append(client, "deep", "[" * 40 + "]" * 40)
        assert refused.status_code == 400
        assert "levels" in refused.json()["error"]


def test_a_form_of_another_site_appends_nothing() -> None:
    with serving() as client:
        create(client, "mine", who="local")
        code = client.app.state.auth.make_sign_in_code(time.time(), "")  # type: ignore[attr-defined]
        client.get(f"/sign-in?code={code}", follow_redirects=False)
        assert client.cookies
        forged = client.post(S + "mine", content="1", headers={"content-type": "text/plain"})
        assert forged.status_code == 415
        # The controls: a page of this server names its origin, and a program has a token.
        origin = {"origin": "http://localhost"}
        assert client.post(S + "mine", content="1", headers=JSON | origin).status_code == 204
        plain = client.post(S + "mine", content="1", headers={"content-type": "text/plain"} | origin)
        assert plain.status_code == 409


def test_a_body_with_a_content_encoding_is_refused() -> None:
    with serving() as client:
        create(client, "packed")
        assert append(client, "packed", "1", content_encoding="gzip").status_code == 415
        assert append(client, "packed", "1", content_encoding="identity").status_code == 204


# What survives


def test_a_producer_that_tries_again_is_stored_once() -> None:
    producer = {"producer_id": "p", "producer_epoch": "0", "producer_seq": "0"}
    with serving() as client:
        create(client, "once")
        statuses = [append(client, "once", "1", **producer).status_code for _ in range(3)]
        assert statuses == [200, 204, 204]
        assert read(client, "once").json() == [1]
        # The control: without a producer each request counts.
        assert [append(client, "once", "2").status_code for _ in range(2)] == [204, 204]
        assert read(client, "once").json() == [1, 2, 2]


def test_a_restarted_server_knows_streams_producers_and_offsets(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/log.db"
    producer = {"producer_id": "p", "producer_epoch": "3", "producer_seq": "0"}
    with serving(url) as client:
        create(client, "kept", "[0]", **{"stream-ttl": "3600"})
        offset = append(client, "kept", "1", **producer).headers["stream-next-offset"]
        append(client, "kept", "2")
    with serving(url) as client:
        assert append(client, "kept", "1", **producer).status_code == 204
        assert append(client, "kept", "1", **producer | {"producer_epoch": "2"}).status_code == 403
        assert read(client, "kept", query=f"?offset={offset}").json() == [2]
        assert client.head(S + "kept", headers=as_("ada")).headers["stream-ttl"] == "3600"
        assert create(client, "kept", **{"stream-ttl": "3600"}).status_code == 200
        assert create(client, "kept").status_code == 409


def test_an_offset_of_a_deleted_stream_is_gone() -> None:
    with serving() as client:
        offset = create(client, "again", "[1]").headers["stream-next-offset"]
        client.delete(S + "again", headers=as_("ada"))
        assert read(client, "again").status_code == 404
        create(client, "again", "[2,3]")
        assert read(client, "again", query=f"?offset={offset}").status_code == 410
        assert read(client, "again").json() == [2, 3]


def test_an_offset_beyond_the_end_is_gone() -> None:
    with serving() as client:
        create(client, "short", "[1]")
        assert read(client, "short", query="?offset=9999999999999999_9999999999999999").status_code == 410


def test_events_that_the_store_has_evicted_are_gone_and_producers_stay() -> None:
    producer = {"producer_id": "p", "producer_epoch": "0", "producer_seq": "0"}
    with serving(MemoryStore(ring_events=20)) as client:
        offset = create(client, "ring", "[0]").headers["stream-next-offset"]
        append(client, "ring", "1", **producer)
        for number in range(2, 40):
            append(client, "ring", str(number), who="ada")
        assert read(client, "ring", query=f"?offset={offset}").status_code == 410
        assert append(client, "ring", "1", **producer).status_code == 204
        kept = read(client, "ring").json()
        assert 20 <= len(kept) < 40
        assert kept == list(range(40))[-len(kept) :]


def test_plain_event_sources_resume_by_their_last_id() -> None:
    with serving() as client:
        create(client, "sse", "[1]")
        append(client, "sse", "2")
        append(client, "sse", "3", stream_closed="true")
        query = "?offset=-1&live=sse"
        whole = Decoder().feed(read(client, "sse", query=query).content)
        assert [event.event for event in whole] == ["data", "control"]
        assert json.loads(whole[0].data) == [1, 2, 3]
        assert json.loads(whole[1].data)["streamClosed"] is True

        first = read(client, "sse", query="?offset=-1").headers["stream-next-offset"]
        assert whole[0].id == whole[1].id == first
        ended = client.get(S + "sse" + query, headers=as_("ada", {"last-event-id": first}))
        assert [event.event for event in Decoder().feed(ended.content)] == ["control"]


def test_a_long_poll_without_news_answers_204() -> None:
    with serving() as client:
        create(client, "poll", "[1]")
        response = read(client, "poll", query="?offset=now&live=long-poll")
        assert response.status_code == 204
        assert response.headers["stream-up-to-date"] == "true"


def test_responses_are_private_and_history_may_be_cached() -> None:
    with serving() as client:
        messages = [letter * 600_000 for letter in "xyz"]
        create(client, "cached", json.dumps(messages[0]))
        for message in messages[1:]:
            append(client, "cached", json.dumps(message))
        first = read(client, "cached")
        assert first.headers["cache-control"] == "private, max-age=60, stale-while-revalidate=300"
        assert "stream-up-to-date" not in first.headers
        last = read(client, "cached", query=f"?offset={first.headers['stream-next-offset']}")
        assert last.headers["cache-control"] == "private, no-cache"
        assert last.headers["stream-up-to-date"] == "true"
        assert [*first.json(), *last.json()] == messages


# Several servers on one store


def request_of(sender: str, seq: int) -> tuple[AppendRequestBody, str]:
    producer = Producer(id=sender, epoch=0, seq=seq)
    content = StreamAppend(messages=((sender, seq),), producer=producer)
    return AppendRequestBody(content, "application/json", producer, False), make_producer_event_id(producer)


async def append_from(directory: StreamDirectory, key: StreamKey, sender: str, count: int) -> list[Outcome]:
    outcomes = []
    for seq in range(count):
        body, event_id = request_of(sender, seq)
        stream = await directory.get(key)
        decision = await stream.run_request(partial(plan_stream_append, body), event_id)
        outcomes.append(decision.outcome)
    return outcomes


async def append_twice_everywhere() -> tuple[list[list[Outcome]], list[Any]]:
    """Two logs on one store get the same requests of two producers at the same time."""
    store = MemoryStore()
    logs = [Log(store), Log(store)]
    key = StreamKey(Principal("ada"), "shared")
    directories = [StreamDirectory(log) for log in logs]
    await directories[0].create(key, parse_create(JSON), None, lambda: None)
    outcomes = await asyncio.gather(
        *(append_from(directory, key, sender, 30) for directory in directories for sender in "pq")
    )
    stream = await directories[0].get(key)
    page = await read_contents(logs[0], make_readable_stream(stream), 0, MAX_APPEND_BYTES)
    for log in logs:
        await log.close()
    return list(outcomes), json.loads(join_contents(page.contents, StreamFormat.JSON))


def test_two_servers_store_each_request_of_a_producer_once() -> None:
    outcomes, appended = asyncio.run(append_twice_everywhere())
    for sender in "pq":
        assert [seq for name, seq in appended if name == sender] == list(range(30))
    accepted = [outcome for row in outcomes for outcome in row if outcome is Outcome.ACCEPTED]
    assert len(accepted) == 60
    assert {outcome for row in outcomes for outcome in row} <= {Outcome.ACCEPTED, Outcome.DUPLICATE}


class TrustingLog(Log):
    """A log that appends wherever the session is by now."""

    async def append(self, session_id: str, events: Sequence[Event], **conditions: Any) -> AppendResult:
        return await super().append(session_id, events)


async def append_one_seq_everywhere(log_class: type[Log]) -> list[Outcome]:
    """Two logs on one store get a request with the same Stream-Seq, each before it hears of the other."""
    store = MemoryStore()
    logs = [log_class(store), log_class(store)]
    key = StreamKey(Principal("ada"), "ordered")
    directories = [StreamDirectory(log) for log in logs]
    await directories[0].create(key, parse_create(JSON), None, lambda: None)
    streams = [await directory.get(key) for directory in directories]
    body = AppendRequestBody(StreamAppend(messages=(1,), writer_seq="a"), "application/json", None, False)
    decisions = [await stream.run_request(partial(plan_stream_append, body)) for stream in streams]
    for log in logs:
        await log.close()
    return [decision.outcome for decision in decisions]


def test_two_servers_accept_a_stream_seq_once() -> None:
    outcomes = asyncio.run(append_one_seq_everywhere(Log))
    assert outcomes == [Outcome.ACCEPTED, Outcome.WRITER_SEQ_TOO_LOW]


def test_control_without_the_condition_both_accept_it() -> None:
    assert asyncio.run(append_one_seq_everywhere(TrustingLog)) == [Outcome.ACCEPTED, Outcome.ACCEPTED]


def test_a_new_epoch_of_the_session_ends_old_offsets() -> None:
    with serving() as client:
        offset = create(client, "damaged", "[1]").headers["stream-next-offset"]
        assert read(client, "damaged", query=f"?offset={offset}").status_code == 200
        log = client.app.state.session_access.sessions.log  # type: ignore[attr-defined]
        session_id = read(client, "damaged").headers["etag"].strip('"').partition(":")[0]
        damage = Damage("sess_" + session_id, 5, 5, "a test")
        assert client.portal is not None
        client.portal.call(log.run_job, QuarantineDamage(damage))
        assert read(client, "damaged", query=f"?offset={offset}").status_code == 410
        assert read(client, "damaged").json() == [1]


@for_each_row("path", ["a/b/c", "white space", "ünïcode", "sess"])
def test_any_path_names_a_stream(path: str) -> None:
    with serving() as client:
        created = create(client, path, "[1]")
        assert created.status_code == 201
        assert client.get(created.headers["location"], headers=as_("ada")).json() == [1]


# Forks, snapshots


def fork(client: TestClient, path: str, source: str, body: str = "", **headers: str) -> Any:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    forked = {"stream-forked-from": S + source} | named
    return client.put(S + path, content=body, headers=as_("ada", forked))


def test_a_fork_begins_with_its_source_and_keeps_it_from_being_forgotten() -> None:
    with serving() as client:
        offset = create(client, "a", "[1,2]").headers["stream-next-offset"]
        append(client, "a", "[3,4]")
        place = {"stream-fork-offset": offset, "stream-fork-sub-offset": "1"}
        assert fork(client, "b", "a", "[5]", **place).status_code == 201
        assert read(client, "b").json() == [1, 2, 3, 5]
        assert fork(client, "c", "b").status_code == 201
        append(client, "c", "6")
        assert read(client, "c").json() == [1, 2, 3, 5, 6]
        assert read(client, "c", query=f"?offset={offset}").json() == [3, 5, 6]

        client.delete(S + "a", headers=as_("ada"))
        assert read(client, "a").status_code == 410
        assert create(client, "a").status_code == 409
        assert fork(client, "d", "a").status_code == 409
        assert fork(client, "d", "a", "[1]").status_code == 409
        assert read(client, "b").json() == [1, 2, 3, 5]
        client.delete(S + "b", headers=as_("ada"))
        assert read(client, "a").status_code == 410  # a fork of its fork is left
        client.delete(S + "c", headers=as_("ada"))
        assert (read(client, "a").status_code, read(client, "b").status_code) == (404, 404)
        assert create(client, "a", "[7]").status_code == 201


@for_each_row(
    ("headers", "status"),
    [
        ({"stream-fork-offset": "9999999999999999_0000000000000001"}, 400),
        ({"stream-fork-offset": "0000000000000002_0000000000000001"}, 400),  # of another history
        ({"stream-fork-sub-offset": "1"}, 400),  # nothing follows the end
        ({"stream-fork-offset": "-1", "stream-fork-sub-offset": "3"}, 400),
        ({"content-type": "text/plain"}, 409),
        ({"stream-forked-from": S + "nothing"}, 404),
        ({"stream-forked-from": "/elsewhere"}, 400),
    ],
)
def test_wrong_forks_are_refused(headers: dict[str, str], status: int) -> None:
    with serving() as client:
        create(client, "source", "[1,2]")
        assert fork(client, "fork", "source", **headers).status_code == status
        assert read(client, "fork").status_code == 404


# Deleting


def stored_frames(folder: Path) -> list[bytes]:
    with closing(sqlite3.connect(folder / "log.db")) as connection:
        return [frame for (frame,) in connection.execute("select frame from event order by seq")]


def sqlite_url(folder: Path) -> str:
    return f"sqlite:///{folder}/log.db"


def test_a_delete_removes_the_data_from_the_disk(tmp_path: Path) -> None:
    with serving(sqlite_url(tmp_path)) as client:
        create(client, "secret", '["one"]')
        append(client, "secret", '"two"')
        create(client, "other", '["three"]')
        assert any(b"two" in frame for frame in stored_frames(tmp_path))  # the control
        assert client.delete(S + "secret", headers=as_("ada")).status_code == 204
        assert [b"three" in frame for frame in stored_frames(tmp_path)].count(True) == 1
        assert not any(b"secret" in frame or b"two" in frame for frame in stored_frames(tmp_path))
        assert append(client, "secret", '"late"').status_code == 404
        assert client.delete(S + "secret", headers=as_("ada")).status_code == 404
        assert client.head(S + "secret", headers=as_("ada")).status_code == 404
        assert create(client, "secret", '["new"]').status_code == 201
        assert read(client, "secret").json() == ["new"]


def test_the_last_fork_takes_the_data_of_its_sources_with_it(tmp_path: Path) -> None:
    with serving(sqlite_url(tmp_path)) as client:
        create(client, "a", '["of a"]')
        fork(client, "b", "a", '["of b"]', **JSON)
        fork(client, "c", "b", '["of c"]', **JSON)
        for path in ("a", "b"):
            client.delete(S + path, headers=as_("ada"))
        assert read(client, "c").json() == ["of a", "of b", "of c"]
        client.delete(S + "c", headers=as_("ada"))
        assert stored_frames(tmp_path) == []


def test_an_expired_stream_is_erased_at_the_next_request(tmp_path: Path) -> None:
    with serving(sqlite_url(tmp_path)) as client:
        for path in ("read", "created"):
            assert create(client, path, "[1]", **{"stream-ttl": "0"}).status_code == 201
        assert len(stored_frames(tmp_path)) == 4
        assert read(client, "read").status_code == 404
        assert len(stored_frames(tmp_path)) == 2
        assert create(client, "created", "[2]").status_code == 201
        assert read(client, "created").json() == [2]
        assert len(stored_frames(tmp_path)) == 2


async def delete_beside_another_server() -> list[Outcome]:
    """Delete a stream that two directories have open. Return what the second one decides before and after."""
    log = Log(MemoryStore())
    key = StreamKey(Principal("ada"), "shared")
    first, second = StreamDirectory(log), StreamDirectory(log)
    await first.create(key, parse_create(JSON), None, lambda: None)
    stream = await second.get(key)
    before, event_id = request_of("p", 0)
    outcomes = [(await stream.run_request(partial(plan_stream_append, before), event_id)).outcome]
    await first.delete(key)
    body, event_id = request_of("p", 1)
    outcomes.append((await stream.run_request(partial(plan_stream_append, body), event_id)).outcome)
    await log.close()
    return outcomes


def test_another_server_notices_that_a_stream_was_erased() -> None:
    assert asyncio.run(delete_beside_another_server()) == [Outcome.ACCEPTED, Outcome.GONE]


class ErasingLog(Log):
    """A log in which another request erases a session just before the next one is created."""

    doomed = ""

    async def create(
        self,
        app: str,
        session_id: str | None = None,
        events: Sequence[Event] = (),
        *,
        wants_work: bool = False,
    ) -> str:
        if self.doomed:
            await self.erase(self.doomed)
        return await super().create(app, session_id, events, wants_work=wants_work)


async def fork_while_the_source_is_erased() -> tuple[str, bool]:
    log = ErasingLog(MemoryStore())
    directory = StreamDirectory(log)
    source = StreamKey(Principal("ada"), "source")
    stream, _ = await directory.create(source, parse_create(JSON), StreamAppend(messages=(1,)), lambda: None)
    log.doomed = stream.session_id
    forked = parse_create({**JSON, "stream-forked-from": "source"})
    try:
        await directory.create(StreamKey(Principal("ada"), "fork"), forked, None, lambda: None)
        error = ""
    except StreamConflict as refusal:
        error = str(refusal)
    records = await log.sessions()
    await log.close()
    return error, all(record.is_erased for record in records)


def test_a_fork_of_a_stream_that_is_erased_meanwhile_is_refused() -> None:
    assert asyncio.run(fork_while_the_source_is_erased()) == ("the source was deleted meanwhile", True)


async def read_fork_without_its_source() -> None:
    log = Log(MemoryStore())
    directory = StreamDirectory(log)
    source = StreamKey(Principal("ada"), "source")
    stream, _ = await directory.create(source, parse_create(JSON), StreamAppend(messages=(1,)), lambda: None)
    forked = parse_create({**JSON, "stream-forked-from": "source"})
    fork, _ = await directory.create(StreamKey(Principal("ada"), "fork"), forked, None, lambda: None)
    await log.erase(stream.session_id)
    try:
        with pytest.raises(CursorGone):
            await read_contents(log, make_readable_stream(fork), 0, 1000)
    finally:
        await log.close()


def test_a_fork_that_lost_its_source_says_so() -> None:
    asyncio.run(read_fork_without_its_source())


async def reopen_after(count: int) -> tuple[StreamState, StreamState, int]:
    """Append, and open the stream again. Return both states, and the seq of the snapshot."""
    log = Log(MemoryStore())
    key = StreamKey(Principal("ada"), "long")
    stream, _ = await StreamDirectory(log).create(key, parse_create(JSON), None, lambda: None)
    requests = [request_of("p", seq) for seq in range(count)]
    await asyncio.gather(
        *(stream.run_request(partial(plan_stream_append, body), event_id) for body, event_id in requests)
    )
    reopened = await StreamDirectory(log).get(key)
    stored = await log.snapshot(stream.session_id, SNAPSHOT_NAME, stream.state.last, SNAPSHOT_VERSION)
    await log.close()
    return stream.state, reopened.state, stored[0] if stored else -1


def test_a_long_stream_is_opened_from_a_snapshot() -> None:
    before, after, snapshot_seq = asyncio.run(reopen_after(SNAPSHOT_EVENTS + 500))
    assert before.last == SNAPSHOT_EVENTS + 500
    assert before.last - SNAPSHOT_EVENTS <= snapshot_seq <= before.last
    assert (after.last, after.tail) == (before.last, before.tail)
    assert after.producers["p"].seq == SNAPSHOT_EVENTS + 499
    _, _, without = asyncio.run(reopen_after(10))
    assert without == -1


async def count_commits(request_count: int, round_count: int) -> list[int]:
    """Return how many appends of the log store so many requests at the same time, round by round."""
    log = Log(MemoryStore())
    key = StreamKey(Principal("ada"), "busy")
    stream, _ = await StreamDirectory(log).create(key, parse_create(JSON), None, lambda: None)
    commits = []
    for number in range(round_count):
        before = (await log.info(stream.session_id)).revision
        bodies = [request_of(f"p{sender}", number)[0] for sender in range(request_count)]
        await asyncio.gather(*(stream.run_request(partial(plan_stream_append, body)) for body in bodies))
        commits.append((await log.info(stream.session_id)).revision - before)
    assert stream.state.tail > 0
    await log.close()
    return commits


def test_the_requests_of_many_writers_are_stored_in_two_halves() -> None:
    assert asyncio.run(count_commits(4 * MIN_BATCH_EVENTS, 3)) == [2, 2, 2]


def test_the_requests_of_few_writers_are_stored_at_once() -> None:
    assert asyncio.run(count_commits(MIN_BATCH_EVENTS, 3)) == [1, 1, 1]
