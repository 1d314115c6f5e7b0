"""The contract of a store, numbered, for whoever writes one. With pytest:

    @pytest.mark.parametrize("contract", CONTRACTS, ids=str)
    def test_contract(contract: Contract, tmp_path: Path) -> None:
        contract.check(lambda: MyStore(tmp_path / "log"))

`CONTRACTS` bind every store: each gets a new, empty one. `LASTING_CONTRACTS` bind a store that outlives its
process: it is closed and made again, and everything must be there. A contract talks to the store through
`Log`, as the rest of the package does; it raises AssertionError, or TimeoutError when something never comes.
Numbers are stable: a new contract goes to the end of its list.
"""

from collections.abc import Awaitable, Callable, Iterable

from turnlog.testing import appending, durability, following, replay, sessions, side_data
from turnlog.testing.harness import Contract, Make

__all__ = ["CONTRACTS", "LASTING_CONTRACTS", "Contract", "Make"]


def numbered(first: int, runs: Iterable[Callable[[Make], Awaitable[None]]]) -> list[Contract]:
    """Contracts from functions; what a function promises is its docstring."""
    return [
        Contract(number, run.__doc__ or "", getattr(run, "__name__", ""), run)
        for number, run in enumerate(runs, first)
    ]


CONTRACTS = numbered(
    1,
    [
        appending.dense_seqs,
        appending.visible_when_acknowledged,
        appending.bytes_as_stored,
        appending.what_stands_beside,
        appending.all_or_nothing,
        appending.neighbours_unharmed,
        appending.cancelled_append,
        appending.duplicate_alone,
        appending.duplicate_among_new,
        appending.what_a_body_is,
        appending.id_twice_in_a_batch,
        appending.expected_last,
        appending.expected_last_again,
        appending.expected_rank,
        appending.fences,
        sessions.closed_refuses,
        sessions.closed_ends_followers,
        sessions.unknown_session,
        sessions.session_list,
        sessions.sessions_are_independent,
        sessions.heads,
        following.pages,
        following.follow_from_anywhere,
        following.no_seam,
        following.slow_follower,
        following.idle_follower,
        following.own_wake_ups,
        replay.left_out,
        replay.delta_by_delta,
        replay.open_block,
        replay.calls_like_blocks,
        replay.aborted_like_complete,
        replay.interleaved,
        replay.follow_replays_alike,
        replay.alone_or_not,
        replay.late_live_events,
        replay.stray_live_events,
        replay.where_turns_start,
        replay.turns_of_several_agents,
        replay.what_closed_it,
        replay.unfinished_sessions,
        replay.keys_of_different_kinds,
        side_data.blobs,
        side_data.documents,
        side_data.snapshots,
        side_data.derived_is_forgotten,
        side_data.pruned,
        side_data.life_after_pruning,
        side_data.pruned_to_the_end,
        side_data.healthy,
        following.epoch_asked_for,
        sessions.names_of_sessions,
        side_data.blobs_have_a_type,
        appending.fences_without_news,
        replay.where_a_turn_is,
        following.frames_alike,
        sessions.what_events_say,
        replay.first_end_counts,
        side_data.snapshots_are_dropped,
        side_data.blob_names,
        sessions.invites_in_the_head,
        sessions.expected_members,
        sessions.listed_by_invitation,
        sessions.listed_by_member,
        sessions.listed_by_what_a_member_sees,
        following.some_types,
        following.types_that_come_later,
        replay.where_an_agent_began,
    ],
)

LASTING_CONTRACTS = numbered(
    101,
    [
        durability.events_last,
        durability.identity_lasts,
        durability.heads_last,
        durability.spans_last,
        durability.the_rest_lasts,
        durability.pruned_to_the_end_lasts,
        durability.what_events_said_lasts,
    ],
)
