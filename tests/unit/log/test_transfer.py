"""Sessions as lines of JSON: what comes out goes in again, byte for byte, once."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import TypeVar

import pytest

from tests.support.tables import for_each_row
from tests.support.transact import transact
from tests.unit.cli.harness import LIVE, NOW_MS, event, said, turn
from turnlog.errors import Conflict, InvalidEvent, NotFound, SessionClosed, TurnlogError
from turnlog.events import CATALOG, Event
from turnlog.log import Log, MemoryStore, SqliteStore, Store
from turnlog.log.jobs import ImportCounts
from turnlog.log.transfer import (
    MAX_BATCH_EVENTS,
    MAX_TIMESTAMP_MS,
    decode_export_line,
    export_session,
    import_lines,
)
from turnlog.testing.closing import close_event

T = TypeVar("T")
Open = Callable[[], Store]

SESSION = b'{"type":"session","session_id":"sess_1","app":"tour","closed":false,"created_ms":1767875696789}'


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Open:
    """A way to get new stores of a kind."""
    if request.param == "memory":
        return MemoryStore
    numbers = iter(range(100))
    return lambda: SqliteStore(tmp_path / f"{next(numbers)}.db")


def on(store: Store, work: Callable[[Log], Awaitable[T]]) -> T:
    """Do something with a log on this store, and close it."""

    async def opened() -> T:
        log = Log(store, clock=lambda: NOW_MS)
        try:
            return await work(log)
        finally:
            await log.close()

    return asyncio.run(opened())


async def fill(log: Log, events: list[Event], name: str = "sess_1") -> None:
    await log.create("tour", name)
    await log.append(name, events)


async def exported(log: Log, name: str = "sess_1") -> list[bytes]:
    return [line async for line in export_session(log, name)]


async def imported(log: Log, lines: Iterable[bytes]) -> list[ImportCounts]:
    return [batch async for batch in import_lines(log, lines)]


async def names(log: Log) -> list[str]:
    return [head.session_id for head in await log.sessions()]


def lines_of(events: list[Event], *, closed: bool = False, name: str = "sess_1") -> list[bytes]:
    """The export of a session of these events."""

    async def make(log: Log) -> list[bytes]:
        await fill(log, events, name)
        if closed:
            await log.close_session(name)
        return await exported(log, name)

    return on(MemoryStore(), make)


# out


def test_an_export_is_the_session_and_its_envelopes_as_stored(store: Open) -> None:
    async def both(log: Log) -> tuple[list[bytes], list[bytes]]:
        await fill(log, turn())
        return await exported(log), [row.frame for row in await log.read("sess_1")]

    lines, frames = on(store(), both)
    assert lines[0] == SESSION
    assert [b"data: " + line + b"\n\n" for line in lines[1:]] == frames


def test_an_export_of_many_pages_is_whole() -> None:
    lines = lines_of(said(*["x" * 50_000] * 20))
    assert [json.loads(line)["seq"] for line in lines[1:]] == list(range(20))


def test_a_session_that_is_not_there_is_not_found(store: Open) -> None:
    with pytest.raises(NotFound, match="no session sess_none"):
        on(store(), lambda log: exported(log, "sess_none"))


def test_a_ring_is_exported_from_where_it_begins_and_restored(store: Open) -> None:
    async def ring(log: Log) -> list[bytes]:
        await fill(log, [event(number, "assistant.message", {"text": "x"}) for number in range(5)])
        return await exported(log)

    lines = on(MemoryStore(ring_events=2), ring)
    assert [json.loads(line).get("seq") for line in lines] == [None, 3, 4]

    async def work(log: Log) -> list[bytes]:
        await imported(log, lines)
        return await exported(log)

    assert on(store(), work) == lines


def test_a_ring_that_moves_on_meanwhile_is_not_exported_with_a_gap() -> None:
    def large(*numbers: int) -> list[Event]:
        return [event(number, "assistant.message", {"text": "x" * 300_000}) for number in numbers]

    async def overtaken(log: Log) -> None:
        await fill(log, large(0, 1, 2, 3))
        lines = export_session(log, "sess_1")
        assert [json.loads(await anext(lines)).get("seq") for _ in range(2)] == [None, 0]
        await log.append("sess_1", large(4, 5, 6))
        assert json.loads(await anext(lines))["seq"] == 1
        with pytest.raises(NotFound, match="the events after seq 1 are no longer stored"):
            await anext(lines)

    on(MemoryStore(ring_events=4), overtaken)


# in


def test_what_comes_out_goes_in_again_once(store: Open) -> None:
    lines = lines_of(turn())

    async def work(log: Log) -> tuple[list[ImportCounts], list[bytes], list[ImportCounts], list[bytes]]:
        return (
            await imported(log, lines),
            await exported(log),
            await imported(log, lines),
            await exported(log),
        )

    first, there, second, still_there = on(store(), work)
    assert (first, second) == ([ImportCounts(13, 0)], [ImportCounts(0, 13)])
    assert there == still_there == lines


def test_an_imported_log_is_whole(tmp_path: Path) -> None:
    lines = lines_of(turn())

    async def work(log: Log) -> list[object]:
        await imported(log, lines)
        return list(await log.verify())

    assert on(SqliteStore(tmp_path / "log.db"), work) == []


def test_an_imported_session_has_a_new_epoch(store: Open) -> None:
    lines = lines_of(said("one"))

    async def epoch(log: Log) -> str:
        await imported(log, lines)
        return (await log.info("sess_1")).epoch

    assert on(store(), epoch) != on(store(), epoch)


def test_imported_spans_are_known(store: Open) -> None:
    part, whole = lines_of(turn()[:12]), lines_of(turn())

    async def work(log: Log) -> tuple[list[str], list[int], list[str]]:
        await imported(log, part)
        open_agents = await log.sessions_with_open_agents()
        replayed = [row.seq for row in await log.read("sess_1", replay_from=-1)]
        await imported(log, whole)
        return open_agents, replayed, await log.sessions_with_open_agents()

    open_agents, replayed, still_open = on(store(), work)
    assert (open_agents, still_open) == (["sess_1"], [])
    assert replayed == [seq for seq in range(12) if seq not in LIVE]


def test_an_imported_session_goes_on(store: Open) -> None:
    lines = lines_of(said("one", "two"))

    async def work(log: Log) -> list[int]:
        await imported(log, lines)
        return (await log.append("sess_1", said("three", first=2))).seqs

    assert on(store(), work) == [2]


def test_an_import_adds_what_is_new(store: Open) -> None:
    lines = lines_of(turn())

    async def work(log: Log) -> list[ImportCounts]:
        return await imported(log, lines[:5]) + await imported(log, lines)

    assert on(store(), work) == [ImportCounts(4, 0), ImportCounts(9, 4)]


def test_a_pruned_session_is_restored_with_its_gaps(store: Open) -> None:
    async def pruned(log: Log) -> list[bytes]:
        await fill(log, turn())
        assert await log.prune("sess_1", NOW_MS + 1) == len(LIVE)
        return await exported(log)

    lines = on(store(), pruned)

    async def work(log: Log) -> tuple[list[bytes], list[object]]:
        await imported(log, lines)
        return await exported(log), list(await log.verify())

    assert on(store(), work) == (lines, [])


def test_a_type_that_nobody_here_knows_is_kept(store: Open) -> None:
    line = lines_of(said("one"))[1].replace(b"ui.message", b"tour.note_trip")

    async def work(log: Log) -> list[bytes]:
        await imported(log, [SESSION, line])
        return await exported(log)

    assert on(store(), work) == [SESSION, line]


def test_blank_lines_and_line_ends_do_not_matter(store: Open) -> None:
    lines = lines_of(said("one"))

    async def work(log: Log) -> list[bytes]:
        await imported(log, [b"\n", lines[0] + b"\r\n", b"  \n", lines[1] + b"\n", b""])
        return await exported(log)

    assert on(store(), work) == lines


def test_no_lines_are_no_batch(store: Open) -> None:
    assert on(store(), lambda log: imported(log, [])) == []


def test_an_empty_session_is_restored(store: Open) -> None:
    async def work(log: Log) -> list[str]:
        assert await imported(log, [SESSION]) == [ImportCounts(0, 0)]
        return await names(log)

    assert on(store(), work) == ["sess_1"]


def test_a_closed_session_is_closed_again_and_twice_is_harmless(store: Open) -> None:
    lines = lines_of(said("one"), closed=True)

    async def work(log: Log) -> tuple[bool, list[ImportCounts]]:
        await imported(log, lines)
        return (await log.info("sess_1")).closed, await imported(log, lines)

    assert on(store(), work) == (True, [ImportCounts(0, 1)])


def test_sessions_follow_each_other(store: Open) -> None:
    lines = lines_of(said("one")) + lines_of(said("two", "three"), name="sess_2")

    async def work(log: Log) -> tuple[list[ImportCounts], list[bytes]]:
        return await imported(log, lines), await exported(log, "sess_1") + await exported(log, "sess_2")

    assert on(store(), work) == ([ImportCounts(1, 0), ImportCounts(2, 0)], lines)


def test_batches_have_a_bound(store: Open) -> None:
    lines = lines_of(said(*map(str, range(2 * MAX_BATCH_EVENTS + 1))))

    async def work(log: Log) -> tuple[list[ImportCounts], list[bytes]]:
        return await imported(log, lines), await exported(log)

    assert on(store(), work) == (
        [ImportCounts(MAX_BATCH_EVENTS, 0), ImportCounts(MAX_BATCH_EVENTS, 0), ImportCounts(1, 0)],
        lines,
    )


# refusals


@for_each_row(
    ("line", "words"),
    [
        (b"no json", "line 7: JSON is malformed"),
        (b"[]", "line 7: not an envelope: Expected `object`, got `array`"),
        (b'"\xff"', "line 7: "),
        (b"{}", "line 7: not an envelope: Object missing required field `type`"),
        (b'{"type":"ui.message"}', "line 7: not an envelope: Object missing required field `id`"),
        (b'{"type":"session"}', "line 7: Object missing required field `session_id`"),
        (b'{"type":"session","session_id":"1"}', "line 7: Expected `str` matching regex"),
    ],
)
def test_a_line_that_is_neither_is_named(line: bytes, words: str) -> None:
    with pytest.raises(InvalidEvent) as refused:
        decode_export_line(line, 7)
    assert str(refused.value).startswith(words)


def refused(store: Store, lines: list[bytes]) -> tuple[TurnlogError, list[str]]:
    """Why the lines were refused, and which sessions there are after it."""

    async def work(log: Log) -> tuple[TurnlogError, list[str]]:
        with pytest.raises(TurnlogError) as error:
            await imported(log, lines)
        return error.value, await names(log)

    return on(store, work)


def test_nothing_of_the_batch_of_a_wrong_line_is_written(store: Open) -> None:
    error, there = refused(store(), [*lines_of(said("one", "two")), b"wrong"])
    assert isinstance(error, InvalidEvent)
    assert str(error).startswith("line 4: ")
    assert there == []


def test_batches_before_a_wrong_line_stay(store: Open) -> None:
    lines = [*lines_of(said(*map(str, range(MAX_BATCH_EVENTS + 1)))), b"wrong"]

    async def work(log: Log) -> int:
        with pytest.raises(InvalidEvent, match=f"line {MAX_BATCH_EVENTS + 3}: "):
            await imported(log, lines)
        return (await log.info("sess_1")).last

    assert on(store(), work) == MAX_BATCH_EVENTS - 1


@pytest.mark.parametrize("before", [[], lines_of(said("two"), name="sess_2")], ids=["none", "another"])
def test_events_need_the_line_of_their_session(store: Open, before: list[bytes]) -> None:
    error, _ = refused(store(), before + lines_of(said("one"))[1:])
    assert f"line {len(before) + 1}: expected the line of session sess_1 first" in str(error)


@pytest.mark.parametrize(
    "other",
    [said("another text"), said("one", "two")[1:], said("x", "y", first=7)],
    ids=["another body", "another seq", "another id"],
)
def test_another_history_is_a_conflict_and_changes_nothing(store: Open, other: list[Event]) -> None:
    lines = lines_of(said("one", "two", "three"))

    async def work(log: Log) -> bool:
        await fill(log, other)
        before = await exported(log)
        with pytest.raises(Conflict, match="the log has another event in the place of"):
            await imported(log, lines)
        return before == await exported(log)

    assert on(store(), work)


# what is not right yet


def test_every_closed_session_is_closed_again(store: Open) -> None:
    lines = lines_of(said("one"), closed=True) + lines_of(said("two"), name="sess_2")

    async def work(log: Log) -> bool:
        await imported(log, lines)
        return (await log.info("sess_1")).closed

    assert on(store(), work)


def test_every_empty_session_is_restored(store: Open) -> None:
    lines = [SESSION, *lines_of(said("two"), name="sess_2")]

    async def work(log: Log) -> list[str]:
        await imported(log, lines)
        return await names(log)

    assert on(store(), work) == ["sess_1", "sess_2"]


def test_a_batch_that_is_refused_leaves_no_session(store: Open) -> None:
    lines = lines_of(said("one", "two"))
    assert refused(store(), [lines[0], lines[2], lines[1]])[1] == []


def test_a_conflict_names_its_line(store: Open) -> None:
    lines = lines_of(said("one", "two"))
    assert str(refused(store(), [lines[0], lines[2], lines[1]])[0]).startswith("line 3: ")


@pytest.mark.parametrize("created_ms", [-1, MAX_TIMESTAMP_MS + 1])
def test_a_session_made_at_a_time_that_cannot_be_shown_is_refused(store: Open, created_ms: int) -> None:
    line = SESSION.replace(b"1767875696789", b"%d" % created_ms)
    assert "created_ms" in str(refused(store(), [line])[0])


@pytest.mark.parametrize("known", [0, 1])
def test_an_id_at_two_places_is_a_conflict(store: Open, known: int) -> None:
    lines = lines_of(said("one", "two", "three"))
    again = lines[2].replace(b'"seq":1', b'"seq":7')

    async def work(log: Log) -> tuple[str, list[bytes]]:
        await imported(log, lines[: 1 + known])
        with pytest.raises(Conflict) as error:
            await imported(log, [*lines, again])
        return str(error.value), await exported(log)

    text, there = on(store(), work)
    assert text.startswith("line 5: ")
    assert there == lines[: 1 + known]


def test_a_line_twice_is_known_the_second_time(store: Open) -> None:
    lines = lines_of(said("one", "two"))
    twice = [lines[0], lines[1], lines[1], lines[2], lines[1]]

    async def work(log: Log) -> tuple[list[ImportCounts], list[bytes]]:
        return await imported(log, twice), await exported(log)

    assert on(store(), work) == ([ImportCounts(2, 2)], lines)


def test_a_closed_session_takes_nothing_more(store: Open) -> None:
    lines = lines_of(said("one", "two"))

    async def work(log: Log) -> tuple[str, list[bytes]]:
        await imported(log, lines[:2])
        await log.close_session("sess_1")
        with pytest.raises(SessionClosed) as error:
            await imported(log, lines)
        return str(error.value), (await exported(log))[1:]

    assert on(store(), work) == ("line 3: sess_1 is closed", lines[1:2])


def test_a_session_that_was_closed_stays_closed_with_one_event(store: Open) -> None:
    async def make(log: Log) -> list[bytes]:
        await fill(log, said("one"))
        await log.close_session("sess_1", [close_event()])
        return await exported(log)

    lines = on(MemoryStore(), make)
    assert json.loads(lines[0])["closed"]
    assert [json.loads(line)["type"] for line in lines[1:]] == ["ui.message", "session.close"]

    async def work(log: Log) -> tuple[list[list[ImportCounts]], list[bytes], bool]:
        counts = [await imported(log, lines) for _ in range(2)]
        return counts, await exported(log), (await log.info("sess_1")).closed

    assert on(store(), work) == ([[ImportCounts(2, 0)], [ImportCounts(0, 2)]], lines, True)


def test_a_close_in_the_events_alone_closes(store: Open) -> None:
    """An export that began before the close says in its first line that the session is open."""

    async def make(log: Log) -> list[bytes]:
        await fill(log, said("one"))
        open_line = (await exported(log))[0]
        await log.close_session("sess_1", [close_event()])
        return [open_line, *(await exported(log))[1:]]

    lines = on(MemoryStore(), make)
    assert not json.loads(lines[0])["closed"]

    async def work(log: Log) -> bool:
        await imported(log, lines)
        return (await log.info("sess_1")).closed

    assert on(store(), work)


def test_an_import_after_pruning_leaves_the_log_as_it_was(store: Open) -> None:
    lines = lines_of(turn())

    async def work(log: Log) -> tuple[list[bytes], list[bytes], list[bytes]]:
        await imported(log, lines)
        whole = await exported(log)
        await transact(log, lambda store: store.prune("sess_1", 1 << 60))
        pruned = await exported(log)
        await imported(log, lines)
        return whole, pruned, await exported(log)

    whole, pruned, again = on(store(), work)
    assert len(pruned) == len(whole) - len(LIVE)
    assert again == pruned


def test_an_imported_event_is_as_old_as_it_was(store: Open) -> None:
    lines = lines_of(turn())

    async def work(log: Log) -> int:
        await imported(log, lines)
        return await log.prune("sess_1", NOW_MS + 1)

    assert on(store(), work) == len(LIVE)


def test_bytes_that_are_no_text_are_refused(store: Open) -> None:
    lines = lines_of(said("one"))
    refused(store(), [lines[0], lines[1].replace(b"one", b"\xff")])


def test_a_path_is_said_once() -> None:
    with pytest.raises(InvalidEvent) as error:
        decode_export_line(b"{}", 1)
    assert str(error.value).count("(at $)") == 1


def test_import_of_a_bare_uuid_stores_the_event_id_and_the_same_bytes_otherwise(store: Open) -> None:
    """The id may be written either way in two imports of one session: the second finds the event."""
    uuid = "017f22e2-79b0-7cc3-98c4-dc0c0c07398f"
    message = CATALOG.build_event("ui.message", {"text": "hi  you"}, id=f"evt_{uuid}")
    [session, line] = lines_of([message])
    assert f'"id":"evt_{uuid}"'.encode() in line
    bare = [session, line.replace(f"evt_{uuid}".encode(), uuid.upper().encode())]

    async def work(log: Log) -> None:
        assert await imported(log, bare) == [ImportCounts(new_events=1)]
        assert await exported(log) == [session, line]
        assert await imported(log, [session, line]) == [ImportCounts(known_events=1)]
        assert await imported(log, bare) == [ImportCounts(known_events=1)]

    on(store(), work)
