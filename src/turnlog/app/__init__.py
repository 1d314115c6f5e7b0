"""Applications: what ties agents, vocabulary and reducers together, and the sessions that run them."""

from turnlog.app.app import App, Roles
from turnlog.app.derived import state_at
from turnlog.app.members import LOCAL, Principal, Seat
from turnlog.app.posting import Posted
from turnlog.app.sending import Sent
from turnlog.app.sessions import Sessions

__all__ = [
    "LOCAL",
    "App",
    "Posted",
    "Principal",
    "Roles",
    "Seat",
    "Sent",
    "Sessions",
    "state_at",
]
