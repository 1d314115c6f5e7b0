"""What is made of a session's events and kept beside the log: all that is shown as of a seq, and documents.

All of it can be thrown away and made again with the same bytes. A snapshot holds all folds of a session at
one seq, with the code they were made by: other code makes it worthless, and then it is not used. A state that
does not come back from its bytes as it was is not kept. Documents are brought up to date when they are asked
for; how far they are stands beside them. All snapshots together take at most about as much as the events.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from turnlog.app.code import code_of
from turnlog.errors import BadInput, NotFound
from turnlog.events import CATALOG, Catalog, Envelope, Payload, Unknown
from turnlog.log import Document, Head, Log, Row, Store
from turnlog.state.documents import Documents
from turnlog.state.fold import Reducers, fold, guarded
from turnlog.state.meters import Meters
from turnlog.state.snapshot import dump, load
from turnlog.state.transcript import Transcript
from turnlog.state.tree import Tree

PANELS, DOCUMENTS = "panels", "documents"
EVERY = 1000  # events between two snapshots, at least
TAIL_BYTES = 64 * 1024  # one read: little is read in vain after the seq that is asked for


class Reduced(Protocol):
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
    def start(self) -> Callable[[], Any]:
        """The state before them."""
        ...


class Panels:
    """Everything that is shown of a session, as of a seq."""

    def __init__(self, app: Reduced) -> None:
        self._reducers = guarded(app.reducers)  # the live state reports what fails
        self.state = app.start()
        self.transcript = Transcript()
        self.meters = Meters()
        self.tree = Tree()

    @property
    def seq(self) -> int:
        """The seq of the last event."""
        return self.tree.last

    def apply(self, envelope: Envelope, payload: Payload | Unknown) -> None:
        """Take one event into account."""
        self.state = fold(self._reducers, [(envelope, payload)], self.state)
        for kept in (self.transcript, self.meters, self.tree):
            kept.apply(envelope, payload)


class Kept(msgspec.Struct):
    """Panels as they are kept. `pruned` says which live events may have been missing."""

    code: str
    epoch: str
    pruned: int
    state: Raw
    transcript: Raw
    meters: Raw
    tree: Raw


class Written(msgspec.Struct):
    """How far the documents of a session are, and what can still change them."""

    code: str
    epoch: str
    seq: int
    fold: Raw


class Derived:
    """What is made of the sessions of a log."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._codes: dict[str, str] = {}
        self._document_code = code_of(Documents)
        self._locks: dict[str, asyncio.Lock] = {}

    # panels

    async def panels(self, app: Reduced, session_id: str, at: int | None = None) -> Panels:
        """What is shown of a session as of a seq, or now."""
        head = await self._log.info(session_id)
        at = head.last if at is None else at
        if not -1 <= at <= head.last:
            raise BadInput(f"expected a seq up to {head.last}, got {at}", "at")
        panels, kept_bytes = await self._nearest(app, head, at) or (Panels(app), 0)
        if panels.seq < head.first - 1:
            raise NotFound(f"what happened before seq {head.first} is not kept any more")
        events = read_bytes = 0
        async for row, envelope in self._tail(session_id, panels.seq, at):
            panels.apply(envelope, app.catalog.payload(envelope))
            events, read_bytes = events + 1, read_bytes + len(row.frame)
            if events >= EVERY and read_bytes >= kept_bytes:
                kept_bytes = await self._keep(app, head, panels)
                events = read_bytes = 0
        return panels

    async def _tail(self, session_id: str, after: int, to: int) -> AsyncIterator[tuple[Row, Envelope]]:
        """The events after a seq, up to another."""
        while after < to and (page := await self._log.read(session_id, after, max_bytes=TAIL_BYTES)):
            for row, envelope in zip(page, page.envelopes(), strict=True):
                if row.seq > to:
                    break
                yield row, envelope
            after = page.last

    async def _nearest(self, app: Reduced, head: Head, at: int) -> tuple[Panels, int] | None:
        """The newest panels that were kept by this code, and their size."""
        found = await self._log.snapshot(head.session_id, PANELS, at)
        if found is None:
            return None
        try:
            kept = msgspec.json.decode(found[1], type=Kept)
            if (kept.code, kept.epoch, kept.pruned) != (self._code(app), head.epoch, head.pruned):
                return None
            panels = Panels(app)
            panels.state = load(type(panels.state), bytes(kept.state))
            panels.transcript = load(Transcript, bytes(kept.transcript))
            panels.meters = load(Meters, bytes(kept.meters))
            panels.tree = load(Tree, bytes(kept.tree))
        except (msgspec.ValidationError, BadInput):  # of another version
            return None
        return panels, len(found[1])

    async def _keep(self, app: Reduced, head: Head, panels: Panels) -> int:
        """Keep panels, if that can be done; their size."""
        if not self._log.writable or (state := kept_state(panels.state)) is None:
            return 0
        parts = [Raw(dump(part)) for part in (panels.transcript, panels.meters, panels.tree)]
        kept = Kept(self._code(app), head.epoch, head.pruned, Raw(state), *parts)
        body = msgspec.json.encode(kept)
        await self._log.put_snapshot(head.session_id, PANELS, panels.seq, body)
        return len(body)

    def _code(self, app: Reduced) -> str:
        if app.name not in self._codes:
            made = (app.start, *app.reducers, *app.reducers.values(), Transcript, Meters, Tree)
            self._codes[app.name] = code_of(*made)
        return self._codes[app.name]

    # documents

    async def documents(
        self, session_id: str, *, type: str | None = None, category: str | None = None
    ) -> list[Document]:
        """The documents of a session, up to date."""
        await self.write_documents(session_id)
        return await self._log.documents(session_id, type=type, category=category)

    async def write_documents(self, session_id: str) -> None:
        """Bring the documents of a session up to date."""
        async with self._locks.setdefault(session_id, asyncio.Lock()):  # who is behind must not write last
            head = await self._log.info(session_id)
            seq, kept = await self._documented(head)
            if seq >= head.last:
                return
            changed: dict[str, Document] = {}
            while page := await self._log.read(session_id, seq, origin=-1):
                for envelope in page.envelopes():
                    for document in kept.apply(envelope, CATALOG.payload(envelope)):
                        changed[document.id] = Document(session_id, *document)
                seq = page.last
            written = Written(self._document_code, head.epoch, max(seq, head.last), Raw(dump(kept)))
            body = msgspec.json.encode(written)
            await self._log.work(lambda store: write(store, session_id, changed.values(), body))

    async def _documented(self, head: Head) -> tuple[int, Documents]:
        """How far the documents of a session are; those of other code, or another history, are forgotten."""
        found = await self._log.snapshot(head.session_id, DOCUMENTS, 0)
        if found is None:
            return -1, Documents()
        try:
            written = msgspec.json.decode(found[1], type=Written)
            if (written.code, written.epoch) == (self._document_code, head.epoch):
                return written.seq, load(Documents, bytes(written.fold))
        except (msgspec.ValidationError, BadInput):
            pass  # of another version
        await self._log.forget_derived(head.session_id)
        return -1, Documents()


def write(store: Store, session_id: str, documents: Iterable[Document], body: bytes) -> None:
    """Documents, and how far they are, in one transaction."""
    for document in documents:
        store.put_document(document)
    store.put_snapshot(session_id, DOCUMENTS, 0, body)


def kept_state(state: Any) -> bytes | None:
    """A state as bytes, if it comes back as it was."""
    try:
        data = dump(state)
        return data if load(type(state), data) == state else None
    except (TypeError, ValueError, BadInput):
        return None
