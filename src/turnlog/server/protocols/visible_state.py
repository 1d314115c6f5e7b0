"""The application's state as one member sees it, followed event by event."""

from typing import Any

import msgspec

from turnlog.app import Membership, Sessions
from turnlog.app.read_models import STATE, Charge
from turnlog.events import Envelope, Payload, UnknownPayload
from turnlog.state.fold import fold, guard_reducers


class VisibleState:
    """The state after the events that were applied. `value` is JSON."""

    def __init__(self, membership: Membership, state: Any) -> None:
        self._membership = membership
        self._reducers = guard_reducers(membership.app.reducers)
        self._state = state

    @property
    def value(self) -> Any:
        visible = self._membership.visible_state(self._state)
        return msgspec.json.decode(msgspec.json.encode(visible))

    def apply(self, envelope: Envelope, payload: Payload | UnknownPayload) -> bool:
        """Apply an event. Return whether it changed the state."""
        state = fold(self._reducers, [(envelope, payload)], self._state)
        is_changed = state is not self._state
        self._state = state
        return is_changed


async def load_visible_state(
    sessions: Sessions, membership: Membership, at: int, charge: Charge
) -> VisibleState | None:
    """Return the state as of a seq; None if the application has none."""
    if not membership.app.reducers:
        return None
    models = await sessions.read_models.load_read_models(
        membership.app, membership.session_id, at, {STATE}, charge
    )
    return VisibleState(membership, models.state)
