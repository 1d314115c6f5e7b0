"""Applications: what ties agents, vocabulary and reducers together, and the sessions that run them."""

from turnlog.app.app import App, Roles
from turnlog.app.client_events import Posted
from turnlog.app.membership import LOCAL, Principal, Seat
from turnlog.app.messages import Sent
from turnlog.app.read_models import state_at
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
