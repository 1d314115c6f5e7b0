"""What an append or an import would do, decided from a record, known rows and a request alone."""

import pickle

import pytest
from msgspec import structs

from turnlog.errors import CallerError, Conflict, Fenced, SessionClosed, TurnlogError
from turnlog.events import EnvelopeDraft, Event, decode_envelope, encode_envelope
from turnlog.log import AppendResult, SessionRecord
from turnlog.log.append import RowPlan, plan_append, plan_close, plan_create, plan_import
from turnlog.log.drafts import DraftBuilder
from turnlog.log.jobs import (
    AppendRequest,
    CloseSession,
    CreateSession,
    DraftLine,
    EventLine,
    ExpectedPosition,
    ImportCounts,
    ImportEvents,
)
from turnlog.testing.closing import close_event
from turnlog.testing.factories import block_delta_event, block_start_event, durable_event, durable_events

EMPTY = SessionRecord("sess_1", epoch="e", app="t", created_ms=5)


def planned(record: SessionRecord, *names: str) -> RowPlan:
    return plan_append(record, {}, AppendRequest("sess_1", durable_events(*names), 10))


def test_plan_has_rows_edges_record_and_seqs_and_changes_nothing() -> None:
    before = planned(EMPTY, "a", "b").record
    request = AppendRequest("sess_1", [block_start_event("x"), block_delta_event("x")], 20, fence=3)
    plan = plan_append(before, {}, request)
    assert [(new.row.seq, new.row.live, new.span) for new in plan.rows] == [
        (2, False, None),
        (3, True, "block:x"),
    ]
    assert [(edge.key, edge.seq) for edge in plan.edges] == [("block:x", 2)]
    assert plan.result == AppendResult([2, 3], 1)
    assert (plan.record.last, plan.record.durable_count, plan.record.fence) == (3, 3, 3)
    assert (plan.record.updated_ms, plan.record.revision) == (20, before.revision + 1)
    assert (before.last, before.fence) == (1, 0)
    assert plan_append(before, {}, request) == plan


def test_plan_with_known_rows_has_only_the_new_ones() -> None:
    first = planned(EMPTY, "a", "b")
    known = {new.id: new.row for new in first.rows}
    request = AppendRequest("sess_1", durable_events("b", "c", "a"), 20)
    plan = plan_append(first.record, known, request)
    assert [new.id for new in plan.rows] == ["evt_c"]
    assert (plan.result.seqs, plan.result.new) == ([1, 2, 0], [False, True, False])


@pytest.mark.parametrize("fence", [None, 1])
def test_plan_of_known_events_alone_changes_the_fence_at_most(fence: int | None) -> None:
    first = planned(EMPTY, "a")
    known = {new.id: new.row for new in first.rows}
    request = AppendRequest("sess_1", durable_events("a"), 20, ExpectedPosition(last=99), fence)
    plan = plan_append(first.record, known, request)
    assert (plan.rows, plan.result) == ([], AppendResult([0], 0))
    assert (plan.record is first.record) is (fence is None)
    assert plan.record.fence == (fence or 0)


@pytest.mark.parametrize(
    ("record", "request_changes", "error"),
    [
        (EMPTY.replace(closed=True), {}, SessionClosed),
        (EMPTY.replace(fence=2), {"fence": 1}, Fenced),
        (EMPTY, {"expected": ExpectedPosition(last=0)}, Conflict),
        (EMPTY, {"expected": ExpectedPosition(durable_count=1)}, Conflict),
        (EMPTY, {"expected": ExpectedPosition(members_seq=1)}, Conflict),
        (EMPTY, {"events": durable_events("a", "a")}, Conflict),
    ],
)
def test_plan_that_is_refused_is_raised(
    record: SessionRecord, request_changes: dict[str, object], error: type[TurnlogError]
) -> None:
    request = structs.replace(AppendRequest("sess_1", [durable_event("a")], 10), **request_changes)
    with pytest.raises(error):
        plan_append(record, {}, request)


def test_plan_of_a_close_ends_with_its_event_and_is_made_once() -> None:
    before = planned(EMPTY, "a").record
    job = CloseSession("sess_1", [durable_event("b"), close_event()], 20, fence=3)
    plan = plan_close(before, {}, job)
    assert [new.row.type for new in plan.rows] == ["assistant.message", "session.close"]
    assert (plan.record.closed, plan.record.fence, plan.record.last) == (True, 3, 2)
    assert plan.result.new == [True, True]

    again = plan_close(plan.record, {new.id: new.row for new in plan.rows}, job)
    assert (again.rows, again.record is plan.record, again.result.seqs) == ([], True, [1, 2])
    assert plan_close(plan.record, {}, CloseSession("sess_1", [close_event("bob")], 30)).result.seqs == [-1]


def test_plan_of_a_close_without_events_closes_only() -> None:
    before = planned(EMPTY, "a").record
    plan = plan_close(before, {}, CloseSession("sess_1"))
    assert (plan.rows, plan.result) == ([], AppendResult([], 0))
    assert plan.record == before.replace(closed=True, revision=before.revision + 1)


@pytest.mark.parametrize(
    ("job", "error"),
    [
        (CloseSession("sess_1", [close_event()], fence=1), Fenced),
        (CloseSession("sess_1", fence=1), Fenced),
        (CloseSession("sess_1", [close_event()], expected=ExpectedPosition(durable_count=1)), Conflict),
        (CloseSession("sess_1", durable_events("a")), CallerError),
        (CloseSession("sess_1", [close_event(), durable_event("a")]), CallerError),
    ],
)
def test_plan_of_a_close_that_is_refused_is_raised(job: CloseSession, error: type[TurnlogError]) -> None:
    with pytest.raises(error):
        plan_close(EMPTY.replace(fence=2), {}, job)


def test_no_append_and_no_creation_has_a_close() -> None:
    with pytest.raises(CallerError, match="closing the session"):
        plan_append(EMPTY, {}, AppendRequest("sess_1", [durable_event("a"), close_event()], 10))
    with pytest.raises(CallerError, match="closing the session"):
        plan_create(CreateSession(EMPTY, [close_event()]))


def test_plan_of_a_new_session_has_its_first_events() -> None:
    plan = plan_create(CreateSession(EMPTY, durable_events("a", "b")))
    assert (plan.record.last, plan.record.revision, plan.record.updated_ms) == (1, 2, 5)
    assert plan_create(CreateSession(EMPTY)).record == EMPTY.replace(revision=1)


def test_jobs_are_data_that_can_be_sent() -> None:
    unknown = DraftBuilder().build(
        EnvelopeDraft(type="case.note", id="evt_n", session_id="sess_1", payload={"text": 1})
    )
    lines: list[EventLine | DraftLine] = [
        exported(durable_event("b"), 5, 1),
        DraftLine(2, durable_event("c"), 30),
        DraftLine(3, unknown, 30),
    ]
    for job in (
        AppendRequest("sess_1", durable_events("a"), 10),
        CreateSession(EMPTY, durable_events("b")),
        ImportEvents(EMPTY, lines),
    ):
        assert pickle.loads(pickle.dumps(job)) == job


def exported(event: Event, seq: int, number: int) -> EventLine:
    line = encode_envelope(event, session_id="sess_1", seq=seq, ts_ms=20)
    return EventLine(number, decode_envelope(line), line)


def test_plan_of_an_import_gives_drafts_the_next_seqs_and_exported_events_their_own() -> None:
    lines: list[EventLine | DraftLine] = [
        DraftLine(1, durable_event("a"), 30),
        exported(durable_event("b"), 5, 2),
        DraftLine(3, durable_event("c"), 40),
        DraftLine(4, durable_event("a"), 50),
    ]
    plan = plan_import(EMPTY, {}, ImportEvents(EMPTY, lines))
    assert [(new.id, new.row.seq, new.ts_ms) for new in plan.rows] == [
        ("evt_a", 0, 30),
        ("evt_b", 5, 20),
        ("evt_c", 6, 40),
    ]
    assert plan.counts == ImportCounts(new_events=3, known_events=1)
    assert (plan.record.last, plan.record.pruned_through, plan.record.revision) == (6, 4, 1)


def test_plan_of_an_import_again_has_no_rows() -> None:
    lines: list[EventLine | DraftLine] = [
        DraftLine(1, durable_event("a"), 30),
        exported(durable_event("b"), 1, 2),
    ]
    first = plan_import(EMPTY, {}, ImportEvents(EMPTY, lines))
    known = {new.id: new.row for new in first.rows}
    again = plan_import(first.record, known, ImportEvents(EMPTY, lines))
    assert (again.rows, again.record, again.counts) == ([], first.record, ImportCounts(0, 2))


@pytest.mark.parametrize("is_stored", [False, True])
def test_plan_of_a_draft_under_the_id_of_another_event_is_refused(is_stored: bool) -> None:
    stored = planned(EMPTY, "a")
    record = stored.record if is_stored else EMPTY
    known = {new.id: new.row for new in stored.rows} if is_stored else {}
    before = [] if is_stored else [DraftLine(1, durable_event("a"), 30)]
    lines = [*before, DraftLine(2, structs.replace(durable_event("b"), id="evt_a"), 30)]
    with pytest.raises(Conflict, match="line 2: evt_a is the id of another event") as refusal:
        plan_import(record, known, ImportEvents(record, lines))
    assert refusal.value.last == record.last


def test_plan_of_a_draft_for_a_closed_session_is_refused() -> None:
    closed = EMPTY.replace(closed=True)
    with pytest.raises(SessionClosed, match="line 1"):
        plan_import(closed, {}, ImportEvents(closed, [DraftLine(1, durable_event("a"), 30)]))
