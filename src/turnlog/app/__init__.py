"""Applications (agents, vocabulary, reducers, roles) and their sessions."""

from turnlog.app.app import App, Roles, RoleView
from turnlog.app.attachments import Attachments
from turnlog.app.membership import LOCAL, Membership, Principal
from turnlog.app.messages import ClientEvent, SendResult
from turnlog.app.read_models import state_at
from turnlog.app.sessions import Sessions

__all__ = [
    "LOCAL",
    "App",
    "Attachments",
    "ClientEvent",
    "Membership",
    "Principal",
    "RoleView",
    "Roles",
    "SendResult",
    "Sessions",
    "state_at",
]
