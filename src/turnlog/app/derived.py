"""What is made of a session's events and kept beside the log: all that is shown as of a seq, and documents.

All of it can be thrown away and made again with the same bytes. A snapshot holds all folds of a session at
one seq, with the code they were made by: other reducers make it worthless, and then it is not used. A state
that does not come back from its bytes as it was is not kept. Documents are brought up to date when they are
asked for; how far they are stands beside them.
"""

import inspect
import secrets
import sys
from collections.abc import Callable, Iterable
from hashlib import sha256
from typing import Any, Protocol

import msgspec
from msgspec import Raw

from turnlog.errors import BadInput, NotFound
from turnlog.events import CATALOG, Catalog, Envelope, Payload, Unknown
from turnlog.log import Document, Head, Log, Store
from turnlog.state.documents import Documents
from turnlog.state.fold import Reducers, fold
from turnlog.state.meters import Meters
from turnlog.state.snapshot import dump, load
from turnlog.state.transcript import Transcript
from turnlog.state.tree import Tree

PANELS, DOCUMENTS = "panels", "documents"
EVERY = 1000  # events between two snapshots: what a question about any seq has to read at most


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
        self._app = app
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
        self.state = fold(self._app.reducers, [(envelope, payload)], self.state)
        for kept in (self.transcript, self.meters, self.tree):
            kept.apply(envelope, payload)


class Kept(msgspec.Struct):
    """Panels as they are kept."""

    code: str
    epoch: str
    state: Raw
    transcript: Raw
    meters: Raw
    tree: Raw


class Written(msgspec.Struct):
    """How far the documents of a session are, and what can still change them."""

    epoch: str
    seq: int
    fold: Raw


class Derived:
    """What is made of the sessions of a log."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._codes: dict[str, str] = {}
        self._written: dict[str, tuple[str, int]] = {}

    # panels

    async def panels(self, app: Reduced, session_id: str, at: int | None = None) -> Panels:
        """What is shown of a session as of a seq, or now."""
        head = await self._log.info(session_id)
        at = head.last if at is None else at
        if not -1 <= at <= head.last:
            raise BadInput(f"expected a seq up to {head.last}, got {at}", "at")
        panels = await self._nearest(app, head, at) or Panels(app)
        if panels.seq < head.first - 1:
            raise NotFound(f"what happened before seq {head.first} is not kept any more")
        while panels.seq < at and (page := await self._log.read(session_id, panels.seq)):
            for envelope in page.envelopes():
                if envelope.seq <= at:
                    panels.apply(envelope, app.catalog.payload(envelope))
                    if envelope.seq % EVERY == EVERY - 1:
                        await self._keep(app, head, panels)
        return panels

    async def _nearest(self, app: Reduced, head: Head, at: int) -> Panels | None:
        """The newest panels that were kept by this code."""
        found = await self._log.snapshot(head.session_id, PANELS, at)
        if found is None:
            return None
        kept = msgspec.json.decode(found[1], type=Kept)
        if (kept.code, kept.epoch) != (self._code(app), head.epoch):
            return None
        panels = Panels(app)
        panels.state = load(type(panels.state), bytes(kept.state))
        panels.transcript = load(Transcript, bytes(kept.transcript))
        panels.meters = load(Meters, bytes(kept.meters))
        panels.tree = load(Tree, bytes(kept.tree))
        return panels

    async def _keep(self, app: Reduced, head: Head, panels: Panels) -> None:
        if not self._log.writable or (state := kept_state(panels.state)) is None:
            return
        parts = [Raw(dump(part)) for part in (panels.transcript, panels.meters, panels.tree)]
        body = msgspec.json.encode(Kept(self._code(app), head.epoch, Raw(state), *parts))
        await self._log.put_snapshot(head.session_id, PANELS, panels.seq, body)

    def _code(self, app: Reduced) -> str:
        if app.name not in self._codes:
            self._codes[app.name] = code_of(app)
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
        head = await self._log.info(session_id)
        if self._written.get(session_id) == (head.epoch, head.last):
            return
        seq, kept = await self._documented(head)
        changed: dict[str, Document] = {}
        while page := await self._log.read(session_id, seq, origin=-1):
            for envelope in page.envelopes():
                for document in kept.apply(envelope, CATALOG.payload(envelope)):
                    changed[document.id] = Document(session_id, *document)
            seq = page.last
        body = msgspec.json.encode(Written(head.epoch, seq, Raw(dump(kept))))
        await self._log.work(lambda store: write(store, session_id, changed.values(), body))
        self._written[session_id] = head.epoch, seq

    async def _documented(self, head: Head) -> tuple[int, Documents]:
        """How far the documents of a session are."""
        found = await self._log.snapshot(head.session_id, DOCUMENTS, 0)
        if found is not None:
            written = msgspec.json.decode(found[1], type=Written)
            if written.epoch == head.epoch:
                return written.seq, load(Documents, bytes(written.fold))
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


def code_of(app: Reduced) -> str:
    """What the state of an application is made by: the source of its reducers' modules.

    Where there is none to read, nothing that was kept before is trusted.
    """
    try:
        made = [each for each in (*app.reducers.values(), app.start) if each.__module__ != "builtins"]
        sources = sorted({inspect.getsource(sys.modules[each.__module__]) for each in made})
    except (OSError, TypeError, KeyError, AttributeError):
        return secrets.token_hex(8)
    return sha256("\0".join(sources).encode()).hexdigest()[:16]
