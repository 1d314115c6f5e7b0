"""Read models of a session as of any seq, and its documents; both are derived from the log.

All of it can be deleted and rebuilt with the same bytes. A snapshot has one read model at one seq. Its
version is the fingerprint of its code: two versions of an application, during a deploy, do not use or delete
each other's snapshots and documents. A query loads the nearest snapshots of the models it needs and replays
the events after them. A state that does not round-trip through its bytes is not stored. Documents are stored,
with the seq they are as of, when there are many new events.

Limits: the snapshots of a model take at most about as much space as the events. What another version has
stored is deleted a day later. If a bounded store evicts events, the models as of the last evicted event are
kept in memory, and older snapshots are deleted.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol, TypeVar
from weakref import WeakValueDictionary

import msgspec
from msgspec import Raw

from turnlog.app.code_version import code_fingerprint
from turnlog.errors import BadInput, NotFound
from turnlog.events import Catalog, Envelope, Payload, UnknownPayload, decode_envelope
from turnlog.log import Document, Log, Row, SessionRecord, Snapshot, envelope_json
from turnlog.log.jobs import DropSnapshots, ReplaceSnapshot
from turnlog.log.store import DerivedWriter
from turnlog.state.blob_references import BlobReferences
from turnlog.state.fold import Fold, Reducers, fold, guard_reducers
from turnlog.state.meters import Meters
from turnlog.state.snapshot import dump, load
from turnlog.state.transcript import Transcript
from turnlog.state.tree import Tree
from turnlog.team.documents import Documents
from turnlog.team.roster import Roster
from turnlog.vocabularies import FULL_CATALOG

STATE = "state"
DOCUMENTS = "documents"
FOLDS: dict[str, type[Fold]] = {
    "transcript": Transcript,
    "meters": Meters,
    "tree": Tree,
    "roster": Roster,
    "blobs": BlobReferences,
}
READ_MODEL_NAMES = (STATE, *FOLDS)
SNAPSHOT_EVERY_EVENTS = 1000  # at least, between two snapshots or two writes of documents
OLD_VERSION_MS = 24 * 3600 * 1000  # a deploy of two versions side by side takes less
MAX_READ_BYTES = 64 * 1024  # of one read: few events after the requested seq are read in vain

F = TypeVar("F", bound=Fold)
Charge = Callable[[int], None]  # is called with the number of bytes that were read


def charge_nothing(size_bytes: int) -> None:
    """Do nothing, for callers without a read budget."""


class StateDefinition(Protocol):
    """The parts of an application that define its state; an `App` is one."""

    @property
    def name(self) -> str: ...

    @property
    def catalog(self) -> Catalog: ...

    @property
    def reducers(self) -> Reducers: ...

    @property
    def initial_state(self) -> Callable[[], Any]:
        """Return a function that builds the state before the first event."""
        ...


class ReadModel:
    """One read model of a session, as of a seq: the application's state, or a fold."""

    def __init__(self, name: str, value: Any, seq: int = -1, stored_bytes: int = 0) -> None:
        self.name = name
        self.value = value
        self.seq = seq
        self.stored_bytes = stored_bytes  # of its newest snapshot
        self.new_events = 0  # since that snapshot
        self.new_bytes = 0

    @property
    def is_due(self) -> bool:
        return self.new_events >= SNAPSHOT_EVERY_EVENTS and self.new_bytes >= self.stored_bytes

    def note_stored(self, size_bytes: int) -> None:
        self.stored_bytes = size_bytes
        self.new_events = 0
        self.new_bytes = 0


class ReadModels:
    """Some read models of a session, by name."""

    def __init__(self, app: StateDefinition, names: Iterable[str] = READ_MODEL_NAMES) -> None:
        self._reducers = guard_reducers(app.reducers)  # without logging: the live state logs errors
        self.models: dict[str, ReadModel] = {}
        for name in names:
            value = app.initial_state() if name == STATE else FOLDS[name]()
            self.models[name] = ReadModel(name, value)

    @property
    def seq(self) -> int:
        return min(model.seq for model in self.models.values())

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

    @property
    def blobs(self) -> BlobReferences:
        return self._fold(BlobReferences, "blobs")

    def _fold(self, kind: type[F], name: str) -> F:
        value: F = self.models[name].value
        return value

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload) -> None:
        for model in self.models.values():
            if envelope.seq <= model.seq:
                continue
            if model.name == STATE:
                model.value = fold(self._reducers, [(envelope, payload)], model.value)
            else:
                model.value.apply(envelope, payload)
            model.seq = envelope.seq


class ReadModelSnapshot(msgspec.Struct):
    """A stored read model. `pruned` is the seq up to which live events were pruned when it was built."""

    epoch: str
    pruned: int
    value: Raw


class DocumentsSnapshot(msgspec.Struct):
    """The seq that the stored documents of a session are as of, and their fold."""

    epoch: str
    seq: int
    fold: Raw


class ReadModelStore:
    """Builds, stores and loads the read models and documents of a log's sessions."""

    def __init__(self, log: Log, apps: Mapping[str, StateDefinition] = {}) -> None:
        self._log = log
        self._apps = apps
        self._evicted_models: dict[str, ReadModels] = {}
        if apps:
            log.set_evict_callback(self._on_evict)
        self._code_versions: dict[str, str] = {}
        self.documents_version = code_fingerprint(Documents)
        # a lock lives while it is in use
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def forget(self, session_id: str) -> None:
        """Drop the models of evicted events of a session that is deleted."""
        self._evicted_models.pop(session_id, None)

    # read models

    async def load_read_models(
        self,
        app: StateDefinition,
        session_id: str,
        at: int | None = None,
        names: Iterable[str] = READ_MODEL_NAMES,
        charge: Charge = charge_nothing,
    ) -> ReadModels:
        """Return read models as of the seq `at`, or now. `charge` is called with the bytes that were read.

        Raise `BadInput` for a seq that does not exist, and `NotFound` for one before the evicted events.
        """
        while True:
            record = await self._log.info(session_id)
            target = record.last if at is None else at
            if not -1 <= target <= record.last:
                raise BadInput(f"expected a seq up to {record.last}, got {at}", "at")

            models = ReadModels(app, names)
            for name, empty in models.models.items():
                model = await self._latest_snapshot(app, record, target, empty)
                models.models[name] = model
                charge(model.stored_bytes)

            newest = max(model.seq for model in models.models.values())
            if newest <= target:
                replayed = await self._replay(app, record, models, target, charge)
                if replayed is not None:
                    return replayed
            elif at is not None:
                raise NotFound(f"the events before seq {newest} are not kept any more")
            # the store evicted events meanwhile: start over

    async def _replay(
        self, app: StateDefinition, record: SessionRecord, models: ReadModels, at: int, charge: Charge
    ) -> ReadModels | None:
        """Fold the events up to a seq, and store snapshots that are due.

        Return None if the store evicted events before they were read.
        """
        while models.seq < at:
            page = await self._log.read(record.session_id, models.seq, max_bytes=MAX_READ_BYTES)
            charge(page.size_bytes)
            if (not page or page.first > models.seq + 1) and await self._is_evicted(record, models.seq + 1):
                return None
            for row, envelope in zip(page, page.envelopes(), strict=True):
                if row.seq > at:
                    return models
                behind = [model for model in models.models.values() if model.seq < row.seq]
                models.apply(envelope, app.catalog.decode_payload(envelope))
                for model in behind:
                    model.new_events += 1
                    model.new_bytes += len(row.frame)
                    if model.is_due:
                        model.note_stored(await self._store_snapshot(app, record, model))
            if not page:
                break
        return models

    async def _is_evicted(self, record: SessionRecord, seq: int) -> bool:
        """Return whether the store has evicted a seq meanwhile. Raise `NotFound` if it had before."""
        if seq < record.first:
            raise NotFound(f"the events before seq {record.first} are not kept any more")
        return seq < (await self._log.info(record.session_id)).first

    async def _latest_snapshot(
        self, app: StateDefinition, record: SessionRecord, at: int, empty: ReadModel
    ) -> ReadModel:
        """Return the model of the newest usable snapshot up to `at`, or as of the eviction, or `empty`.

        Snapshots of another history are deleted on the way.
        """
        name = empty.name
        version = self.code_version(app)
        model = empty
        before = at
        while model is empty:
            snapshot = await self._log.snapshot(record.session_id, name, before, version)
            if snapshot is None:
                break
            seq, body = snapshot
            decoded = self._decode_snapshot(record, empty, seq, body)
            if decoded is not None:
                model = decoded
            elif self._log.writable:
                await self._log.drop_snapshots(record.session_id, name, seq, seq, version)
            before = seq - 1

        evicted = self._evicted_models.get(record.session_id)
        if evicted is not None and model.seq < evicted.seq and model.seq < at:
            # the store has evicted the events after the snapshot
            return copy_read_model(evicted.models[name])
        return model

    def _decode_snapshot(
        self, record: SessionRecord, empty: ReadModel, seq: int, body: bytes
    ) -> ReadModel | None:
        """Return the model of a snapshot; None if it is of another history."""
        try:
            snapshot = msgspec.json.decode(body, type=ReadModelSnapshot)
            if (snapshot.epoch, snapshot.pruned) != (record.epoch, record.pruned_through):
                return None
            value = load(type(empty.value), bytes(snapshot.value))
        except (ValueError, BadInput):  # not what this code stores
            return None
        return ReadModel(empty.name, value, seq, len(body))

    async def _store_snapshot(self, app: StateDefinition, record: SessionRecord, model: ReadModel) -> int:
        """Store a snapshot. Return its size, or 0 if the log or the state cannot be stored."""
        value = encode_state(model.value) if model.name == STATE else dump(model.value)
        if not self._log.writable or value is None:
            return 0
        body = msgspec.json.encode(ReadModelSnapshot(record.epoch, record.pruned_through, Raw(value)))
        version = self.code_version(app)
        await self._log.put_snapshot(record.session_id, model.name, model.seq, body, version)
        await self._log.collect_derived(
            record.session_id, [version, self.documents_version], older_ms=OLD_VERSION_MS
        )
        return len(body)

    def _on_evict(self, store: DerivedWriter, record: SessionRecord, rows: Sequence[Row]) -> None:
        app = self._apps.get(record.app)
        if app is None:
            return
        models = self._evicted_models.setdefault(record.session_id, ReadModels(app))
        for row in rows:
            envelope = decode_envelope(envelope_json(row))
            models.apply(envelope, app.catalog.decode_payload(envelope))
        for name in READ_MODEL_NAMES:
            store.put_derived(DropSnapshots(record.session_id, name, 0, models.seq, self.code_version(app)))

        stored = store.snapshot(record.session_id, DOCUMENTS, 0, self.documents_version)
        body = stored[1] if stored else None
        seq, documents_fold = self._decode_documents(record, body) or (-1, Documents())
        update = DocumentUpdate(record.session_id, documents_fold, seq, self.documents_version)
        update.apply(rows)
        if update.seq > seq:
            snapshot = self._documents_snapshot(record, update)
            documents = tuple(update.documents.values())
            store.put_derived(ReplaceSnapshot(snapshot, body, documents, record.updated_ms))

    def code_version(self, app: StateDefinition) -> str:
        """Return the version of an application's snapshots."""
        if app.name not in self._code_versions:
            self._code_versions[app.name] = code_fingerprint(
                app.initial_state, *app.reducers, *app.reducers.values(), *FOLDS.values()
            )
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
        """Return the documents of a session as of now, by id. Store them if there are many new events.

        `charge` is called with the bytes that were read.
        """
        while True:
            record = await self._log.info(session_id)
            body = await self._documents_body(session_id)
            decoded = self._decode_documents(record, body)
            seq, documents_fold = decoded or (-1, Documents())
            update = await self._read_document_update(record, seq, documents_fold)
            stored: list[Document] = []
            if decoded is not None:
                stored = await self._log.documents(
                    session_id, type=type, category=category, version=self.documents_version
                )

            charge(len(body or b"") + update.read_bytes + sum(len(document.body) for document in stored))
            # another query has stored documents meanwhile, or the store has evicted events: start over
            if await self._documents_body(session_id) != body:
                continue
            if update.events >= SNAPSHOT_EVERY_EVENTS and self._log.writable:
                if decoded is None and body is not None:
                    await self._log.delete_derived(session_id, self.documents_version)
                    body = None
                await self._write_update(record, update, body)
            return merge_documents(stored, update, type, category)

    async def _documents_body(self, session_id: str) -> bytes | None:
        """Return the encoded `DocumentsSnapshot` of a session; None if there is none."""
        stored = await self._log.snapshot(session_id, DOCUMENTS, 0, self.documents_version)
        return stored[1] if stored else None

    async def _write_update(
        self, record: SessionRecord, update: "DocumentUpdate", expected_body: bytes | None
    ) -> bool:
        snapshot = self._documents_snapshot(record, update)
        return await self._log.replace_snapshot(snapshot, expected_body, list(update.documents.values()))

    async def _read_document_update(
        self, record: SessionRecord, seq: int, documents_fold: Documents
    ) -> "DocumentUpdate":
        update = DocumentUpdate(record.session_id, documents_fold, seq, self.documents_version)
        while update.seq < record.last:
            page = await self._log.read(record.session_id, update.seq, replay_from=-1)
            if not page:
                break
            update.apply(page)
        update.seq = max(update.seq, record.last)
        return update

    async def write_documents(self, session_id: str) -> None:
        """Delete documents of another history, then bring the stored ones up to date."""
        lock = self._locks.setdefault(session_id, asyncio.Lock())
        async with lock:
            while not await self._write_documents(session_id):
                pass

    async def _write_documents(self, session_id: str) -> bool:
        """Return True if it is done, False if it must be tried again."""
        record = await self._log.info(session_id)
        body = await self._documents_body(session_id)
        decoded = self._decode_documents(record, body)
        if body is not None and decoded is None:
            await self._log.delete_derived(session_id, self.documents_version)
            return False
        seq, documents_fold = decoded or (-1, Documents())
        if seq >= record.last:
            return True
        update = await self._read_document_update(record, seq, documents_fold)
        return await self._write_update(record, update, body)

    def _decode_documents(self, record: SessionRecord, body: bytes | None) -> tuple[int, Documents] | None:
        if body is None:
            return None
        try:
            decoded = msgspec.json.decode(body, type=DocumentsSnapshot)
            if decoded.epoch != record.epoch:
                return None
            return decoded.seq, load(Documents, bytes(decoded.fold))
        except (msgspec.ValidationError, BadInput):  # not what this code stores
            return None

    def _documents_snapshot(self, record: SessionRecord, update: "DocumentUpdate") -> Snapshot:
        documents_fold = Raw(dump(update.documents_fold))
        body = msgspec.json.encode(DocumentsSnapshot(record.epoch, update.seq, documents_fold))
        return Snapshot(record.session_id, DOCUMENTS, 0, body, self.documents_version)


class DocumentUpdate:
    """The documents of a session that events after a seq change."""

    def __init__(self, session_id: str, documents_fold: Documents, seq: int, version: str) -> None:
        self.session_id = session_id
        self.version = version
        self.documents_fold = documents_fold
        self.seq = seq
        self.events = 0
        self.read_bytes = 0
        self.documents: dict[str, Document] = {}

    def apply(self, rows: Iterable[Row]) -> None:
        for row in rows:
            if row.seq <= self.seq:
                continue
            envelope = decode_envelope(envelope_json(row))
            for document in self.documents_fold.apply(envelope, FULL_CATALOG.decode_payload(envelope)):
                self.documents[document.id] = Document(self.session_id, *document, self.version)
            self.seq = row.seq
            self.events += 1
            self.read_bytes += len(row.frame)


def merge_documents(
    stored: Sequence[Document], update: DocumentUpdate, type: str | None, category: str | None
) -> list[Document]:
    changed = [
        document
        for document in update.documents.values()
        if type in (None, document.type) and category in (None, document.category)
    ]
    unchanged = [document for document in stored if document.id not in update.documents]
    return sorted([*unchanged, *changed], key=lambda document: document.id)


def copy_read_model(model: ReadModel) -> ReadModel:
    # reducers return a new state, but folds change in place
    value = model.value if model.name == STATE else load(type(model.value), dump(model.value))
    return ReadModel(model.name, value, model.seq)


def encode_state(state: Any) -> bytes | None:
    """Return a state as bytes; None if it does not round-trip."""
    try:
        data = dump(state)
        return data if load(type(state), data) == state else None
    except (TypeError, ValueError, BadInput):
        return None


async def state_at(log: Log, app: StateDefinition, session_id: str, seq: int) -> Any:
    """Return the state of an application in a session as of a seq."""
    read_models = await ReadModelStore(log).load_read_models(app, session_id, seq, [STATE])
    return read_models.state
