"""A checkpointer for graphs that have none: the checkpoints of a thread as bytes, and the same thread again.

The bytes are the state of an `agent.checkpoint`, so questions of a graph and its checkpoints are one append.
Only what a thread needs to go on is kept: the last checkpoint, or all if a channel stores differences.
Checkpoints of graphs inside tools and nodes are kept while the thread is paused.
"""

from collections.abc import Mapping
from typing import Any

import msgspec
from langgraph.channels import DeltaChannel
from langgraph.checkpoint.memory import InMemorySaver

TypedBytes = tuple[str, bytes]


class SavedWrite(msgspec.Struct, array_like=True):
    ns: str
    checkpoint_id: str
    task_id: str
    index: int
    channel: str
    value: TypedBytes
    task_path: str


class SavedValue(msgspec.Struct, array_like=True):
    ns: str
    channel: str
    version: str | int | float
    value: TypedBytes


class SavedThread(msgspec.Struct, array_like=True):
    """`checkpoints` by namespace and id: the checkpoint, its metadata, and the id of its parent."""

    checkpoints: dict[str, dict[str, tuple[TypedBytes, TypedBytes, str | None]]]
    writes: list[SavedWrite]
    values: list[SavedValue]


def load_thread(thread_id: str, saved: SavedThread | None) -> InMemorySaver:
    """Return a checkpointer that has one thread."""
    saver = InMemorySaver()
    if saved is None:
        return saver
    for ns, checkpoints in saved.checkpoints.items():
        saver.storage[thread_id][ns].update(checkpoints)
    for write in saved.writes:
        key = (thread_id, write.ns, write.checkpoint_id)
        entry = (write.task_id, write.channel, write.value, write.task_path)
        saver.writes[key][write.task_id, write.index] = entry
    for value in saved.values:
        saver.blobs[thread_id, value.ns, value.channel, value.version] = value.value
    return saver


def save_thread(
    saver: InMemorySaver, thread_id: str, channels: Mapping[str, Any], *, is_paused: bool
) -> SavedThread:
    keeps_all = any(isinstance(channel, DeltaChannel) for channel in channels.values())
    checkpoints: dict[str, dict[str, tuple[TypedBytes, TypedBytes, str | None]]] = {}
    versions: set[tuple[str, str, Any]] = set()
    for ns, by_id in saver.storage[thread_id].items():
        # a namespace with the id of a task is that of one invocation
        if not by_id or (":" in ns and not is_paused):
            continue
        is_whole = keeps_all or bool(ns)
        kept_ids = list(by_id) if is_whole else [max(by_id)]
        checkpoints[ns] = {checkpoint_id: by_id[checkpoint_id] for checkpoint_id in kept_ids}
        for checkpoint, _, _ in checkpoints[ns].values():
            channel_versions = saver.serde.loads_typed(checkpoint)["channel_versions"]
            versions.update((ns, channel, version) for channel, version in channel_versions.items())

    writes = [
        SavedWrite(ns, checkpoint_id, task_id, index, channel, value, task_path)
        for (thread, ns, checkpoint_id), entries in saver.writes.items()
        if thread == thread_id and checkpoint_id in checkpoints.get(ns, ())
        for (_, index), (task_id, channel, value, task_path) in entries.items()
    ]
    values = [
        SavedValue(ns, channel, version, value)
        for (thread, ns, channel, version), value in saver.blobs.items()
        if thread == thread_id and (ns, channel, version) in versions
    ]
    return SavedThread(checkpoints, writes, values)
