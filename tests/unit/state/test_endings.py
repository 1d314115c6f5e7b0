"""How a session ended, by its events alone: the vectors that JavaScript shares."""

import json
from pathlib import Path
from typing import Any

from tests.support.tables import for_each_row
from tests.support.written_logs import vector_log
from turnlog.events import SessionClose
from turnlog.log import SessionRecord
from turnlog.log.append import apply_to_record

VECTORS = Path(__file__).parents[2] / "vectors" / "state" / "endings.json"
CASES: list[dict[str, Any]] = json.loads(VECTORS.read_text())["cases"]


@for_each_row("case", CASES, ids=lambda case: case["name"])
def test_ending_of_a_vector_closes_the_record_with_its_last_event(case: dict[str, Any]) -> None:
    record = SessionRecord("sess_1", epoch="e", app="t")
    closing = None
    for envelope, payload in vector_log(case["events"]):
        before = record
        record = apply_to_record(record, payload, envelope.actor, envelope.seq)
        if record.closed and not before.closed:
            assert isinstance(payload, SessionClose)
            closing = {"actor": payload.by, "reason": payload.reason, "seq": envelope.seq}
    assert (record.closed, closing) == (case["closed"], case["ending"])
