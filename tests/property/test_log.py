"""The log against a model of it: appends, refusals, followers, pruning, crashes, a cut write-ahead log.

After every step the log must be what the model is: everything acknowledged and nothing else, the same bytes,
in order, from every cursor, or the loss was told by a damage and a new epoch.
"""

import asyncio
import shutil
from collections.abc import AsyncIterator, Awaitable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import mkdtemp
from typing import Any, TypeVar

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.support.examples import examples
from tests.support.limits import HANG_S
from turnlog.errors import Conflict, Fenced, SessionClosed, TurnlogError
from turnlog.events import Event, encode_envelope
from turnlog.log import Damage, Log, MemoryStore, Page, Row, SqliteStore, Store
from turnlog.log.spans import live_event_span, span_edge
from turnlog.testing.closing import close_event
from turnlog.testing.factories import (
    agent_end_event,
    agent_scope,
    agent_start_event,
    block_abort_event,
    block_delta_event,
    block_end_event,
    block_start_event,
    durable_event,
    tool_call_event,
    tool_progress_event,
    tool_result_event,
)

T = TypeVar("T")

SESSIONS = ("sess_1", "sess_2")
FOLLOWERS = 5
PHASES = [Phase.generate]  # a failure is shown as it was found: shrinking takes minutes


def bounds(count: int) -> settings:
    """So many walks of 40 steps."""
    return settings(examples(count), stateful_step_count=40, phases=PHASES)


names = st.sampled_from(SESSIONS)
chances = st.integers(0, 1 << 32)  # of a generator of its own: hypothesis likes small numbers too much


@dataclass(frozen=True)
class Entry:
    """An event where it was acknowledged."""

    event: Event
    seq: int
    frame: bytes
    ts_ms: int


@dataclass
class Model:
    """What a session must be."""

    session: str
    epoch: str
    entries: list[Entry] = field(default_factory=list)
    history: dict[int, Entry] = field(default_factory=dict)
    last: int = -1
    fence: int = 0
    closed: bool = False
    made: int = 0

    def add(self, events: list[Event], ts_ms: int) -> list[int]:
        """Acknowledge events."""
        seqs = []
        for event in events:
            self.last += 1
            line = encode_envelope(event, session_id=self.session, seq=self.last, ts_ms=ts_ms)
            entry = Entry(event, self.last, b"data: " + line + b"\n\n", ts_ms)
            self.entries.append(entry)
            self.history[self.last] = entry
            seqs.append(self.last)
        return seqs

    def spans(self) -> dict[str, tuple[int, int | None]]:
        """Where each block, call and agent began and ended."""
        found: dict[str, tuple[int, int | None]] = {}
        for entry in self.entries:
            mark = span_edge(entry.event.payload, entry.event.scope.agent_id, None, entry.seq)
            if mark and mark.is_start:
                found[mark.key] = (entry.seq, None)
            elif mark and mark.key in found:
                found[mark.key] = (found[mark.key][0], entry.seq)
        return found

    def left_out(self, origin: int) -> set[int]:
        """The live events of what began after a cursor and has ended."""
        spans, found = self.spans(), set()
        for entry in self.entries:
            key = live_event_span(entry.event.payload)
            if key in spans and spans[key][0] > origin and spans[key][1] is not None:
                found.add(entry.seq)
        return found

    def after(self, seq: int, origin: int | None) -> dict[int, bytes]:
        """What a reader gets."""
        skipped = set() if origin is None else self.left_out(origin)
        later = [entry for entry in self.entries if entry.seq > seq and entry.seq not in skipped]
        return {entry.seq: entry.frame for entry in later}

    def prune(self, before_ms: int) -> int:
        """Forget the live events of what has ended."""
        gone = {seq for seq in self.left_out(-1) if self.history[seq].ts_ms < before_ms}
        self.entries = [entry for entry in self.entries if entry.seq not in gone]
        return len(gone)

    def events(self, count: int, chance: int) -> list[Event]:
        """Some of the events that are possible now."""
        random, events = Random(f"{chance} {self.made}"), list[Event]()
        while len(events) < count:
            events.append(random.choice(list(self.moves(events))))
        return events

    def moves(self, pending: list[Event]) -> Iterator[Event]:
        self.made += 1
        number, opened = self.made, self.opened(pending)
        yield durable_event(f"{number}")
        yield durable_event(f"{number}", 'text with "quotes" \u2028 and more ' * 20)
        yield block_start_event(f"b{number}")
        yield tool_call_event(f"c{number}")
        yield agent_start_event(agent_scope(number, trace=number))
        yield block_delta_event("stray", number)
        for key in sorted(opened["block"]):
            yield from (
                block_delta_event(key, number),
                block_delta_event(key, number),
                block_end_event(key),
                block_abort_event(key),
            )
        for key in sorted(opened["tool"]):
            yield from (
                tool_progress_event(key, number),
                tool_progress_event(key, number),
                tool_result_event(key),
            )
        for key in sorted(opened["agent"]):
            yield agent_end_event(
                agent_scope(int(key.removeprefix("agt_")), trace=int(key.removeprefix("agt_")))
            )
        for key in sorted(opened["over"])[:1]:
            yield block_delta_event(key, number)

    def opened(self, pending: list[Event]) -> dict[str, set[str]]:
        """The names of what is open, by the events alone, and of the blocks that are over."""
        found: dict[str, set[str]] = {"block": set(), "tool": set(), "agent": set(), "over": set()}
        for event in [*[entry.event for entry in self.entries], *pending]:
            kind, _, what = event.type.partition(".")
            if what in ("start", "call"):
                found[kind].add(event.id.split("-")[1])
            elif what in ("end", "result"):
                found[kind].discard(event.id.split("-")[1])
                found["over"].update([event.id.split("-")[1]] if kind == "block" else [])
        return found


@dataclass
class Follower:
    """A reader that is at it, and what it has got."""

    model: Model
    cursor: int
    origin: int | None
    pages: AsyncIterator[Page]
    epoch: str
    got: list[Row] = field(default_factory=list)

    @property
    def at(self) -> int:
        return self.got[-1].seq if self.got else self.cursor

    def missing(self) -> bool:
        """Whether something durable is still to come."""
        return any(entry.seq > self.at and not entry.event.live for entry in self.model.entries)

    def check(self) -> None:
        """Everything after the cursor, in order, once; live events may be missing when that is allowed."""
        seqs = [row.seq for row in self.got]
        assert seqs == sorted(set(seqs)), "out of order, or twice"
        assert all(seq > self.cursor for seq in seqs)
        assert all(row.frame == self.model.history[row.seq].frame for row in self.got), "wrong bytes"
        kept = {entry.seq for entry in self.model.entries if self.cursor < entry.seq <= self.at}
        allowed = set() if self.origin is None else self.model.left_out(self.origin)
        assert kept - set(seqs) <= allowed, "something is missing"


class LogMachine(RuleBasedStateMachine):
    """Two sessions on a store that is made once."""

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.now_ms = 1_767_875_696_000
        self.steps = 0
        self.damages = 0
        self.followers: list[Follower] = []
        self.log = self.do(self.opened())
        self.models = {name: Model(name, self.do(self.begun(name))) for name in SESSIONS}

    def make(self) -> Store:
        return MemoryStore(ring_events=1 << 30)

    async def opened(self) -> Log:
        return Log(self.make(), lambda: self.now_ms)

    async def begun(self, name: str) -> str:
        await self.log.create("machine", name)
        return (await self.log.info(name)).epoch

    def do(self, work: Awaitable[T]) -> T:
        async def bounded() -> T:
            async with asyncio.timeout(HANG_S):
                return await work

        return self.runner.run(bounded())

    def teardown(self) -> None:
        self.drop_all()
        self.do(self.log.close())
        self.runner.close()

    # appending

    @rule(name=names, count=st.integers(1, 8), chance=chances, fence=st.sampled_from([None, None, 0, 1, 5]))
    def append(self, name: str, count: int, chance: int, fence: int | None) -> None:
        model = self.models[name]
        events = model.events(count, chance)
        options: dict[str, Any] = {"expected_last": model.last if chance % 2 else None, "fence": fence}
        if model.closed:
            self.refused(SessionClosed, name, events, **options)
        elif fence is not None and fence < model.fence:
            self.refused(Fenced, name, events, **options)
        else:
            model.fence = max(model.fence, fence or 0)
            seqs = self.do(self.log.append(name, events, **options)).seqs
            assert seqs == model.add(events, self.now_ms)

    def refused(
        self, error: type[TurnlogError], name: str, events: list[Event], **options: Any
    ) -> TurnlogError:
        try:
            self.do(self.log.append(name, events, **options))
        except error as refusal:
            return refusal
        raise AssertionError(f"expected {error.__name__}")

    @rule(name=names, count=st.integers(10, 30), chance=chances)
    def append_much(self, name: str, count: int, chance: int) -> None:
        self.append(name, count, chance, None)

    @rule(name=names, chance=chances, expect=st.integers(-1, 50))
    def append_again(self, name: str, chance: int, expect: int) -> None:
        model = self.models[name]
        if not model.entries:
            return
        old = Random(f"{chance} {self.steps}").choice(model.entries)
        assert self.do(self.log.append(name, [old.event], expected_last=expect)).seqs == [old.seq]
        if not model.closed:
            new = model.events(2, chance)
            if expect != model.last:
                self.refused(Conflict, name, [old.event, *new], expected_last=expect)
            result = self.do(self.log.append(name, [new[0], old.event, new[1]]))
            first, second = model.add(new, self.now_ms)
            assert (result.seqs, result.new) == ([first, old.seq, second], [True, False, True])

    @rule(name=names, chance=chances, place=st.integers(0, 2))
    def append_another_body(self, name: str, chance: int, place: int) -> None:
        model = self.models[name]
        if model.entries:
            old = Random(f"{chance} {self.steps}").choice(model.entries)
            batch = model.events(2, chance)
            batch.insert(place, durable_event(old.event.id.removeprefix("evt_"), "another body"))
            refusal = self.refused(Conflict, name, batch)
            assert isinstance(refusal, Conflict)
            assert refusal.last == model.last

    @rule(name=names, wrong=st.integers(-1, 200), chance=chances)
    def expect_another_last(self, name: str, wrong: int, chance: int) -> None:
        model = self.models[name]
        if wrong != model.last:
            error: type[TurnlogError] = SessionClosed if model.closed else Conflict
            refusal = self.refused(error, name, model.events(2, chance), expected_last=wrong)
            assert not isinstance(refusal, Conflict) or refusal.last == model.last

    @rule(count=st.integers(2, 30), chance=chances)
    def append_in_a_rush(self, count: int, chance: int) -> None:
        """Many appends to both sessions at once, one of them wrong, while readers join and read."""
        jobs: list[tuple[Model, list[Event]]] = []
        for number in range(count):
            model = self.models[SESSIONS[(number + chance) % 2]]
            model.made += 1
            jobs.append((model, [durable_event(f"rush{model.made}")]))
        for name in SESSIONS:
            self.follow(name, chance)
        outcomes = self.do(self.rush(jobs))
        for (model, events), outcome in zip(jobs, outcomes[:-1], strict=True):
            if model.closed:
                assert isinstance(outcome, SessionClosed)
            else:
                assert outcome.seqs == model.add(events, self.now_ms)
        assert isinstance(outcomes[-1], Conflict)

    async def rush(self, jobs: list[tuple[Model, list[Event]]]) -> list[Any]:
        waiting = [follower for follower in self.followers if not follower.model.closed]
        readers = [asyncio.ensure_future(anext(follower.pages)) for follower in waiting]
        writers = [self.log.submit(model.session, events) for model, events in jobs]
        writers.append(
            self.log.submit(SESSIONS[0], [durable_event("twice"), durable_event("twice", "another body")])
        )
        outcomes = await asyncio.gather(*writers, return_exceptions=True)
        for follower, reader in zip(waiting, readers, strict=True):
            follower.got += await reader
        return outcomes

    @rule(name=names, chance=chances)
    @precondition(lambda self: self.steps > 20)
    def close_session(self, name: str, chance: int) -> None:
        """Close a session, with or without last events; again it changes nothing."""
        model = self.models[name]
        model.made += 1
        events = [*model.events(1 + chance % 3, chance), close_event(f"p{model.made}")] if chance % 3 else []
        seqs = self.do(self.log.close_session(name, events)).seqs
        assert seqs == ([-1] * len(events) if model.closed else model.add(events, self.now_ms))
        model.closed = True

    @rule(name=names, age_ms=st.integers(0, 500))
    def prune(self, name: str, age_ms: int) -> None:
        removed = self.do(self.log.prune(name, self.now_ms - age_ms))
        assert removed == self.models[name].prune(self.now_ms - age_ms)

    @rule(ms=st.integers(-2000, 2000))
    def the_clock_jumps(self, ms: int) -> None:
        self.now_ms += ms

    # following

    @rule(name=names, chance=chances)
    def follow(self, name: str, chance: int) -> None:
        if len(self.followers) < FOLLOWERS:
            at = Random(f"{chance} {self.steps}").randint(-1, self.models[name].last)
            self.join(self.models[name], at, at if chance % 2 else None)

    def join(self, model: Model, at: int, origin: int | None) -> None:
        pages = self.log.follow(model.session, at, replay_from=origin)
        self.followers.append(Follower(model, at, origin, pages, model.epoch))

    @rule(chance=chances, pages=st.integers(1, 3))
    @precondition(lambda self: self.followers)
    def pull(self, chance: int, pages: int) -> None:
        follower = Random(chance).choice(self.followers)
        while pages and follower.missing():
            follower.got += self.do(anext(follower.pages))
            pages -= 1
        follower.check()

    @rule(chance=chances)
    @precondition(lambda self: self.followers)
    def drop(self, chance: int) -> None:
        follower = self.followers.pop(chance % len(self.followers))
        self.do(follower.pages.aclose())  # type: ignore[attr-defined]

    def drop_all(self) -> list[Follower]:
        gone, self.followers = self.followers, []
        for follower in gone:
            self.do(follower.pages.aclose())  # type: ignore[attr-defined]
        return gone

    @rule()
    @precondition(lambda self: any(follower.model.closed for follower in self.followers))
    def read_to_the_end(self) -> None:
        for follower in [follower for follower in self.followers if follower.model.closed]:
            follower.got += self.do(rest(follower.pages))
            assert not follower.missing()
            follower.check()
            self.followers.remove(follower)

    # what must be so at all times

    @invariant()
    def the_log_is_the_model(self) -> None:
        self.steps += 1
        self.now_ms += 100
        self.do(self.compare())
        for follower in self.followers if self.steps % 6 == 0 else []:
            while follower.missing():
                follower.got += self.do(anext(follower.pages))
            follower.check()

    async def compare(self) -> None:
        for name, model in self.models.items():
            head = await self.log.info(name)
            assert (head.last, head.closed, head.fence) == (model.last, model.closed, model.fence)
            assert (head.epoch, head.first) == (model.epoch, 0)
            cursor = Random(self.steps).randint(-1, model.last)
            for after, origin in ((-1, None), (cursor, None), (cursor, cursor), (-1, -1)):
                found = {row.seq: row.frame for row in await self.rows(name, after, origin)}
                assert found == model.after(after, origin)
                assert list(found) == sorted(found)
        unfinished = [name for name in SESSIONS if self.models[name].opened([])["agent"]]
        assert await self.log.sessions_with_open_agents() == unfinished
        assert await self.log.verify() == []
        assert len(await self.log.damages()) == self.damages

    async def rows(self, name: str, after: int, origin: int | None) -> list[Row]:
        found: list[Row] = []
        while page := await self.log.read(name, after, replay_from=origin, max_bytes=2000):
            found += page
            after = page[-1].seq
        return found


async def rest(pages: AsyncIterator[Page]) -> list[Row]:
    return [row async for page in pages for row in page]


class FileMachine(LogMachine):
    """The same on SQLite, with everything that can happen to a process and its files."""

    def __init__(self) -> None:
        self.folder = Path(mkdtemp(prefix="turnlog-machine-"))
        self.place = self.folder / "0"
        super().__init__()
        self.reopen()  # so that the sessions themselves are not in the write-ahead log any more

    def make(self) -> Store:
        return SqliteStore(self.place / "log.db")

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.folder)

    @rule()
    def reopen(self) -> None:
        """A process ends in order, and another begins."""
        readers = self.drop_all()
        self.do(self.log.close())
        self.log = self.do(self.opened())
        self.come_back(readers)

    @rule()
    def crash(self) -> None:
        """Only what is in the files at this moment is left: everything acknowledged."""
        before = {name: (model.epoch, model.closed, model.entries) for name, model in self.models.items()}
        self.leave(cut=0.0)
        after = {name: (model.epoch, model.closed, model.entries) for name, model in self.models.items()}
        assert before == after

    @rule(cut=st.floats(0.01, 1))
    @precondition(lambda self: self.steps % 3 == 0)
    def crash_and_lose(self, cut: float) -> None:
        """The same, and the end of the write-ahead log is gone."""
        self.leave(cut)

    def leave(self, cut: float) -> None:
        """Copy the files, let go of the old place, open the copy."""
        place = self.folder / str(int(self.place.name) + 1)
        shutil.copytree(self.place, place, ignore=shutil.ignore_patterns("*-shm", "*.lock"))
        wal = place / "log.db-wal"
        if wal.exists():
            with wal.open("r+b") as file:
                file.truncate(int(wal.stat().st_size * (1 - cut)))
        readers = self.drop_all()
        self.do(self.log.close())
        shutil.rmtree(self.place)
        self.place = place
        self.log = self.do(self.opened())
        self.do(self.take_stock())
        self.come_back(readers)

    async def take_stock(self) -> None:
        """What is served is what was written; what is missing was told, by a damage and a new epoch."""
        damages = await self.log.damages()
        self.damages = len(damages)
        for name, model in self.models.items():
            head = await self.log.info(name)
            rows = await self.rows(name, -1, None)
            assert all(model.history[row.seq].frame == row.frame for row in rows), "wrong data"
            missing = {entry.seq for entry in model.entries} - {row.seq for row in rows}
            assert missing <= told(damages, name), "a loss nobody was told of"
            assert not missing or head.epoch != model.epoch, "a loss in the same epoch"
            assert head.last == model.last, "seqs would be given twice"
            model.entries = [model.history[row.seq] for row in rows]
            model.epoch, model.closed, model.fence = head.epoch, head.closed, head.fence

    def come_back(self, readers: list[Follower]) -> None:
        """Readers go on from their cursors, unless a new epoch tells them not to."""
        for follower in readers:
            if follower.epoch == follower.model.epoch:
                self.join(follower.model, follower.at, None if follower.origin is None else follower.at)


def told(damages: list[Damage], name: str) -> set[int]:
    ranges = [range(damage.first, damage.last + 1) for damage in damages if damage.session_id == name]
    return {seq for lost in ranges for seq in lost}


def test_the_log_in_memory_is_its_model() -> None:
    run_state_machine_as_test(LogMachine, settings=bounds(12))


def test_the_log_in_a_file_is_its_model_whatever_happens_to_the_file() -> None:
    run_state_machine_as_test(FileMachine, settings=bounds(5))
