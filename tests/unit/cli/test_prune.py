"""`turnlog prune`: live events of finished spans go, everything else stays."""

import asyncio
import json

import pytest

from tests.unit.cli.harness import LIVE, NO_SESSION, NOW_MS, TURN, Place, error, no_log, said, turn
from turnlog.app import Principal
from turnlog.cli.log import parse_age_ms
from turnlog.ids import now_ms
from turnlog.log import Log
from turnlog.server.protocols.durable_streams.directory import StreamDirectory, StreamKey
from turnlog.wire.durable_streams.events import StreamAppend
from turnlog.wire.durable_streams.requests import parse_create


@pytest.fixture
def filled(place: Place) -> Place:
    """A turn in each of two sessions, and one session that has nothing live."""
    place.session("sess_1", turn())
    place.session("sess_2", turn())
    place.session("sess_3", said("one"))
    return place


def kept(place: Place, name: str) -> list[int]:
    lines = place.run("tail", name, "--json").stdout.split("\n")[:-1]
    return [json.loads(line)["seq"] for line in lines]


DURABLE = [seq for seq in range(len(TURN)) if seq not in LIVE]


def test_old_live_events_go_and_the_rest_stays(filled: Place) -> None:
    result = filled.run("prune", "--older-than", "1s")
    assert (result.exit_code, result.output) == (0, "6 live events removed from 2 sessions\n")
    assert kept(filled, "sess_1") == kept(filled, "sess_2") == DURABLE
    assert kept(filled, "sess_3") == [0]
    again = filled.run("prune", "--older-than", "1s")
    assert (again.exit_code, again.output) == (0, "0 live events removed\n")


def test_named_sessions_are_pruned_only(filled: Place) -> None:
    result = filled.run("prune", "--older-than", "1s", "sess_2", "sess_2")
    assert result.output == "3 live events removed from 1 session\n"
    assert (kept(filled, "sess_1"), kept(filled, "sess_2")) == (list(range(13)), DURABLE)


def test_young_events_stay(filled: Place) -> None:
    since = (now_ms() - NOW_MS) // 1000
    assert filled.run("prune", "--older-than", f"{since + 60}s").output == "0 live events removed\n"
    assert filled.run("prune", "--older-than", f"{since - 60}s").output.startswith("6 live events")


def test_an_open_block_stays(place: Place) -> None:
    place.session("sess_1", turn()[:5])
    assert place.run("prune", "--older-than", "0s").output == "0 live events removed\n"


def test_a_session_that_is_not_there_stops_everything(filled: Place) -> None:
    assert error(filled.run("prune", "--older-than", "1s", "sess_1", "sess_none")) == NO_SESSION
    assert kept(filled, "sess_1") == list(range(13))


def test_a_log_that_is_not_there_is_not_made(place: Place) -> None:
    assert error(place.run("prune", "--older-than", "1s")) == no_log(place)
    assert list(place.path.parent.iterdir()) == []


def test_a_log_that_somebody_writes_is_refused(filled: Place) -> None:
    async def refused(log: Log) -> str:
        return error(await asyncio.to_thread(filled.run, "prune", "--older-than", "1s"))

    assert filled.work(refused) == "log.db is being written by another process; stop that one first"
    assert kept(filled, "sess_1") == list(range(13))


@pytest.mark.parametrize(
    ("text", "wanted_s"),
    [("0s", 0), ("90s", 90), ("2m", 120), ("3h", 10_800), ("30d", 2_592_000), ("2w", 1_209_600)],
)
def test_an_age_is_a_number_and_a_unit(text: str, wanted_s: int) -> None:
    assert parse_age_ms(text) == wanted_s * 1000


def test_an_age_beyond_all_time_removes_nothing(filled: Place) -> None:
    assert filled.run("prune", "--older-than", "999999999999w").output == "0 live events removed\n"


@pytest.mark.parametrize(
    "text", ["", "30", "d", "-1d", "1.5d", "30 d", "30D", "1y", "30d\n", "٣d", "9" * 5000 + "d"]
)
def test_anything_else_is_refused(place: Place, text: str) -> None:
    result = place.run("prune", "--older-than", text)
    assert result.exit_code == 2
    assert "expected a number and one of s, m, h, d, w, such as 30d" in result.stderr
    assert list(place.path.parent.iterdir()) == []


def test_an_age_is_needed(place: Place) -> None:
    result = place.run("prune")
    assert result.exit_code == 2
    assert "Missing option '--older-than'" in result.stderr


async def create_streams(log: Log) -> None:
    """Create a stream that lives, a fork of it that has expired, and another one that has expired."""
    directory = StreamDirectory(log)
    principal = Principal("ada")
    headers = {"content-type": "application/json", "stream-expires-at": "2001-01-01T00:00:00Z"}
    source = parse_create({**headers, "stream-expires-at": "2999-01-01T00:00:00Z"})
    first = StreamAppend(messages=("text",))
    await directory.create(StreamKey(principal, "living"), source, first, lambda: None)
    fork = parse_create({**headers, "stream-forked-from": "living"})
    await directory.create(StreamKey(principal, "fork"), fork, None, lambda: None)
    await directory.create(StreamKey(principal, "expired"), parse_create(headers), first, lambda: None)


def test_streams_that_have_expired_are_erased(place: Place) -> None:
    place.work(create_streams)
    result = place.run("prune", "--older-than", "1s")
    assert result.output == "0 live events removed, 2 streams removed\n"
    assert place.run("prune", "--older-than", "1s").output == "0 live events removed\n"
    assert place.run("verify").exit_code == 0
    exported = place.run("export")
    assert exported.stdout.count("stream.append") == 1
