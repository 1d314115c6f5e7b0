"""What agent and executor agree on: the tools that run in another process, and what they take.

Here are signatures only; the agent is told of them, and `turnlog_examples.weights.executor` puts its own
functions behind them. What a weight may be is not said here: that is the executor's to judge.
"""

from typing import Annotated, Any

import msgspec

from turnlog import tool
from turnlog.agents import Tool

Limit = Annotated[int, msgspec.Meta(ge=1, le=500)]
EXPIRES_S = 600.0  # a person who is asked about a deletion is looking at the page


class Entry(msgspec.Struct, forbid_unknown_fields=True):
    """One weigh-in; without an id it is a new one. `measured_at` has the UTC offset."""

    measured_at: str
    weight_lbs: float
    notes: str = ""
    id: str | None = None


@tool(executor="remote", kind="write")
def weight_entry_save_batch(rows: list[Entry]) -> dict[str, Any]:
    """Save weigh-ins, all or none: those with an id are changed, others are new.

    Args:
        rows: As {"measured_at": "2026-01-08T12:00:00-05:00", "weight_lbs": 187.6, "notes": ""}.
    """
    raise NotImplementedError


@tool(executor="remote")
def weight_entries_list(limit: Limit = 30) -> dict[str, Any]:
    """The user's weigh-ins, the newest first.

    Args:
        limit: At most so many.
    """
    raise NotImplementedError


@tool(executor="remote")
def weight_audit_list(limit: Limit = 30) -> dict[str, Any]:
    """What was changed in the user's weigh-ins, when, by whom and by which call, the last change first.

    Args:
        limit: At most so many.
    """
    raise NotImplementedError


def make_delete(expires_s: float = EXPIRES_S) -> Tool:
    """The tool that deletes; a person has so long to agree."""

    @tool(executor="remote", kind="write", approval=True, risk="db_write", expires_s=expires_s)
    def weight_entry_delete(ids: list[str]) -> dict[str, Any]:
        """Delete weigh-ins, all or none. A person is asked first.

        Args:
            ids: The ids of the weigh-ins.
        """
        raise NotImplementedError

    return weight_entry_delete
