"""The executor's table: weigh-ins in SQLite, each of one person, and an audit of every change.

A change and its line in the audit are one transaction, on the disk before it is answered. The audit knows
every call by its session, its tool and its key: the same call again changes nothing and gets the same answer.
Lines of the audit are never changed or removed. What is wrong with a call is a `ToolFault` with the path.
"""

import json
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from secrets import token_hex
from typing import Any, NamedTuple

from turnlog.agents import ToolError
from turnlog_examples.weights.contract import Entry

LARGEST_LBS = 10_000
NOTES_CHARS = 500
ROWS = 500  # of one call
WAIT_S = 30.0  # for another process that writes
FARTHEST = timedelta(hours=14)  # from UTC, anywhere on Earth; SQLite knows no other
MOMENT = re.compile(r"\d{4}-\d\d-\d\d(T\d\d:\d\d(:\d\d(\.\d{1,6})?)?(Z|[+-]\d\d:\d\d)?)?", re.ASCII)

SCHEMA = f"""
CREATE TABLE IF NOT EXISTS weight_entry (
  id          TEXT PRIMARY KEY CHECK (id GLOB 'wt_?*'),
  person      TEXT NOT NULL,
  measured_at TEXT NOT NULL CHECK (datetime(measured_at) IS NOT NULL),
  weight_lbs  REAL NOT NULL CHECK (weight_lbs > 0 AND weight_lbs < {LARGEST_LBS}
                                   AND weight_lbs = round(weight_lbs, 2)),
  notes       TEXT NOT NULL CHECK (length(notes) <= {NOTES_CHARS})
) STRICT;
CREATE INDEX IF NOT EXISTS newest ON weight_entry (person, datetime(measured_at) DESC, id DESC);
CREATE TABLE IF NOT EXISTS audit (
  n          INTEGER PRIMARY KEY,
  at         TEXT NOT NULL,
  session_id TEXT NOT NULL,
  tool       TEXT NOT NULL,
  key        TEXT NOT NULL,
  call_id    TEXT NOT NULL,
  person     TEXT NOT NULL,
  asked      TEXT NOT NULL,
  answered   TEXT NOT NULL,
  changes    TEXT NOT NULL,
  UNIQUE (session_id, tool, key)
) STRICT;
CREATE TRIGGER IF NOT EXISTS unchanged BEFORE UPDATE ON audit BEGIN SELECT RAISE(ABORT, 'audit stays'); END;
CREATE TRIGGER IF NOT EXISTS kept BEFORE DELETE ON audit BEGIN SELECT RAISE(ABORT, 'audit stays'); END;
"""

Json = dict[str, Any]
Work = Callable[[sqlite3.Connection], tuple[Json, list[Json]]]


class Caller(NamedTuple):
    """Who calls: the person, and what the call is known by."""

    person: str
    session_id: str
    tool: str
    key: str
    call_id: str


def utc_now() -> datetime:
    return datetime.now(UTC)


class WeightTable:
    """The weigh-ins in one file. Every call has a connection of its own, so it may come from any thread."""

    def __init__(self, path: Path, now: Callable[[], datetime] = utc_now) -> None:
        self._path = path
        self._now = now
        with self._open() as db:
            db.execute("PRAGMA journal_mode = WAL")
            db.executescript(SCHEMA)

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection]:
        with closing(sqlite3.connect(self._path, timeout=WAIT_S, isolation_level=None)) as db:
            db.execute("PRAGMA synchronous = FULL")
            db.row_factory = sqlite3.Row
            yield db

    def save(self, caller: Caller, rows: Sequence[Entry]) -> Json:
        """Save all rows or none: `{"saved": 1, "ids": ["wt_..."]}`."""
        check(rows, self._now())

        def work(db: sqlite3.Connection) -> tuple[Json, list[Json]]:
            changes = [put(db, caller.person, index, row) for index, row in enumerate(rows)]
            ids = [change["after"]["id"] for change in changes]
            return {"saved": len(ids), "ids": ids}, changes

        return self._once(caller, [entry_json(row) for row in rows], work)

    def delete(self, caller: Caller, ids: Sequence[str]) -> Json:
        """Delete all or none: `{"deleted": 1}`."""

        def work(db: sqlite3.Connection) -> tuple[Json, list[Json]]:
            changes = []
            for index, entry_id in enumerate(ids):
                before = known(db, caller.person, entry_id, ["ids", index])
                db.execute("DELETE FROM weight_entry WHERE id = ?", (entry_id,))
                changes.append({"before": before, "after": None})
            return {"deleted": len(changes)}, changes

        return self._once(caller, list(ids), work)

    def newest(self, person: str, limit: int) -> list[Json]:
        """Return the weigh-ins of a person, the newest first."""
        order = "ORDER BY datetime(measured_at) DESC, id DESC LIMIT ?"
        with self._open() as db:
            found = db.execute(f"SELECT * FROM weight_entry WHERE person = ? {order}", (person, limit))
            return [plain(row) for row in found]

    def audit(self, person: str, limit: int) -> list[Json]:
        """Return the changes for a person, the last one first."""
        columns = "at, person, tool, session_id, call_id, key, changes"
        with self._open() as db:
            found = db.execute(
                f"SELECT {columns} FROM audit WHERE person = ? ORDER BY n DESC LIMIT ?", (person, limit)
            )
            return [dict(row) | {"changes": json.loads(row["changes"])} for row in found]

    def _once(self, caller: Caller, asked: Any, work: Work) -> Json:
        """Do the work of a call and write it down, or give the answer that it had before."""
        said = json.dumps(asked, sort_keys=True)
        key = (caller.session_id, caller.tool, caller.key)
        with self._open() as db:
            db.execute("BEGIN IMMEDIATE")  # a connection that is closed before the commit has done nothing
            where = "session_id = ? AND tool = ? AND key = ?"
            if before := db.execute(f"SELECT asked, answered FROM audit WHERE {where}", key).fetchone():
                return again(before, said)
            answer, changes = work(db)
            changed = [change for change in changes if change["before"] != change["after"]]
            line = (self._now().isoformat(timespec="milliseconds"), *key, caller.call_id, caller.person)
            db.execute(
                "INSERT INTO audit (at, session_id, tool, key, call_id, person, asked, answered, changes)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*line, said, json.dumps(answer), json.dumps(changed)),
            )
            db.execute("COMMIT")
        return answer


def again(before: sqlite3.Row, said: str) -> Json:
    """The answer to a call that comes again; another call cannot have its key."""
    if before["asked"] != said:
        raise invalid("this key belongs to a call with other arguments", ["idempotency_key"])
    answer: Json = json.loads(before["answered"])
    return answer


def put(db: sqlite3.Connection, person: str, index: int, row: Entry) -> Json:
    """Write one row: what was there before, and what is there now."""
    before = known(db, person, row.id, ["rows", index, "id"]) if row.id is not None else None
    after = entry_json(row) | {"id": row.id or "wt_" + token_hex(12)}
    db.execute(
        "INSERT INTO weight_entry (id, person, measured_at, weight_lbs, notes) VALUES (?, ?, ?, ?, ?) "
        "ON CONFLICT (id) DO UPDATE SET measured_at = excluded.measured_at, "
        "weight_lbs = excluded.weight_lbs, notes = excluded.notes",
        (after["id"], person, row.measured_at, row.weight_lbs, row.notes),
    )
    return {"before": before, "after": after}


def known(db: sqlite3.Connection, person: str, entry_id: str, path: list[Any]) -> Json:
    """Return a weigh-in of this person; one of another person is not found."""
    found = db.execute(
        "SELECT * FROM weight_entry WHERE id = ? AND person = ?", (entry_id, person)
    ).fetchone()
    if found is None:
        raise invalid(f"there is no entry {entry_id[:80]}", path)
    return plain(found)


def plain(row: sqlite3.Row) -> Json:
    return {name: row[name] for name in ("id", "measured_at", "weight_lbs", "notes")}


def entry_json(row: Entry) -> Json:
    return {"id": row.id, "measured_at": row.measured_at, "weight_lbs": row.weight_lbs, "notes": row.notes}


def check(rows: Sequence[Entry], now: datetime) -> None:
    """Refuse rows that the table would not take, with the path to the first thing that is wrong."""
    if len(rows) > ROWS:
        raise invalid(f"expected at most {ROWS} rows", ["rows"])
    ids = [row.id for row in rows if row.id is not None]
    for index, row in enumerate(rows):
        for name, problem in problems(row, now):
            raise invalid(f"{name} {problem}", ["rows", index, name])
        if row.id is not None and ids.count(row.id) > 1:
            raise invalid("id must stand once", ["rows", index, "id"])


def problems(row: Entry, now: datetime) -> Iterator[tuple[str, str]]:
    """What is wrong with a row, by field."""
    measured = moment_of(row.measured_at)
    offset = measured.utcoffset()
    if offset is None:
        yield "measured_at", "must be a date and time with its UTC offset"
    elif abs(offset) > FARTHEST:
        yield "measured_at", "must have a UTC offset of at most 14 hours"
    elif measured > now + timedelta(days=1):  # a day without a time is noon, which may be still to come
        yield "measured_at", "must not be in the future"
    if not row.weight_lbs > 0:
        yield "weight_lbs", "must be > 0"
    elif not row.weight_lbs < LARGEST_LBS:
        yield "weight_lbs", f"must be < {LARGEST_LBS}"
    elif round(row.weight_lbs, 2) != row.weight_lbs:
        yield "weight_lbs", "must have at most 2 decimals"
    if len(row.notes) > NOTES_CHARS:
        yield "notes", f"must be at most {NOTES_CHARS} characters long"


def moment_of(text: str) -> datetime:
    """Return a time of the form 2026-01-08T12:00:00-05:00; `datetime.min` for any other text."""
    try:
        return datetime.fromisoformat(text) if MOMENT.fullmatch(text) else datetime.min
    except ValueError:  # a day that no month has
        return datetime.min


def invalid(message: str, path: list[Any]) -> ToolError:
    return ToolError("VALIDATION_ERROR", message, {"path": path})
