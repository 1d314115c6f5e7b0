"""Every fold of a session: live, replayed, and from a snapshot at any cut with the events after it."""

from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from tests.support.examples import examples
from tests.support.folds import apply_events, fold_documents
from tests.support.random_logs import Legal, expected, logs, pruned
from tests.support.written_logs import Item, entry
from turnlog import events as ev
from turnlog.events import AgentEnd, AgentUsage
from turnlog.events.agent import strip_agent_prefix
from turnlog.events.ui import ButtonClick
from turnlog.state.derived_documents import is_document_visible
from turnlog.state.history import Conversation, History, Message
from turnlog.state.meters import Meters
from turnlog.state.pending import build_pending_report
from turnlog.state.snapshot import dump, load
from turnlog.state.transcript import Transcript
from turnlog.state.tree import Tree
from turnlog.team.documents import Documents
from turnlog.team.events import TEAM, ArtifactMeta, ArtifactWrite, RosterJoin, RosterMember, RosterStatus

FOLDS: list[Any] = [Tree, Transcript, Meters, Documents]
some = examples(17)


class Agree(ev.Payload, frozen=True, kw_only=True):
    """An event of an application, from its page."""

    ORIGINS: ClassVar = frozenset({"ui"})
    granted: bool


CATALOG = ev.Catalog(ev.CORE, TEAM, ev.Vocabulary("broker", [Agree]))
names, seats = st.sampled_from(["Lyra", "Otto"]), st.integers(0, 2)
members = st.builds(
    RosterMember, name=names, status=st.sampled_from(["alive", "idle", "shutdown"]), seat=seats
)
metas = st.builds(ArtifactMeta, description=st.none() | names, chapter=st.none() | names)
written = {"filename": names, "path": names, "is_new": st.booleans(), "size_bytes": seats}
BESIDE: st.SearchStrategy[ev.Payload] = st.one_of(  # what may stand anywhere in a log
    st.builds(RosterJoin, name=names, seat=seats, soul=names),
    st.builds(RosterStatus, agents=st.lists(members, max_size=3).map(tuple)),
    st.builds(ArtifactWrite, meta=st.none() | metas, **written),
    st.builds(ev.ProcessStart, process=st.sampled_from(["server", "model"]), pid=seats),
    st.just(ev.ProcessEnd(process="model", reason="process_crash")),
    st.just(ev.UiAction(action=ButtonClick(button_id="b1"))),
    st.builds(Agree, granted=st.booleans()),
    st.builds(ev.SessionMember, principal=names, roles=st.sampled_from([(), ("customer",)])),
)


@st.composite
def sessions(draw: st.DrawFn) -> list[Item]:
    """A legal log with other events in it, some of them for one channel."""
    items = list(draw(logs()).items)
    for payload in draw(st.lists(BESIDE, max_size=8)):
        channel = draw(st.sampled_from([None, "customer"]))
        at = ev.Scope(trace_id=f"tr_x{len(items)}", channel=channel, actor="ada")
        items.insert(draw(st.integers(0, len(items))), entry(payload, at, 0, CATALOG))
    return [
        (structs.replace(envelope, seq=seq, id=f"evt_{seq}"), payload)
        for seq, (envelope, payload) in enumerate(items)
    ]


@pytest.mark.parametrize("kind", FOLDS, ids=lambda kind: kind.__name__)
def test_a_snapshot_at_any_cut_and_the_tail_are_the_whole(kind: Any) -> None:
    @some
    @given(sessions(), st.data())
    def holds(items: list[Item], data: st.DataObject) -> None:
        whole = apply_events(kind(), items)
        for cut in {0, len(items), *data.draw(st.lists(st.integers(0, len(items)), max_size=6))}:
            before = apply_events(kind(), items[:cut])
            again = load(kind, dump(before))
            assert again == before
            assert dump(again) == dump(before)
            assert dump(apply_events(again, items[cut:])) == dump(whole)

    holds()


def changes(kept: Documents, items: list[Item]) -> dict[str, Any]:
    return {made.id: made for envelope, payload in items for made in kept.apply(envelope, payload)}


@some
@given(sessions(), st.data())
def test_documents_made_one_by_one_across_a_snapshot_are_those_of_a_rebuild(
    items: list[Item], data: st.DataObject
) -> None:
    cut = data.draw(st.integers(0, len(items)))
    first = Documents()
    stored = changes(first, items[:cut])
    stored |= changes(load(Documents, dump(first)), items[cut:])
    assert stored == fold_documents(items)


@some
@given(sessions())
def test_nobody_sees_what_is_for_another_channel(items: list[Item]) -> None:
    public = [(envelope, payload) for envelope, payload in items if envelope.channel is None]
    shown = {key: made for key, made in fold_documents(items).items() if is_document_visible([], made.body)}
    ends = [envelope.channel for envelope, payload in items if isinstance(payload, ev.ProcessEnd)]
    assert any(ends) or shown == fold_documents(public)  # an end is everybody's, wherever it is said
    assert apply_events(Transcript(), items).visible_in([]) == apply_events(Transcript(), public).visible_in(
        []
    )


@some
@given(sessions())
def test_what_is_told_needs_no_live_events(items: list[Item]) -> None:
    for kind in (Transcript, Meters, Documents):
        assert dump(apply_events(kind(), items)) == dump(apply_events(kind(), pruned(items)))
    whole, durable = (apply_events(History(), log) for log in (items, pruned(items)))
    for conversations in ("by_channel", "by_agent"):
        assert messages_of(getattr(whole, conversations)) == messages_of(getattr(durable, conversations))


def messages_of(conversations: dict[str, Conversation]) -> dict[str, list[Message]]:
    return {key: conversation.messages for key, conversation in conversations.items()}


@some
@given(logs())
def test_the_transcript_has_the_texts_that_stand(legal: Legal) -> None:
    said: dict[str, list[str]] = {}
    for bubble in apply_events(Transcript(), legal.items).entries.values():
        if bubble.who == "assistant":
            said.setdefault(strip_agent_prefix(bubble.agent_id or ""), []).append(bubble.text)
    stands = {
        agent: sorted(text for kind, text in parts if kind == "text" and text.strip())
        for agent, parts in expected(legal.items).items()
    }
    assert {agent: sorted(texts) for agent, texts in said.items()} == {
        agent: texts for agent, texts in stands.items() if texts
    }


@some
@given(logs())
def test_message_documents_have_the_same_texts_whole(legal: Legal) -> None:
    bubbles = apply_events(Transcript(), legal.items).entries.values()
    whole = sorted(bubble.text for bubble in bubbles if not bubble.partial)
    parts = [
        part
        for document in fold_documents(legal.items).values()
        if document.type == "message"
        for part in msgspec.json.decode(document.body)["content"]
    ]
    assert sorted(part["text"] for part in parts if part["type"] == "text") == whole


@some
@given(logs())
def test_the_meters_count_each_completion_once(legal: Legal) -> None:
    meters = apply_events(Meters(), legal.items)
    reported = [payload for _, payload in legal.items if isinstance(payload, AgentUsage)]
    assert meters.session is not None
    for counted in ([meters.session], meters.turns.values(), meters.agents.values()):
        assert sum(meter.completions for meter in counted) == len(reported)
        assert sum(meter.output_tokens for meter in counted) == 2 * len(reported)
    ended = [envelope.ts for envelope, payload in legal.items if isinstance(payload, AgentEnd)]
    assert len(ended) == meters.session.agents == len(meters.agents)
    assert meters.session.running == 0
    assert all(agent.duration_ms is not None for agent in meters.agents.values())


@some
@given(logs(), st.data())
def test_what_is_pending_is_json_and_what_the_tree_holds(legal: Legal, data: st.DataObject) -> None:
    tree = apply_events(Tree(), legal.items[: data.draw(st.integers(0, len(legal.items)))])
    shown = build_pending_report(tree)
    assert msgspec.json.decode(msgspec.json.encode(shown)) == shown
    assert len(shown["calls"]) == sum(len(invocation.calls) for invocation in tree.open.values())

    def count(nodes: list[dict[str, Any]]) -> int:
        return sum(1 + count(node["agents"]) for node in nodes)

    assert count(shown["agents"]) == len(tree.open)
