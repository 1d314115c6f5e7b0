"""What is made of a session's events and kept beside the log: all that is shown as of a seq, and documents.

All of it can be thrown away and made again with the same bytes. A snapshot holds all folds of a session at
one seq, with the code they were made by: one of other code is removed when it is met. A state that does not
come back from its bytes as it was is not kept. Documents are brought up to date when they are asked for; how
far they are stands beside them. All snapshots together take at most about as much as the events. Of a ring
that lets go of its oldest events, what is shown is kept as of there, and older snapshots are removed.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol
from weakref import WeakValueDictionary

import msgspec
from msgspec import Raw

from turnlog.app.code import code_of
from turnlog.errors import BadInput, NotFound
from turnlog.events import CATALOG, Catalog, Envelope, Payload, Unknown, decode
from turnlog.log import Document, Head, Log, Row, Store, line_of
from turnlog.state.documents import Documents
from turnlog.state.fold import Reducers, fold, guarded
from turnlog.state.meters import Meters
from turnlog.state.roster import Roster
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
        self.roster = Roster()

    @property
    def seq(self) -> int:
        """The seq of the last event."""
        return self.tree.last

    def apply(self, envelope: Envelope, payload: Payload | Unknown) -> None:
        """Take one event into account."""
        self.state = fold(self._reducers, [(envelope, payload)], self.state)
        for part in self._parts():
            part.apply(envelope, payload)

    def _parts(self) -> tuple[Transcript, Meters, Tree, Roster]:
        return self.transcript, self.meters, self.tree, self.roster

    def dump(self) -> list[Raw]:
        """All but the application's state as bytes."""
        return [Raw(dump(part)) for part in self._parts()]

    def load(self, state: Any, parts: Iterable[Raw]) -> None:
        """Become what was dumped, with a state of the application."""
        transcript, meters, tree, roster = map(bytes, parts)
        self.state = state
        self.transcript, self.meters = load(Transcript, transcript), load(Meters, meters)
        self.tree, self.roster = load(Tree, tree), load(Roster, roster)


class Kept(msgspec.Struct):
    """Panels as they are kept. `pruned` says which live events may have been missing."""

    code: str
    epoch: str
    pruned: int
    state: Raw
    parts: list[Raw]


class Written(msgspec.Struct):
    """How far the documents of a session are, and what can still change them."""

    code: str
    epoch: str
    seq: int
    fold: Raw


Snapshot = tuple[int, bytes]


class Derived:
    """What is made of the sessions of a log."""

    def __init__(self, log: Log, apps: Mapping[str, Reduced] = {}) -> None:
        self._log = log
        self._apps = apps
        self._cuts: dict[str, Panels] = {}
        if apps:
            log.show_last(self._cut)
        self._codes: dict[str, str] = {}
        self._document_code = code_of(Documents)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()  # while one is held

    # panels

    async def panels(self, app: Reduced, session_id: str, at: int | None = None) -> Panels:
        """What is shown of a session as of a seq, or now."""
        panels = None
        while panels is None:
            head = await self._log.info(session_id)
            wanted = head.last if at is None else at
            if not -1 <= wanted <= head.last:
                raise BadInput(f"expected a seq up to {head.last}, got {at}", "at")
            found, kept_bytes = await self._nearest(app, head, wanted) or (Panels(app), 0)
            cut = self._cuts.get(session_id)
            if cut is not None and cut.seq > found.seq and found.seq < wanted:
                # the ring has let go of what follows the snapshot
                found, kept_bytes = self._copy(app, cut), 0
            if found.seq <= wanted:
                panels = await self._continued(app, head, found, wanted, kept_bytes)
            elif at is not None:
                raise NotFound(f"what happened before seq {found.seq} is not kept any more")
        return panels

    async def _continued(
        self, app: Reduced, head: Head, panels: Panels, at: int, kept_bytes: int
    ) -> Panels | None:
        """Panels with the events up to a seq, kept now and then; None if some went before they were read."""
        events = read_bytes = 0
        while panels.seq < at:
            page = await self._log.read(head.session_id, panels.seq, max_bytes=TAIL_BYTES)
            if (not page or page.first > panels.seq + 1) and await self._gone(head, panels.seq + 1):
                return None
            for row, envelope in zip(page, page.envelopes(), strict=True):
                if row.seq > at:
                    return panels
                panels.apply(envelope, app.catalog.payload(envelope))
                events, read_bytes = events + 1, read_bytes + len(row.frame)
                if events >= EVERY and read_bytes >= kept_bytes:
                    kept_bytes = await self._keep(app, head, panels)
                    events = read_bytes = 0
            if not page:
                break
        return panels

    async def _gone(self, head: Head, seq: int) -> bool:
        """Whether a ring has let go of a seq; if it had when the question came, nobody has an answer."""
        if seq < head.first:
            raise NotFound(f"what happened before seq {head.first} is not kept any more")
        return seq < (await self._log.info(head.session_id)).first

    async def _nearest(self, app: Reduced, head: Head, at: int) -> tuple[Panels, int] | None:
        """The newest panels that were kept by this code, and their size; others may stand behind them."""
        while found := await self._log.snapshot(head.session_id, PANELS, at):
            seq, body = found
            if panels := self._kept(app, head, body):
                return panels, len(body)
            if self._log.writable:
                await self._log.drop_snapshots(head.session_id, PANELS, seq, seq)
            at = seq - 1
        return None

    def _kept(self, app: Reduced, head: Head, body: bytes) -> Panels | None:
        """Panels as they were kept, if that was by this code and of this history."""
        try:
            kept = msgspec.json.decode(body, type=Kept)
            if (kept.code, kept.epoch, kept.pruned) != (self._code(app), head.epoch, head.pruned):
                return None
            panels = Panels(app)
            panels.load(load(type(panels.state), bytes(kept.state)), kept.parts)
        except (ValueError, BadInput):  # of another version
            return None
        return panels

    async def _keep(self, app: Reduced, head: Head, panels: Panels) -> int:
        """Keep panels, if that can be done; their size."""
        if not self._log.writable or (state := kept_state(panels.state)) is None:
            return 0
        kept = Kept(self._code(app), head.epoch, head.pruned, Raw(state), panels.dump())
        body = msgspec.json.encode(kept)
        await self._log.put_snapshot(head.session_id, PANELS, panels.seq, body)
        return len(body)

    def _copy(self, app: Reduced, cut: Panels) -> Panels:
        """Return panels of their own, as of the events that a ring let go of."""
        panels = Panels(app)
        panels.load(cut.state, cut.dump())  # the state is one that reducers do not change
        return panels

    def _cut(self, store: Store, head: Head, rows: Sequence[Row]) -> None:
        """Take events into account that are about to go, for all that is shown and for the documents."""
        app = self._apps.get(head.app)
        if app is None:
            return
        panels = self._cuts.setdefault(head.session_id, Panels(app))
        for row in rows:
            envelope = decode(line_of(row))
            panels.apply(envelope, app.catalog.payload(envelope))
        store.drop_snapshots(head.session_id, PANELS, 0, panels.seq)
        found = store.snapshot(head.session_id, DOCUMENTS, 0)
        seq, kept = self._documented(head, found) or (-1, Documents())
        news = Changes(head.session_id, kept, seq)
        news.apply(rows)
        if news.seq > seq:
            write(store, news, self._written(head, news), found)

    def _code(self, app: Reduced) -> str:
        if app.name not in self._codes:
            made = (app.start, *app.reducers, *app.reducers.values(), Transcript, Meters, Tree, Roster)
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
        """Bring the documents of a session up to date; those of other code, or another history, go first."""
        lock = self._locks.setdefault(session_id, asyncio.Lock())
        async with lock:  # who is behind must not write last
            while not await self._write_documents(session_id):
                pass

    async def _write_documents(self, session_id: str) -> bool:
        """Whether it is done: it is not if somebody else wrote meanwhile."""
        head = await self._log.info(session_id)
        found = await self._log.snapshot(session_id, DOCUMENTS, 0)
        known = self._documented(head, found)
        if found is not None and known is None:
            await self._log.forget_derived(session_id)
            return False
        seq, kept = known or (-1, Documents())
        if seq >= head.last:
            return True
        news = Changes(session_id, kept, seq)
        while page := await self._log.read(session_id, news.seq, origin=-1):
            news.apply(page)
        news.seq = max(news.seq, head.last)
        body = self._written(head, news)
        return await self._log.work(lambda store: write(store, news, body, found))

    def _documented(self, head: Head, found: Snapshot | None) -> tuple[int, Documents] | None:
        """How far this code has brought the documents of this history."""
        try:
            written = msgspec.json.decode(found[1], type=Written) if found else None
            if written and (written.code, written.epoch) == (self._document_code, head.epoch):
                return written.seq, load(Documents, bytes(written.fold))
        except (msgspec.ValidationError, BadInput):
            pass  # of another version
        return None

    def _written(self, head: Head, news: "Changes") -> bytes:
        return msgspec.json.encode(Written(self._document_code, head.epoch, news.seq, Raw(dump(news.kept))))


class Changes:
    """The documents of a session that events after a seq change."""

    def __init__(self, session_id: str, kept: Documents, seq: int) -> None:
        self.session_id = session_id
        self.kept = kept
        self.seq = seq
        self.documents: dict[str, Document] = {}

    def apply(self, rows: Iterable[Row]) -> None:
        """Take events into account that have not been."""
        for row in rows:
            if row.seq > self.seq:
                envelope = decode(line_of(row))
                for document in self.kept.apply(envelope, CATALOG.payload(envelope)):
                    self.documents[document.id] = Document(self.session_id, *document)
                self.seq = row.seq


def write(store: Store, news: Changes, body: bytes, found: Snapshot | None) -> bool:
    """Documents, and how far they are, in one transaction, if they are where they were found."""
    if store.snapshot(news.session_id, DOCUMENTS, 0) != found:
        return False
    for document in news.documents.values():
        store.put_document(document)
    store.put_snapshot(news.session_id, DOCUMENTS, 0, body)
    return True


def kept_state(state: Any) -> bytes | None:
    """A state as bytes, if it comes back as it was."""
    try:
        data = dump(state)
        return data if load(type(state), data) == state else None
    except (TypeError, ValueError, BadInput):
        return None


async def state_at(log: Log, app: Reduced, session_id: str, seq: int) -> Any:
    """The state of an application in a session as of a seq: the nearest snapshot, and the events after it."""
    return (await Derived(log).panels(app, session_id, seq)).state
