"""Which checkpoint a runtime goes on from, and which private blobs nobody needs any more."""

from hypothesis import given
from hypothesis import strategies as st

from tests.support.written_logs import log, scope
from turnlog.events import AgentCheckpoint, ContextCompact, Payload, Scope
from turnlog.state.checkpoints import Checkpoints
from turnlog.state.snapshot import dump, load

ROOT = scope("agt_1")


def checkpoint(name: str, session: str = "sess_1", *, paused: bool = False) -> AgentCheckpoint:
    return AgentCheckpoint(source="f", version="1", blob=f"{session}/private-{name}", paused=paused)


def in_channel(channel: str | None) -> Scope:
    return Scope(trace_id="tr_1", agent_id="agt_1", depth=0, channel=channel)


def folded(*entries: tuple[Payload, Scope]) -> Checkpoints:
    checkpoints = Checkpoints()
    for envelope, payload in log(*entries):
        checkpoints.apply(envelope, payload)
    return checkpoints


def test_the_last_checkpoint_counts_and_supersedes_the_one_before() -> None:
    checkpoints = folded(
        (checkpoint("a"), ROOT), (ContextCompact(), ROOT), (checkpoint("b", paused=True), ROOT)
    )
    assert checkpoints.last == {"": checkpoint("b", paused=True)}
    assert checkpoints.take_superseded() == ["sess_1/private-a"]
    assert checkpoints.take_superseded() == []


def test_a_channel_has_its_own_checkpoint() -> None:
    checkpoints = folded((checkpoint("a"), in_channel("buyer")), (checkpoint("b"), in_channel(None)))
    assert checkpoints.last == {"buyer": checkpoint("a"), "": checkpoint("b")}
    assert checkpoints.take_superseded() == []


def test_a_blob_that_is_named_again_is_needed() -> None:
    again = folded((checkpoint("a"), ROOT), (checkpoint("b"), ROOT), (checkpoint("a"), ROOT))
    assert again.take_superseded() == ["sess_1/private-b"]
    shared = folded(
        (checkpoint("a"), in_channel("buyer")),
        (checkpoint("a"), ROOT),
        (checkpoint("b"), in_channel("buyer")),
    )
    assert shared.take_superseded() == []


def test_a_checkpoint_that_names_a_blob_of_another_session_is_ignored() -> None:
    checkpoints = folded((checkpoint("a"), ROOT), (checkpoint("b", "sess_2"), ROOT))
    assert checkpoints.last == {"": checkpoint("a")}
    assert checkpoints.take_superseded() == []


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.sampled_from([None, "buyer", "seller"]))))
def test_no_needed_blob_is_superseded_and_no_other_is_forgotten(steps: list[tuple[str, str | None]]) -> None:
    entries = [(checkpoint(name), in_channel(channel)) for name, channel in steps]
    checkpoints = folded(*entries)
    needed = {item.blob for item in checkpoints.last.values()}
    names = {payload.blob for payload, _ in entries}
    restored = load(Checkpoints, dump(checkpoints))
    assert restored == checkpoints
    assert set(checkpoints.take_superseded()) == names - needed
