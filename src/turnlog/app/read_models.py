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

from turnlog.app.code_version import code_of
from turnlog.errors import BadInput, NotFound
from turnlog.events import CATALOG, Catalog, Envelope, Payload, Unknown, decode
from turnlog.log import Document, Head, Log, Row, Store, line_of
from turnlog.state.documents import Documents
from turnlog.state.fold import Fold, Reducers, fold, guarded
from turnlog.state.meters import Meters
from turnlog.state.roster import Roster
from turnlog.state.snapshot import dump, load
from turnlog.state.transcript import Transcript
from turnlog.state.tree import Tree

STATE, DOCUMENTS = "state", "documents"
FOLDS: dict[str, type[Fold]] = {"transcript": Transcript, "meters": Meters, "tree": Tree, "roster": Roster}
PARTS = (STATE, *FOLDS)
EVERY = 1000  # events between two snapshots, or two writes of documents, at least
TAIL_BYTES = 64 * 1024  # one read: little is read in vain after the seq that is asked for


F = TypeVar("F", bound=Fold)


Charge = Callable[[int], None]


def charge_nothing(size_bytes: int) -> None:
    """Where nothing has a budget."""


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


class Part:
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
        return self.new_events >= EVERY and self.new_bytes >= self.stored_bytes

    def note_stored(self, size_bytes: int) -> None:
        self.stored_bytes, self.new_events, self.new_bytes = size_bytes, 0, 0


class Panels:
    """What is shown of a session, as of a seq: every part, or those that are named."""

    def __init__(self, app: Reduced, names: Iterable[str] = PARTS) -> None:
        self._reducers = guarded(app.reducers)  # the live state reports what fails
        self.parts = {name: Part(name, app.start() if name == STATE else FOLDS[name]()) for name in names}

    @property
    def seq(self) -> int:
        """The seq of the last event that every part has."""
        return min(part.seq for part in self.parts.values())

    @property
    def state(self) -> Any:
        return self.parts[STATE].value

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
        value: F = self.parts[name].value
        return value

    def apply(self, envelope: Envelope, payload: Payload | Unknown) -> None:
        """Take one event into account, in the parts that do not have it."""
        for part in self.parts.values():
            if envelope.seq <= part.seq:
                continue
            if part.name == STATE:
                part.value = fold(self._reducers, [(envelope, payload)], part.value)
            else:
                part.value.apply(envelope, payload)
            part.seq = envelope.seq


class Kept(msgspec.Struct):
    """A part as it is kept. `pruned` says which live events may have been missing."""

    code: str
    epoch: str
    pruned: int
    value: Raw


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

    async def panels(
        self,
        app: Reduced,
        session_id: str,
        at: int | None = None,
        names: Iterable[str] = PARTS,
        charge: Charge = charge_nothing,
    ) -> Panels:
        """What is shown of a session as of a seq, or now: every part, or those that are named.

        `charge` is told what was read.
        """
        panels = None
        while panels is None:
            head = await self._log.info(session_id)
            wanted = head.last if at is None else at
            if not -1 <= wanted <= head.last:
                raise BadInput(f"expected a seq up to {head.last}, got {at}", "at")
            found = Panels(app, names)
            for name in found.parts:
                found.parts[name] = await self._nearest(app, head, wanted, found.parts[name])
                charge(found.parts[name].stored_bytes)
            newest = max(part.seq for part in found.parts.values())
            if newest <= wanted:
                panels = await self._continued(app, head, found, wanted, charge)
            elif at is not None:
                raise NotFound(f"what happened before seq {newest} is not kept any more")
        return panels

    async def _continued(
        self, app: Reduced, head: Head, panels: Panels, at: int, charge: Charge
    ) -> Panels | None:
        """Panels with the events up to a seq, kept now and then; None if some went before they were read."""
        while panels.seq < at:
            page = await self._log.read(head.session_id, panels.seq, max_bytes=TAIL_BYTES)
            charge(page.size_bytes)
            if (not page or page.first > panels.seq + 1) and await self._gone(head, panels.seq + 1):
                return None
            for row, envelope in zip(page, page.envelopes(), strict=True):
                if row.seq > at:
                    return panels
                news = [part for part in panels.parts.values() if part.seq < row.seq]
                panels.apply(envelope, app.catalog.payload(envelope))
                for part in news:
                    part.new_events += 1
                    part.new_bytes += len(row.frame)
                    if part.is_due:
                        part.note_stored(await self._keep(app, head, part))
            if not page:
                break
        return panels

    async def _gone(self, head: Head, seq: int) -> bool:
        """Whether a ring has let go of a seq; if it had when the question came, nobody has an answer."""
        if seq < head.first:
            raise NotFound(f"what happened before seq {head.first} is not kept any more")
        return seq < (await self._log.info(head.session_id)).first

    async def _nearest(self, app: Reduced, head: Head, at: int, empty: Part) -> Part:
        """A part as it was kept last by this code, or as of the cut of a ring, or empty.

        Snapshots of other code may stand before those of this one.
        """
        name, part, before = empty.name, empty, at
        while part is empty and (found := await self._log.snapshot(head.session_id, name, before)):
            seq, body = found
            part = self._kept(app, head, empty, seq, body) or empty
            if part is empty and self._log.writable:
                await self._log.drop_snapshots(head.session_id, name, seq, seq)
            before = seq - 1
        cut = self._cuts.get(head.session_id)
        if cut is not None and part.seq < cut.seq and part.seq < at:
            # the ring has let go of what follows the snapshot
            return copy_part(cut.parts[name])
        return part

    def _kept(self, app: Reduced, head: Head, empty: Part, seq: int, body: bytes) -> Part | None:
        """A part as it was kept, if that was by this code and of this history."""
        try:
            kept = msgspec.json.decode(body, type=Kept)
            if (kept.code, kept.epoch, kept.pruned) != (self._code(app), head.epoch, head.pruned):
                return None
            value = load(type(empty.value), bytes(kept.value))
        except (ValueError, BadInput):  # of another version
            return None
        return Part(empty.name, value, seq, len(body))

    async def _keep(self, app: Reduced, head: Head, part: Part) -> int:
        """Keep a part, if that can be done; return its size."""
        value = kept_state(part.value) if part.name == STATE else dump(part.value)
        if not self._log.writable or value is None:
            return 0
        body = msgspec.json.encode(Kept(self._code(app), head.epoch, head.pruned, Raw(value)))
        await self._log.put_snapshot(head.session_id, part.name, part.seq, body)
        return len(body)

    def _cut(self, store: Store, head: Head, rows: Sequence[Row]) -> None:
        """Take events into account that are about to go, for all that is shown and for the documents."""
        app = self._apps.get(head.app)
        if app is None:
            return
        panels = self._cuts.setdefault(head.session_id, Panels(app))
        for row in rows:
            envelope = decode(line_of(row))
            panels.apply(envelope, app.catalog.payload(envelope))
        for name in PARTS:
            store.drop_snapshots(head.session_id, name, 0, panels.seq)
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
            known = self._documented(head, found)
            news = await self._changes(head, *(known or (-1, Documents())))
            stored = await self._log.documents(session_id, type=type, category=category) if known else []
            charge(len(found[1] if found else b"") + news.read_bytes + sum(len(one.body) for one in stored))
            if await self._log.snapshot(session_id, DOCUMENTS, 0) != found:
                continue  # another question has stored documents meanwhile, or a ring let go of events
            if news.events >= EVERY and self._log.writable:
                if known is None and found is not None:
                    await self._log.forget_derived(session_id)
                    found = None
                await self._log.work(partial(write, news=news, body=self._written(head, news), found=found))
            return merged_documents(stored, news, type, category)

    async def _changes(self, head: Head, seq: int, kept: Documents) -> "Changes":
        """What the events after a seq make of the documents."""
        news = Changes(head.session_id, kept, seq)
        while news.seq < head.last and (page := await self._log.read(head.session_id, news.seq, origin=-1)):
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
        known = self._documented(head, found)
        if found is not None and known is None:
            await self._log.forget_derived(session_id)
            return False
        seq, kept = known or (-1, Documents())
        if seq >= head.last:
            return True
        news = await self._changes(head, seq, kept)
        body = self._written(head, news)
        return await self._log.work(partial(write, news=news, body=body, found=found))

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
        self.events = 0
        self.read_bytes = 0
        self.documents: dict[str, Document] = {}

    def apply(self, rows: Iterable[Row]) -> None:
        """Take events into account that have not been."""
        for row in rows:
            if row.seq > self.seq:
                envelope = decode(line_of(row))
                for document in self.kept.apply(envelope, CATALOG.payload(envelope)):
                    self.documents[document.id] = Document(self.session_id, *document)
                self.seq = row.seq
                self.events += 1
                self.read_bytes += len(row.frame)


def merged_documents(
    stored: Sequence[Document], news: Changes, type: str | None, category: str | None
) -> list[Document]:
    """Stored documents with those that have changed since in their place, as far as they match, by id."""
    fresh = [
        one
        for one in news.documents.values()
        if type in (None, one.type) and category in (None, one.category)
    ]
    unchanged = [one for one in stored if one.id not in news.documents]
    return sorted([*unchanged, *fresh], key=lambda one: one.id)


def write(store: Store, news: Changes, body: bytes, found: Snapshot | None) -> bool:
    """Documents, and how far they are, in one transaction, if they are where they were found."""
    if store.snapshot(news.session_id, DOCUMENTS, 0) != found:
        return False
    for document in news.documents.values():
        store.put_document(document)
    store.put_snapshot(news.session_id, DOCUMENTS, 0, body)
    return True


def copy_part(part: Part) -> Part:
    """A part of its own; an application's state is one that reducers do not change."""
    value = part.value if part.name == STATE else load(type(part.value), dump(part.value))
    return Part(part.name, value, part.seq)


def kept_state(state: Any) -> bytes | None:
    """A state as bytes, if it comes back as it was."""
    try:
        data = dump(state)
        return data if load(type(state), data) == state else None
    except (TypeError, ValueError, BadInput):
        return None


async def state_at(log: Log, app: Reduced, session_id: str, seq: int) -> Any:
    """The state of an application in a session as of a seq: the nearest snapshot, and the events after it."""
    return (await Derived(log).panels(app, session_id, seq, [STATE])).state
