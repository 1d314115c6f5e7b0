"""What is kept beside the log: how much is read for a question, what is trusted, and what is made again."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
import pytest

from tests.support.coverage_pause import without_coverage
from tests.support.transact import transact
from tests.unit.log.delegates import Counting, Gated, scenario
from turnlog.app import read_models, state_at
from turnlog.app.read_models import (
    DOCUMENTS,
    OLD_VERSION_MS,
    READ_MODEL_NAMES,
    SNAPSHOT_EVERY_EVENTS,
    STATE,
    ReadModels,
    ReadModelStore,
)
from turnlog.errors import BadInput, NotFound
from turnlog.events import Catalog, Envelope, Event, Payload, Scope, UiMessage
from turnlog.log import Damage, Log, MemoryStore, SqliteStore, open_log
from turnlog.log.jobs import ReplaceSnapshot
from turnlog.state.fold import Reducer
from turnlog.team.events import RosterJoin, RosterStatus
from turnlog.vocabularies import FULL_CATALOG

NAME = "sess_1"
GUIDE = Scope(trace_id="tr_1", agent_id="agt_1", agent_name="Guide", depth=0)


def count(state: Any, payload: Any, envelope: Envelope) -> Any:
    return {**state, "said": state.get("said", 0) + 1, "last": payload.text}


class Counter(NamedTuple):
    """An application that counts messages."""

    name: str = "counter"
    catalog: Catalog = FULL_CATALOG
    reducers: Mapping[type[Payload], Reducer] = {UiMessage: count}
    initial_state: Callable[[], Any] = dict


APP = Counter()


def said(number: int, text: str = "Hi") -> Event:
    payload = {"text": f"{text} {number}"}
    return FULL_CATALOG.build_event(
        "ui.message", payload, id=f"evt_{number}", origin="ui", scope=Scope(actor="ada")
    )


def of_guide(number: int, type: str, payload: Any) -> Event:
    origin: Any = "system" if type.startswith("agent.") else "model"
    return FULL_CATALOG.build_event(type, payload, id=f"evt_g{number}", origin=origin, scope=GUIDE)


def turn() -> list[Event]:
    """An agent that writes a text in pieces and is still at work."""
    parts: list[tuple[str, Any]] = [
        ("agent.start", {"name": "Guide", "via": "prompt"}),
        ("block.start", {"block_id": "b1", "kind": "text"}),
        *[("block.delta", {"block_id": "b1", "text": word}) for word in ("One ", "two ", "three")],
        ("block.end", {"block_id": "b1", "status": "complete"}),
        ("assistant.message", {"block_id": "b1", "text": "One two three"}),
    ]
    return [of_guide(number, *part) for number, part in enumerate(parts)]


class Rows(Counting):
    """A store that counts the rows it gives, and the documents it gets."""

    rows = 0
    put_documents = 0

    def _call(self, name: str, *args: Any) -> Any:
        if name == "commit":
            self.put_documents += sum(
                len(job.documents) for job in args[0] if isinstance(job, ReplaceSnapshot)
            )
        given = super()._call(name, *args)
        self.rows += len(given) if name == "read" else 0
        return given

    def taken(self) -> int:
        """How many since the last time."""
        taken, self.rows = self.rows, 0
        return taken


def pass_evictions_on(store: Counting) -> None:
    """Let the store itself call what was set on the one around it."""
    cast(Any, store.inner).on_evict = cast(Any, store).on_evict


def version_of(log: Log, name: str) -> str:
    """The version of the code behind a snapshot."""
    kept = ReadModelStore(log)
    return kept.documents_version if name == DOCUMENTS else kept.code_version(APP)


async def kept_snapshot(log: Log, name: str, at: int) -> tuple[int, bytes] | None:
    return await log.snapshot(NAME, name, at, version_of(log, name))


async def keep_snapshot(log: Log, name: str, seq: int, body: bytes) -> None:
    await log.put_snapshot(NAME, name, seq, body, version_of(log, name))


async def filled(log: Log, events: int) -> Log:
    await log.create("counter", NAME)
    for first in range(0, events, 5000):
        await log.append(NAME, [said(number) for number in range(first, min(first + 5000, events))])
    return log


class TestTheTail:
    @without_coverage()
    @scenario
    async def test_a_question_reads_at_most_what_came_after_the_snapshot(self) -> None:
        store = Rows(MemoryStore(ring_events=1 << 20))
        log = await filled(Log(store.store), 8 * SNAPSHOT_EVERY_EVENTS)
        assert (await ReadModelStore(log).load_read_models(APP, NAME)).state[
            "said"
        ] == 8 * SNAPSHOT_EVERY_EVENTS
        assert store.taken() == 8 * SNAPSHOT_EVERY_EVENTS
        page = read_models.MAX_READ_BYTES // 150  # more rows than one read has
        for at in (
            8 * SNAPSHOT_EVERY_EVENTS - 1,
            8 * SNAPSHOT_EVERY_EVENTS - 7,
            4 * SNAPSHOT_EVERY_EVENTS + 10,
            3 * SNAPSHOT_EVERY_EVENTS - 1,
            10,
            -1,
        ):
            snapshots = [await kept_snapshot(log, name, at) for name in READ_MODEL_NAMES]
            panels = await ReadModelStore(log).load_read_models(APP, NAME, at)
            assert (panels.seq, panels.state.get("said", 0)) == (at, at + 1)
            tail = at - min(snapshot[0] if snapshot else -1 for snapshot in snapshots)
            assert store.taken() <= tail + (page if tail else 0)
        await log.close()

    @scenario
    async def test_a_snapshot_that_cannot_be_used_does_not_hide_what_stands_before_it(self) -> None:
        store = Rows(MemoryStore(ring_events=1 << 20))
        log = await filled(Log(store.store), SNAPSHOT_EVERY_EVENTS + 100)
        for name in READ_MODEL_NAMES:
            await keep_snapshot(log, name, SNAPSHOT_EVERY_EVENTS + 50, b"{}")
        for reads in (SNAPSHOT_EVERY_EVENTS + 100, 100):
            assert (await ReadModelStore(log).load_read_models(APP, NAME)).state[
                "said"
            ] == SNAPSHOT_EVERY_EVENTS + 100
            assert store.taken() == reads
        await log.close()

    @scenario
    async def test_documents_read_what_came_since_the_last_time(self) -> None:
        store = Rows(MemoryStore(ring_events=1 << 20))
        log = await filled(Log(store.store), 1000)
        assert len(await ReadModelStore(log).documents(NAME)) == store.taken() == 1000
        await log.append(NAME, [said(number) for number in range(1000, 1003)])
        assert len(await ReadModelStore(log).documents(NAME)) == 1003
        assert store.taken() == 3
        await log.close()

    @scenario
    async def test_documents_of_few_new_events_are_not_written(self) -> None:
        store = Rows(MemoryStore())
        log = await filled(Log(store.store), SNAPSHOT_EVERY_EVENTS - 1)
        for _ in range(2):
            assert len(await ReadModelStore(log).documents(NAME)) == SNAPSHOT_EVERY_EVENTS - 1
        assert store.put_documents == 0
        await log.append(NAME, [said(SNAPSHOT_EVERY_EVENTS)])
        await ReadModelStore(log).documents(NAME)
        assert store.put_documents == SNAPSHOT_EVERY_EVENTS
        await log.close()

    @scenario
    async def test_documents_that_changed_after_they_were_written_are_as_of_now(self) -> None:
        log = await filled(Log(MemoryStore()), 2)
        join = RosterJoin(name="Lyra", seat=1, soul="s")
        await log.append(NAME, [FULL_CATALOG.build_event(join, id="evt_join", origin="model")])
        await ReadModelStore(log).write_documents(NAME)
        status = FULL_CATALOG.build_event(RosterStatus(agents=()), id="evt_status", origin="model")
        await log.append(NAME, [status, said(3)])
        [lyra] = await ReadModelStore(log).documents(NAME, type="agent-identity")
        assert msgspec.json.decode(lyra.body)["status"] == "sleeping"
        ids = [one.id for one in await ReadModelStore(log).documents(NAME)]
        assert ids == ["agent-identity:1", "message:evt_0", "message:evt_1", "message:evt_3"]
        await log.close()


class TestWhatIsTrusted:
    @scenario
    async def test_a_snapshot_is_used_as_it_is(self) -> None:
        """The control of those below: what stands in a snapshot is what is shown."""
        log = await filled(Log(MemoryStore()), SNAPSHOT_EVERY_EVENTS)
        await ReadModelStore(log).load_read_models(APP, NAME)
        await spoiled(log, lambda kept: kept | {"value": {"said": "forged"}})
        assert (await ReadModelStore(log).load_read_models(APP, NAME)).state == {"said": "forged"}
        await log.close()

    @pytest.mark.parametrize(
        "change",
        [
            lambda kept: kept | {"epoch": "other"},
            lambda kept: kept | {"pruned": 7},
            lambda kept: {"epoch": kept["epoch"]},
            lambda kept: kept | {"value": [1]},
        ],
    )
    def test_what_was_kept_by_others_is_made_again(self, change: Any) -> None:
        async def run() -> None:
            log = await filled(Log(MemoryStore()), SNAPSHOT_EVERY_EVENTS + 5)
            expected = (await ReadModelStore(log).load_read_models(APP, NAME)).state
            found = await kept_snapshot(log, STATE, SNAPSHOT_EVERY_EVENTS)
            await spoiled(log, lambda kept: change(kept | {"value": {"said": "forged"}}))
            assert (await ReadModelStore(log).load_read_models(APP, NAME)).state == expected
            assert await kept_snapshot(log, STATE, SNAPSHOT_EVERY_EVENTS) == found
            await log.close()

        asyncio.run(run())

    @pytest.mark.parametrize("value", [(1, 2), {1: 2}, object(), {"a", "b"}])
    def test_a_state_that_bytes_do_not_hold_is_not_kept(self, value: Any) -> None:
        async def run() -> None:
            log = await filled(Log(MemoryStore()), SNAPSHOT_EVERY_EVENTS)
            app = Counter(reducers={UiMessage: lambda state, _, __: {**state, "value": value}})
            for _ in range(2):
                assert (await ReadModelStore(log).load_read_models(app, NAME)).state == {"value": value}
            assert await kept_snapshot(log, STATE, SNAPSHOT_EVERY_EVENTS) is None
            await log.close()

        asyncio.run(run())

    @scenario
    async def test_the_documents_of_another_history_go_and_are_made_again(self) -> None:
        log = await filled(Log(MemoryStore()), 3)
        expected = await ReadModelStore(log).documents(NAME)
        await ReadModelStore(log).write_documents(NAME)
        for change in ({"epoch": "other"}, {"fold": 3}):
            [(_, body)] = [await kept_snapshot(log, DOCUMENTS, 0) or (0, b"")]
            await keep_snapshot(log, DOCUMENTS, 0, msgspec.json.encode(msgspec.json.decode(body) | change))
            await log.put_document(expected[0]._replace(id="message:gone"))
            assert await ReadModelStore(log).documents(NAME) == expected
            await ReadModelStore(log).write_documents(NAME)
            assert await ReadModelStore(log).documents(NAME) == expected
        await log.close()

    @scenario
    async def test_two_versions_of_the_code_keep_their_own_snapshots_and_documents(self) -> None:
        now = [1000]
        log = await filled(Log(MemoryStore(1 << 20), clock=lambda: now[0]), SNAPSHOT_EVERY_EVENTS + 5)
        old, new = ReadModelStore(log), ReadModelStore(log)
        new.documents_version = "new documents"
        new._code_versions[APP.name] = "new code"
        for kept in (old, new):
            await kept.load_read_models(APP, NAME)
            await kept.write_documents(NAME)
        for kept in (old, new):
            assert await log.snapshot(NAME, STATE, 1 << 40, kept.code_version(APP))
            assert await log.snapshot(NAME, DOCUMENTS, 0, kept.documents_version)
            assert len(await log.documents(NAME, version=kept.documents_version)) == SNAPSHOT_EVERY_EVENTS + 5
        await log.append(
            NAME, [said(number) for number in range(2 * SNAPSHOT_EVERY_EVENTS, 4 * SNAPSHOT_EVERY_EVENTS)]
        )
        now[0] += OLD_VERSION_MS + 1
        await new.load_read_models(APP, NAME)
        assert await log.snapshot(NAME, STATE, 1 << 40, old.code_version(APP)) is None
        assert await log.documents(NAME, version=old.documents_version) == []
        assert await log.documents(NAME, version=new.documents_version)
        await log.close()

    @scenario
    async def test_a_log_that_is_only_read_keeps_nothing(self, tmp_path: Path) -> None:
        url = f"sqlite:///{tmp_path}/log.db"
        log = await filled(await open_log(url), SNAPSHOT_EVERY_EVENTS)
        reading = await open_log(url, writable=False)
        assert (await ReadModelStore(reading).load_read_models(APP, NAME)).state[
            "said"
        ] == SNAPSHOT_EVERY_EVENTS
        assert await kept_snapshot(log, STATE, SNAPSHOT_EVERY_EVENTS) is None
        await reading.close()
        await log.close()


async def spoiled(log: Log, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    found = await kept_snapshot(log, STATE, SNAPSHOT_EVERY_EVENTS)
    assert found is not None
    seq, body = found
    await keep_snapshot(log, STATE, seq, msgspec.json.encode(change(msgspec.json.decode(body))))


class TestWhatIsGone:
    @scenario
    async def test_a_seq_that_was_pruned_is_answered_from_what_stands_before_it(self) -> None:
        now = [1000]
        log = Log(MemoryStore(), clock=lambda: now[0])
        await log.create("counter", NAME)
        await log.append(NAME, turn())
        assert await log.prune(NAME, 2000) == 3
        panels = await ReadModelStore(log).load_read_models(APP, NAME, 3)
        assert panels.seq == 1
        assert (await ReadModelStore(log).load_read_models(APP, NAME)).seq == 6
        await log.close()

    @scenario
    async def test_a_snapshot_does_not_tell_what_was_pruned(self, monkeypatch: Any) -> None:
        monkeypatch.setattr(read_models, "SNAPSHOT_EVERY_EVENTS", 4)
        log = Log(MemoryStore(), clock=lambda: 1000)
        await log.create("counter", NAME)
        await log.append(NAME, turn())
        assert (await ReadModelStore(log).load_read_models(APP, NAME, 3)).tree.open["agt_1"].blocks == {
            "b1": ["One ", "two "]
        }
        await log.prune(NAME, 2000)
        kept = await ReadModelStore(log).load_read_models(APP, NAME, 4)
        await log.delete_derived()
        assert kept.tree == (await ReadModelStore(log).load_read_models(APP, NAME, 4)).tree
        await log.close()

    @scenario
    async def test_documents_of_events_that_are_lost_go(self, tmp_path: Path) -> None:
        log = await filled(Log(SqliteStore(tmp_path / "log.db")), 5)
        assert len(await ReadModelStore(log).documents(NAME)) == 5
        await transact(log, lambda store: store.quarantine(Damage(NAME, 1, 2, "for a test")))
        kept = await ReadModelStore(log).documents(NAME)
        assert [one.id for one in kept] == ["message:evt_0", "message:evt_3", "message:evt_4"]
        assert (await ReadModelStore(log).load_read_models(APP, NAME, 2)).state["said"] == 1
        await log.delete_derived()
        assert await ReadModelStore(log).documents(NAME) == kept
        await transact(log, lambda store: store.quarantine(Damage(NAME, 4, 4, "for a test")))
        assert (await ReadModelStore(log).load_read_models(APP, NAME, 4)).seq == 3
        assert len(await ReadModelStore(log).documents(NAME)) == 2
        await log.close()

    @scenario
    async def test_what_is_forgotten_behind_its_back_is_made_again(self) -> None:
        log = await filled(Log(MemoryStore()), 3)
        made = ReadModelStore(log)
        kept = await made.documents(NAME)
        await log.delete_derived()
        assert await made.documents(NAME) == kept
        await log.close()

    @scenario
    async def test_seqs_that_are_not_there(self) -> None:
        log = await filled(Log(MemoryStore()), 3)
        for at in (-2, 3):
            with pytest.raises(BadInput, match=f"expected a seq up to 2, got {at}"):
                await ReadModelStore(log).load_read_models(APP, NAME, at)
        with pytest.raises(NotFound, match="no session sess_2"):
            await ReadModelStore(log).load_read_models(APP, "sess_2")
        with pytest.raises(NotFound, match="no session sess_2"):
            await ReadModelStore(log).documents("sess_2")
        await log.close()


class TestTheRing:
    """What is shown outlives the events that a ring lets go of."""

    @scenario
    async def test_it_is_kept_as_of_the_cut(self) -> None:
        log = Log(MemoryStore(ring_events=50))
        made, whole = ReadModelStore(log, {"counter": APP}), ReadModels(APP)
        await log.create("counter", NAME)
        for number in range(200):
            await log.append(NAME, [said(number)])
            [envelope] = (await log.read(NAME, number - 1)).envelopes()
            whole.apply(envelope, FULL_CATALOG.decode_payload(envelope))
            if number in (3, 70, 71, 150):
                assert len(await made.documents(NAME)) == number + 1
                assert (await made.load_read_models(APP, NAME)).transcript == whole.transcript
        head = await log.info(NAME)
        assert head.first == 150
        for at in range(head.first - 1, 200):
            assert (await made.load_read_models(APP, NAME, at)).state["said"] == at + 1
        with pytest.raises(NotFound, match="the events before seq 149 are not kept any more"):
            await made.load_read_models(APP, NAME, head.first - 2)
        panels = await made.load_read_models(APP, NAME)
        assert panels.transcript == whole.transcript
        assert panels.meters == whole.meters
        assert panels.tree == whole.tree
        assert len(await made.documents(NAME)) == 200
        await log.close()

    @scenario
    async def test_of_an_application_that_is_not_served_it_is_not(self) -> None:
        log = Log(MemoryStore(ring_events=50))
        made = ReadModelStore(log, {"other": APP})
        await filled(log, 60)
        with pytest.raises(NotFound, match="are not kept any more"):
            await made.load_read_models(APP, NAME)
        await log.close()

    @scenario
    async def test_what_goes_while_it_is_read_is_not_missed(self, monkeypatch: Any) -> None:
        monkeypatch.setattr(read_models, "MAX_READ_BYTES", 1)  # one event at a time
        store = Gated(MemoryStore(ring_events=50))
        log = Log(store.store)
        made = ReadModelStore(log, {"counter": APP})
        pass_evictions_on(store)
        await filled(log, 50)
        for name in ("info", "snapshot", "read"):
            for ask in (made.load_read_models(APP, NAME), made.documents(NAME)):
                gate = store.gate(name)
                asking = asyncio.create_task(ask)
                await gate.reached()
                last = (await log.info(NAME)).last
                await log.append(NAME, [said(number) for number in range(last + 1, last + 71)])
                gate.open()
                assert last + 1 <= len(shown_texts(await asking)) <= last + 71
        total = (await log.info(NAME)).last + 1
        assert total > 400
        assert len(await made.documents(NAME)) == total
        assert (await made.load_read_models(APP, NAME)).state["said"] == total
        await log.close()

    @scenario
    async def test_who_writes_documents_meanwhile_is_not_overwritten(self) -> None:
        """The ring lets go of who joined, while somebody reads who does not know of it."""
        store = Gated(MemoryStore(ring_events=50))
        log = Log(store.store)
        made = ReadModelStore(log, {"counter": APP})
        pass_evictions_on(store)
        await filled(log, 10)
        await made.documents(NAME)
        join = RosterJoin(name="Lyra", seat=1, soul="s")
        await log.append(NAME, [FULL_CATALOG.build_event(join, id="evt_join", origin="model")])
        gate = store.gate("snapshot")
        asking = asyncio.create_task(made.documents(NAME))
        await gate.reached()
        await log.append(NAME, [said(number) for number in range(20, 120)])
        gate.open()
        await asking
        everybody = RosterStatus(agents=())
        await log.append(NAME, [FULL_CATALOG.build_event(everybody, id="evt_status", origin="model")])
        [lyra] = await made.documents(NAME, type="agent-identity")
        assert msgspec.json.decode(lyra.body)["status"] == "sleeping"
        await log.close()


def shown_texts(answer: Any) -> Any:
    return answer.transcript.entries if isinstance(answer, ReadModels) else answer


@scenario
async def test_questions_at_once_never_bring_back_what_was() -> None:
    log = await filled(Log(Counting(MemoryStore()).store), 1)
    made, counts = ReadModelStore(log), list[int]()

    async def ask() -> None:
        answered = max(counts, default=0)  # of two at once, the one that began first may end last
        counts.append(len(await made.documents(NAME)))
        assert counts[-1] >= answered

    asking = []
    for number in range(1, 40):
        asking.append(asyncio.create_task(ask()))
        await log.append(NAME, [said(number)])
    await asyncio.gather(*asking)
    await ask()
    assert counts[-1] == 40
    await log.close()


@scenario
async def test_a_reducer_that_raises_leaves_the_state_as_it_was() -> None:
    def picky(state: Any, payload: Any, _: Envelope) -> Any:
        return {**state, payload.text: 1 / (len(state) - 1)}

    app = Counter(reducers={UiMessage: picky}, initial_state=lambda: {"a": 1, "b": 2})
    log = await filled(Log(MemoryStore()), 1)
    assert (await ReadModelStore(log).load_read_models(app, NAME)).state == {"a": 1, "b": 2, "Hi 0": 1.0}
    assert (
        await ReadModelStore(log).load_read_models(app._replace(initial_state=lambda: {"a": 1}), NAME)
    ).state == {"a": 1}
    await log.close()


@scenario
async def test_the_state_at_any_seq_is_the_fold_of_the_events_up_to_it() -> None:
    log = await filled(Log(MemoryStore()), 5)
    assert [(await state_at(log, APP, NAME, seq)).get("last") for seq in range(-1, 5)] == [
        None,
        *[f"Hi {number}" for number in range(5)],
    ]
    await log.close()
