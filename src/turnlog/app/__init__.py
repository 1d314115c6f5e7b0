"""Applications: what ties agents, vocabulary and reducers together, and the sessions that run them."""

from turnlog.app.app import App
from turnlog.app.sessions import Sent, Sessions

__all__ = ["App", "Sent", "Sessions"]
