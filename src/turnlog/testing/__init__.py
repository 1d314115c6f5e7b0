"""The contract of a store, as numbered tests for authors of stores. With pytest:

    @pytest.mark.parametrize("contract", CONTRACTS, ids=str)
    def test_contract(contract: Contract, tmp_path: Path) -> None:
        contract.check(lambda: MyStore(tmp_path / "log"))

`CONTRACTS` hold for every store: each gets a new, empty one. `DURABLE_CONTRACTS` hold for a store that
outlives its process: the contract closes the store, opens it again and expects the same data.
`SHARED_CONTRACTS` hold for a store that several logs use at once: the factory is called once for each log,
and a store inside one process returns the same object each time. A contract uses the store through `Log`, as
the rest of the package does. It raises AssertionError, or TimeoutError if it waits in vain. Numbers are
stable: a new contract is added at the end of its list.
"""

from collections.abc import Awaitable, Callable, Iterable

from turnlog.testing import (
    appending,
    closing,
    durability,
    following,
    leasing,
    private_blobs,
    replay,
    sessions,
    shared,
    side_data,
    uploads,
)
from turnlog.testing.harness import Contract, StoreFactory

__all__ = ["CONTRACTS", "DURABLE_CONTRACTS", "SHARED_CONTRACTS", "Contract", "StoreFactory"]


def number_contracts(first: int, runs: Iterable[Callable[[StoreFactory], Awaitable[None]]]) -> list[Contract]:
    """Build contracts from functions. The docstring of a function is its statement."""
    return [
        Contract(number, run.__doc__ or "", getattr(run, "__name__", ""), run)
        for number, run in enumerate(runs, first)
    ]


CONTRACTS = number_contracts(
    1,
    [
        appending.dense_seqs,
        appending.visible_when_acknowledged,
        appending.frames_are_byte_exact,
        appending.row_metadata,
        appending.batch_is_atomic,
        appending.batch_isolation,
        appending.cancelled_append,
        appending.duplicate_returns_old_seq,
        appending.duplicates_mixed_with_new,
        appending.dedupe_body,
        appending.duplicate_id_in_batch,
        appending.expected_last,
        appending.expected_last_on_retry,
        appending.expected_durable_count,
        appending.stale_fence_is_rejected,
        sessions.closed_session_rejects_events,
        sessions.close_ends_followers,
        sessions.unknown_session,
        sessions.session_list,
        sessions.sessions_are_independent,
        sessions.session_record,
        following.page_size_limits,
        following.follow_from_any_cursor,
        following.replay_live_handover,
        following.slow_follower,
        following.idle_follower,
        following.wakeups_are_per_session,
        replay.replay_skips_finished_blocks,
        replay.replay_from_inside_block,
        replay.replay_open_block,
        replay.replay_skips_finished_calls,
        replay.replay_skips_aborted_blocks,
        replay.replay_interleaved_spans,
        replay.follow_replays_like_read,
        replay.replay_ignores_other_followers,
        replay.late_live_events,
        replay.stray_live_events,
        replay.open_turn_start,
        replay.turn_start_with_several_agents,
        replay.closing_event,
        replay.sessions_with_open_agents,
        replay.span_keys_by_kind,
        side_data.blob_round_trip,
        side_data.query_documents,
        side_data.latest_snapshot,
        side_data.delete_derived_data,
        side_data.prune_finished_live_events,
        side_data.append_and_read_after_pruning,
        side_data.prune_first_and_last_events,
        side_data.healthy_store_verifies,
        following.follow_requested_epoch,
        sessions.session_id_format,
        side_data.blob_requires_media_type,
        appending.fence_rises_without_new_events,
        replay.turn_bounds,
        following.frames_match_pages,
        sessions.record_follows_events,
        replay.first_end_wins,
        side_data.drop_snapshots_by_seq,
        side_data.list_blob_names,
        sessions.record_tracks_invites,
        sessions.expected_members_seq,
        sessions.list_by_invitation,
        sessions.list_by_member,
        sessions.list_by_visible_activity,
        following.follow_some_types,
        following.follow_some_types_live,
        replay.agent_starts,
        appending.new_events_are_named,
        sessions.create_with_events,
        sessions.reading_keeps_list_order,
        following.info_of_followed_session,
        side_data.versions_side_by_side,
        side_data.collect_old_versions,
        side_data.replace_unchanged_snapshot,
        leasing.claim_raises_fence,
        leasing.live_owner_keeps_session,
        leasing.release_keeps_seen,
        leasing.wake_time,
        leasing.wanted_sessions,
        leasing.appends_that_want_nothing,
        leasing.wish_survives_release,
        leasing.attempts_count_unclean_ends,
        leasing.seen_is_saved_by_its_owner,
        leasing.new_session_wants_work,
        leasing.state_is_written_by_release,
        private_blobs.private_blob_round_trip,
        private_blobs.private_and_public_blobs_of_equal_content,
        private_blobs.blob_stays_private,
        private_blobs.drop_private_blobs_by_name,
        appending.repeated_key,
        side_data.erase_removes_all_events,
        leasing.states_are_saved_by_their_owner,
        leasing.owner_confirms_its_lease,
        leasing.draining_owner_keeps_its_sessions,
        uploads.kept_upload_stays,
        uploads.keep_own_public_blobs_only,
        uploads.upload_of_stored_content,
        uploads.repeated_upload_is_new,
        uploads.old_uploads_are_dropped,
    ],
) + number_contracts(
    401,  # 101 begins the next list, 301 the contracts of runtimes
    [
        closing.close_with_last_events,
        closing.closing_again_changes_nothing,
        closing.close_is_refused_as_an_append_is,
        closing.close_event_comes_last_and_only_by_closing,
        closing.imported_close_event_closes,
        sessions.search_titles,
    ],
)

DURABLE_CONTRACTS = number_contracts(
    101,
    [
        durability.events_survive_reopen,
        durability.dedupe_survives_reopen,
        durability.fence_and_close_survive_reopen,
        durability.spans_survive_reopen,
        durability.side_data_survives_reopen,
        durability.pruned_end_survives_reopen,
        durability.session_details_survive_reopen,
        leasing.leases_survive_reopen,
        private_blobs.private_blobs_survive_reopen,
        durability.erased_session_survives_reopen,
        uploads.uploads_survive_reopen,
        closing.close_event_survives_reopen,
    ],
)

SHARED_CONTRACTS = number_contracts(
    201,
    [
        shared.dense_with_several_writers,
        shared.followers_miss_nothing,
        shared.one_event_per_id,
        shared.expectations_hold_across_logs,
        shared.fence_refuses_at_once,
        shared.closing_ends_followers_elsewhere,
        shared.epoch_ends_followers_elsewhere,
        shared.members_change_elsewhere,
        shared.deaf_bell,
        shared.create_at_once,
        shared.opposite_orders,
        shared.dead_owner_is_replaced_once,
        shared.owners_survive_an_outage,
        shared.lease_data_reaches_other_logs,
        shared.wanted_reaches_other_logs,
        shared.bad_value_fails_alone,
        shared.stopped_caller_blocks_no_writer,
        shared.wanted_is_claimed_once,
        shared.reading_changes_nothing,
        shared.lost_lease_is_not_held,
        closing.one_close_of_several,
        closing.close_or_append_at_once,
        closing.close_under_lost_fence,
    ],
)
