"""What is shown of any legal log: live, replayed, and from snapshots at any cuts, asked for in any order."""

import asyncio
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.property.test_state import CATALOG, Agree, sessions
from tests.support.examples import examples
from tests.support.folds import fold_documents
from tests.support.written_logs import Item
from turnlog.app import read_models
from turnlog.app.read_models import ReadModels, ReadModelStore
from turnlog.events import Catalog, Envelope, Event, Payload, ToolResult, UiMessage
from turnlog.log import Document, Log, MemoryStore, SqliteStore, Store
from turnlog.state.fold import Reducer
from turnlog.state.pending import build_pending_report
from turnlog.state.tree import scope_without_actor
from turnlog.team.roster import build_roster_report

NAME = "sess_1"
some = examples(5)
Stores = Callable[[Path], Store]
stores = pytest.mark.parametrize(
    "make", [lambda _: MemoryStore(), lambda folder: SqliteStore(folder / "log.db")], ids=["memory", "sqlite"]
)


def counted(state: dict[str, Any], _: Payload, envelope: Envelope) -> dict[str, Any]:
    """How often something came, and when last; one of them cannot be taken."""
    if state.get(envelope.type, [0])[0] == 2:
        raise ValueError("no third one")
    return state | {envelope.type: [state.get(envelope.type, [0])[0] + 1, envelope.seq, envelope.ts]}


class Counter(NamedTuple):
    """An application that counts what comes."""

    name: str = "counter"
    catalog: Catalog = CATALOG
    reducers: Mapping[type[Payload], Reducer] = dict.fromkeys((Agree, UiMessage, ToolResult), counted)
    initial_state: Callable[[], Any] = dict


APP = Counter()


def event_of(item: Item) -> Event:
    """An event as it was before it was stamped."""
    envelope, payload = item
    assert isinstance(payload, Payload)
    scope = msgspec.structs.replace(scope_without_actor(envelope), actor=envelope.actor)
    return CATALOG.build_event(payload, id=envelope.id, origin=envelope.origin, scope=scope)


def shown(panels: ReadModels) -> bytes:
    """All of it, as an answer has it."""
    told = {
        "seq": panels.seq,
        "state": panels.state,
        "transcript": list(panels.transcript.entries.values()),
        "meters": panels.meters.report(),
        "roster": build_roster_report(panels.roster.teams),
        "open": build_pending_report(panels.tree),
    }
    return msgspec.json.encode(told)


async def live(log: Log) -> list[bytes]:
    """What was shown after each event, by a fold that saw it happen."""
    panels = ReadModels(APP)
    moments = [shown(panels)]
    after = -1
    while page := await log.read(NAME, after):
        for envelope in page.envelopes():
            panels.apply(envelope, CATALOG.decode_payload(envelope))
            moments.append(shown(panels))
        after = page.last
    return moments


async def written(log: Log, items: list[Item]) -> None:
    await log.create("counter", NAME)
    for item in items:
        await log.append(NAME, [event_of(item)])


@stores
def test_any_question_in_any_order_has_the_answer_of_the_live_fold(make: Stores) -> None:
    @some
    @given(sessions(), st.data())
    def holds(items: list[Item], data: st.DataObject) -> None:
        asked = data.draw(st.lists(st.integers(-1, len(items) - 1), min_size=1, max_size=8))
        forget = data.draw(st.integers(0, len(asked)))
        every, page = data.draw(st.integers(1, 9)), data.draw(st.sampled_from([1, 4096]))

        async def run(folder: Path) -> None:
            log = Log(make(folder))
            await written(log, items)
            moments = await live(log)
            for number, at in enumerate([*asked, len(items) - 1, *asked]):
                if number == forget:
                    await log.delete_derived()
                again = ReadModelStore(log)  # of another process, if you like
                assert shown(await again.load_read_models(APP, NAME, at)) == moments[at + 1]
            assert shown(await ReadModelStore(log).load_read_models(APP, NAME)) == moments[-1]
            await log.close()

        with ExitStack() as stack:
            stack.enter_context(patch.object(read_models, "SNAPSHOT_EVERY_EVENTS", every))
            stack.enter_context(patch.object(read_models, "MAX_READ_BYTES", page))
            asyncio.run(run(Path(stack.enter_context(tempfile.TemporaryDirectory()))))

    holds()


@stores
def test_documents_asked_for_at_any_moment_are_those_of_a_rebuild(make: Stores) -> None:
    @some
    @given(sessions(), st.data())
    def holds(items: list[Item], data: st.DataObject) -> None:
        moments = set(data.draw(st.lists(st.integers(0, len(items)), max_size=4)))

        async def run(folder: Path) -> None:
            log = Log(make(folder))
            await log.create("counter", NAME)
            for number, item in enumerate(items):
                if number in moments:
                    await ReadModelStore(log).documents(NAME)
                await log.append(NAME, [event_of(item)])
            kept = await ReadModelStore(log).documents(NAME)
            stored = list(await all_items(log))
            version = ReadModelStore(log).documents_version
            expected = [Document(NAME, *made, version) for _, made in sorted(fold_documents(stored).items())]
            assert kept == expected
            await log.delete_derived()
            assert await ReadModelStore(log).documents(NAME) == kept
            await log.close()

        with tempfile.TemporaryDirectory() as folder:
            asyncio.run(run(Path(folder)))

    holds()


async def all_items(log: Log) -> list[Item]:
    found: list[Item] = []
    while page := await log.read(NAME, len(found) - 1):
        found += [(envelope, CATALOG.decode_payload(envelope)) for envelope in page.envelopes()]
    return found
