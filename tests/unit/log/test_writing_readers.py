"""Controls of the contract that reading changes nothing: stores whose reads write are found."""

from collections.abc import Callable

import pytest
from msgspec import structs

from turnlog.errors import Fenced
from turnlog.log import MemoryStore, Page
from turnlog.log.jobs import Snapshot
from turnlog.testing import SHARED_CONTRACTS

[CONTRACT] = [contract for contract in SHARED_CONTRACTS if contract.name == "reading_changes_nothing"]


def raise_fence(store: MemoryStore, session_id: str) -> None:
    record = store.get_record(session_id)
    assert record is not None
    store.put_record(structs.replace(record, fence=record.fence + 1))


def write_snapshot(store: MemoryStore, session_id: str) -> None:
    store.put_snapshot(Snapshot(session_id, "contract", 0, b"{}"), 0)


class WritingStore(MemoryStore):
    """A store whose reads write."""

    def __init__(self, write: Callable[[MemoryStore, str], None]) -> None:
        super().__init__()
        self._write = write

    def read(self, session_id: str, after: int, replay_from: int | None, limit_bytes: int) -> Page:
        page = super().read(session_id, after, replay_from, limit_bytes)
        if page:
            self._write(self, session_id)
        return page


@pytest.mark.parametrize("write", [raise_fence, write_snapshot])
def test_control_a_store_whose_reads_write_breaks_the_contract(
    write: Callable[[MemoryStore, str], None],
) -> None:
    store = WritingStore(write)
    with pytest.raises((AssertionError, Fenced)):
        CONTRACT.check(lambda: store)
