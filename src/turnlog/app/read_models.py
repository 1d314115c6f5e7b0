"""What is made of a session's events and kept beside the log: all that is shown as of a seq, and documents.

All of it can be thrown away and made again with the same bytes. A snapshot holds one read model of a session
at one seq (`PARTS`), with the code it was made by: one of other code is removed when it is met. A question
reads the snapshots of the parts that it asks for. A state that does not come back from its bytes as it was is
not kept. Documents are stored, and how far they are, when there are many new events; a question folds the
events after that. The snapshots of a part take at most about as much as the events. Of a ring that lets go of
its oldest events, what is shown is kept as of there, and older snapshots are removed.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Protocol, TypeVar
from weakref import WeakValueDictionary

import msgspec
from msgspec import Raw

from turnlog.app.code_version import code_fingerprint
from turnlog.errors import BadInput, NotFound
from turnlog.events import CATALOG, Catalog, Envelope, Payload, UnknownPayload, decode_envelope
from turnlog.log import Document, Log, Row, SessionRecord, Store, envelope_json
from turnlog.state.documents import Documents
from turnlog.state.fold import Fold, Reducers, fold, guard_reducers
from turnlog.state.meters import Meters
from turnlog.state.snapshot import dump, load
from turnlog.state.transcript import Transcript
from turnlog.state.tree import Tree
from turnlog.team.roster import Roster

STATE, DOCUMENTS = "state", "documents"
FOLDS: dict[str, type[Fold]] = {"transcript": Transcript, "meters": Meters, "tree": Tree, "roster": Roster}
READ_MODEL_NAMES = (STATE, *FOLDS)
SNAPSHOT_EVERY_EVENTS = 1000  # events between two snapshots, or two writes of documents, at least
MAX_READ_BYTES = 64 * 1024  # one read: little is read in vain after the seq that is asked for


F = TypeVar("F", bound=Fold)


Charge = Callable[[int], None]


def charge_nothing(size_bytes: int) -> None:
    """Where nothing has a budget."""


class StateDefinition(Protocol):
    """What an application makes of its events; an `App` is one."""

    @property
    def name(self) -> str:
        """What it is called."""
        ...

    @property
    def catalog(self) -> Catalog:
        """Its events."""
        ...

    @property
    def reducers(self) -> Reducers:
        """How they change its state."""
        ...

    @property
    def initial_state(self) -> Callable[[], Any]:
        """The state before them."""
        ...


class ReadModel:
    """One read model of a session, as of a seq: the application's state, or a fold."""

    def __init__(self, name: str, value: Any, seq: int = -1, stored_bytes: int = 0) -> None:
        self.name = name
        self.value = value
        self.seq = seq
        self.stored_bytes = stored_bytes  # the size of its newest snapshot
        self.new_events = 0  # since then
        self.new_bytes = 0

    @property
    def is_due(self) -> bool:
        """Whether the next snapshot is to be stored."""
        return self.new_events >= SNAPSHOT_EVERY_EVENTS and self.new_bytes >= self.stored_bytes

    def note_stored(self, size_bytes: int) -> None:
        self.stored_bytes, self.new_events, self.new_bytes = size_bytes, 0, 0


class ReadModels:
    """What is shown of a session, as of a seq: every part, or those that are named."""

    def __init__(self, app: StateDefinition, names: Iterable[str] = READ_MODEL_NAMES) -> None:
        self._reducers = guard_reducers(app.reducers)  # the live state reports what fails
        self.models = {
            name: ReadModel(name, app.initial_state() if name == STATE else FOLDS[name]()) for name in names
        }

    @property
    def seq(self) -> int:
        """The seq of the last event that every part has."""
        return min(part.seq for part in self.models.values())

    @property
    def state(self) -> Any:
        return self.models[STATE].value

    @property
    def transcript(self) -> Transcript:
        return self._fold(Transcript, "transcript")

    @property
    def meters(self) -> Meters:
        return self._fold(Meters, "meters")

    @property
    def tree(self) -> Tree:
        return self._fold(Tree, "tree")

    @property
    def roster(self) -> Roster:
        return self._fold(Roster, "roster")

    def _fold(self, kind: type[F], name: str) -> F:
        value: F = self.models[name].value
        return value

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        """Take one event into account, in the parts that do not have it."""
        for part in self.models.values():
            if envelope.seq <= part.seq:
                continue
            if part.name == STATE:
                part.value = fold(self._reducers, [(envelope, payload)], part.value)
            else:
                part.value.apply(envelope, payload)
            part.seq = envelope.seq


class ReadModelSnapshot(msgspec.Struct):
    """A part as it is kept. `pruned` says which live events may have been missing."""

    code: str
    epoch: str
    pruned: int
    value: Raw


class DocumentsSnapshot(msgspec.Struct):
    """How far the documents of a session are, and what can still change them."""

    code: str
    epoch: str
    seq: int
    fold: Raw


Snapshot = tuple[int, bytes]


class ReadModelStore:
    """What is made of the sessions of a log."""

    def __init__(self, log: Log, apps: Mapping[str, StateDefinition] = {}) -> None:
        self._log = log
        self._apps = apps
        self._evicted_models: dict[str, ReadModels] = {}
        if apps:
            log.set_evict_callback(self._on_evict)
        self._code_versions: dict[str, str] = {}
        self._documents_code_version = code_fingerprint(Documents)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # while one is held

    # panels

    async def load_read_models(
        self,
        app: StateDefinition,
        session_id: str,
        at: int | None = None,
        names: Iterable[str] = READ_MODEL_NAMES,
        charge: Charge = charge_nothing,
    ) -> ReadModels:
        """What is shown of a session as of a seq, or now: every part, or those that are named.

        `charge` is told what was read.
        """
        panels = None
        while panels is None:
            head = await self._log.info(session_id)
            wanted = head.last if at is None else at
            if not -1 <= wanted <= head.last:
                raise BadInput(f"expected a seq up to {head.last}, got {at}", "at")
            found = ReadModels(app, names)
            for name in found.models:
                found.models[name] = await self._latest_snapshot(app, head, wanted, found.models[name])
                charge(found.models[name].stored_bytes)
            newest = max(part.seq for part in found.models.values())
            if newest <= wanted:
                panels = await self._replay(app, head, found, wanted, charge)
            elif at is not None:
                raise NotFound(f"what happened before seq {newest} is not kept any more")
        return panels

    async def _replay(
        self, app: StateDefinition, head: SessionRecord, models: ReadModels, at: int, charge: Charge
    ) -> ReadModels | None:
        """Panels with the events up to a seq, kept now and then; None if some went before they were read."""
        while models.seq < at:
            page = await self._log.read(head.session_id, models.seq, max_bytes=MAX_READ_BYTES)
            charge(page.size_bytes)
            if (not page or page.first > models.seq + 1) and await self._is_evicted(head, models.seq + 1):
                return None
            for row, envelope in zip(page, page.envelopes(), strict=True):
                if row.seq > at:
                    return models
                news = [part for part in models.models.values() if part.seq < row.seq]
                models.apply(envelope, app.catalog.decode_payload(envelope))
                for part in news:
                    part.new_events += 1
                    part.new_bytes += len(row.frame)
                    if part.is_due:
                        part.note_stored(await self._store_snapshot(app, head, part))
            if not page:
                break
        return models

    async def _is_evicted(self, head: SessionRecord, seq: int) -> bool:
        """Whether a ring has let go of a seq; if it had when the question came, nobody has an answer."""
        if seq < head.first:
            raise NotFound(f"what happened before seq {head.first} is not kept any more")
        return seq < (await self._log.info(head.session_id)).first

    async def _latest_snapshot(
        self, app: StateDefinition, head: SessionRecord, at: int, empty: ReadModel
    ) -> ReadModel:
        """A part as it was kept last by this code, or as of the cut of a ring, or empty.

        Snapshots of other code may stand before those of this one.
        """
        name, part, before = empty.name, empty, at
        while part is empty and (found := await self._log.snapshot(head.session_id, name, before)):
            seq, body = found
            part = self._decode_snapshot(app, head, empty, seq, body) or empty
            if part is empty and self._log.writable:
                await self._log.drop_snapshots(head.session_id, name, seq, seq)
            before = seq - 1
        cut = self._evicted_models.get(head.session_id)
        if cut is not None and part.seq < cut.seq and part.seq < at:
            # the ring has let go of what follows the snapshot
            return copy_read_model(cut.models[name])
        return part

    def _decode_snapshot(
        self, app: StateDefinition, head: SessionRecord, empty: ReadModel, seq: int, body: bytes
    ) -> ReadModel | None:
        """A part as it was kept, if that was by this code and of this history."""
        try:
            kept = msgspec.json.decode(body, type=ReadModelSnapshot)
            if (kept.code, kept.epoch, kept.pruned) != (
                self._code_version(app),
                head.epoch,
                head.pruned_through,
            ):
                return None
            value = load(type(empty.value), bytes(kept.value))
        except (ValueError, BadInput):  # of another version
            return None
        return ReadModel(empty.name, value, seq, len(body))

    async def _store_snapshot(self, app: StateDefinition, head: SessionRecord, part: ReadModel) -> int:
        """Keep a part, if that can be done; return its size."""
        value = encode_state(part.value) if part.name == STATE else dump(part.value)
        if not self._log.writable or value is None:
            return 0
        body = msgspec.json.encode(
            ReadModelSnapshot(self._code_version(app), head.epoch, head.pruned_through, Raw(value))
        )
        await self._log.put_snapshot(head.session_id, part.name, part.seq, body)
        return len(body)

    def _on_evict(self, store: Store, head: SessionRecord, rows: Sequence[Row]) -> None:
        """Take events into account that are about to go, for all that is shown and for the documents."""
        app = self._apps.get(head.app)
        if app is None:
            return
        panels = self._evicted_models.setdefault(head.session_id, ReadModels(app))
        for row in rows:
            envelope = decode_envelope(envelope_json(row))
            panels.apply(envelope, app.catalog.decode_payload(envelope))
        for name in READ_MODEL_NAMES:
            store.drop_snapshots(head.session_id, name, 0, panels.seq)
        found = store.snapshot(head.session_id, DOCUMENTS, 0)
        seq, kept = self._decode_documents(head, found) or (-1, Documents())
        news = DocumentUpdate(head.session_id, kept, seq)
        news.apply(rows)
        if news.seq > seq:
            write_document_update(store, news, self._encode_documents(head, news), found)

    def _code_version(self, app: StateDefinition) -> str:
        if app.name not in self._code_versions:
            made = (
                app.initial_state,
                *app.reducers,
                *app.reducers.values(),
                Transcript,
                Meters,
                Tree,
                Roster,
            )
            self._code_versions[app.name] = code_fingerprint(*made)
        return self._code_versions[app.name]

    # documents

    async def documents(
        self,
        session_id: str,
        *,
        type: str | None = None,
        category: str | None = None,
        charge: Charge = charge_nothing,
    ) -> list[Document]:
        """The documents of a session as of now, by id; they are stored if many events have come since.

        `charge` is told what was read.
        """
        while True:
            head = await self._log.info(session_id)
            found = await self._log.snapshot(session_id, DOCUMENTS, 0)
            known = self._decode_documents(head, found)
            news = await self._read_document_update(head, *(known or (-1, Documents())))
            stored = await self._log.documents(session_id, type=type, category=category) if known else []
            charge(len(found[1] if found else b"") + news.read_bytes + sum(len(one.body) for one in stored))
            if await self._log.snapshot(session_id, DOCUMENTS, 0) != found:
                continue  # another question has stored documents meanwhile, or a ring let go of events
            if news.events >= SNAPSHOT_EVERY_EVENTS and self._log.writable:
                if known is None and found is not None:
                    await self._log.delete_derived(session_id)
                    found = None
                await self._log.transact(
                    partial(
                        write_document_update,
                        update=news,
                        body=self._encode_documents(head, news),
                        expected_snapshot=found,
                    )
                )
            return merge_documents(stored, news, type, category)

    async def _read_document_update(
        self, head: SessionRecord, seq: int, documents_fold: Documents
    ) -> "DocumentUpdate":
        """What the events after a seq make of the documents."""
        news = DocumentUpdate(head.session_id, documents_fold, seq)
        while news.seq < head.last and (
            page := await self._log.read(head.session_id, news.seq, replay_from=-1)
        ):
            news.apply(page)
        news.seq = max(news.seq, head.last)
        return news

    async def write_documents(self, session_id: str) -> None:
        """Bring the documents of a session up to date; those of other code, or another history, go first."""
        lock = self._locks.setdefault(session_id, asyncio.Lock())
        async with lock:  # who is behind must not write last
            while not await self._write_documents(session_id):
                pass

    async def _write_documents(self, session_id: str) -> bool:
        """Whether it is done: it is not if somebody else wrote meanwhile."""
        head = await self._log.info(session_id)
        found = await self._log.snapshot(session_id, DOCUMENTS, 0)
        known = self._decode_documents(head, found)
        if found is not None and known is None:
            await self._log.delete_derived(session_id)
            return False
        seq, kept = known or (-1, Documents())
        if seq >= head.last:
            return True
        news = await self._read_document_update(head, seq, kept)
        body = self._encode_documents(head, news)
        return await self._log.transact(
            partial(write_document_update, update=news, body=body, expected_snapshot=found)
        )

    def _decode_documents(
        self, head: SessionRecord, snapshot: Snapshot | None
    ) -> tuple[int, Documents] | None:
        """How far this code has brought the documents of this history."""
        try:
            written = msgspec.json.decode(snapshot[1], type=DocumentsSnapshot) if snapshot else None
            if written and (written.code, written.epoch) == (self._documents_code_version, head.epoch):
                return written.seq, load(Documents, bytes(written.fold))
        except (msgspec.ValidationError, BadInput):
            pass  # of another version
        return None

    def _encode_documents(self, head: SessionRecord, update: "DocumentUpdate") -> bytes:
        return msgspec.json.encode(
            DocumentsSnapshot(
                self._documents_code_version, head.epoch, update.seq, Raw(dump(update.documents_fold))
            )
        )


class DocumentUpdate:
    """The documents of a session that events after a seq change."""

    def __init__(self, session_id: str, documents_fold: Documents, seq: int) -> None:
        self.session_id = session_id
        self.documents_fold = documents_fold
        self.seq = seq
        self.events = 0
        self.read_bytes = 0
        self.documents: dict[str, Document] = {}

    def apply(self, rows: Iterable[Row]) -> None:
        """Take events into account that have not been."""
        for row in rows:
            if row.seq > self.seq:
                envelope = decode_envelope(envelope_json(row))
                for document in self.documents_fold.apply(envelope, CATALOG.decode_payload(envelope)):
                    self.documents[document.id] = Document(self.session_id, *document)
                self.seq = row.seq
                self.events += 1
                self.read_bytes += len(row.frame)


def merge_documents(
    stored: Sequence[Document], update: DocumentUpdate, type: str | None, category: str | None
) -> list[Document]:
    """Stored documents with those that have changed since in their place, as far as they match, by id."""
    fresh = [
        one
        for one in update.documents.values()
        if type in (None, one.type) and category in (None, one.category)
    ]
    unchanged = [one for one in stored if one.id not in update.documents]
    return sorted([*unchanged, *fresh], key=lambda one: one.id)


def write_document_update(
    store: Store, update: DocumentUpdate, body: bytes, expected_snapshot: Snapshot | None
) -> bool:
    """Documents, and how far they are, in one transaction, if they are where they were found."""
    if store.snapshot(update.session_id, DOCUMENTS, 0) != expected_snapshot:
        return False
    for document in update.documents.values():
        store.put_document(document)
    store.put_snapshot(update.session_id, DOCUMENTS, 0, body)
    return True


def copy_read_model(part: ReadModel) -> ReadModel:
    """A part of its own; an application's state is one that reducers do not change."""
    value = part.value if part.name == STATE else load(type(part.value), dump(part.value))
    return ReadModel(part.name, value, part.seq)


def encode_state(state: Any) -> bytes | None:
    """A state as bytes, if it comes back as it was."""
    try:
        data = dump(state)
        return data if load(type(state), data) == state else None
    except (TypeError, ValueError, BadInput):
        return None


async def state_at(log: Log, app: StateDefinition, session_id: str, seq: int) -> Any:
    """The state of an application in a session as of a seq: the nearest snapshot, and the events after it."""
    return (await ReadModelStore(log).load_read_models(app, session_id, seq, [STATE])).state
