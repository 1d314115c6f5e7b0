"""The Python client of a server: `turnlog.connect(url, token)` and `turnlog.connect_sync(url, token)`."""

from turnlog.agents.remote.server_client import ServerUnavailable
from turnlog.connection.event_follower import Reset
from turnlog.connection.json_requests import ServerRefused
from turnlog.connection.server_connection import SentMessage, ServerConnection, SessionInfo, connect
from turnlog.connection.sync_connection import SyncConnection, connect_sync

__all__ = [
    "Reset",
    "SentMessage",
    "ServerConnection",
    "ServerRefused",
    "ServerUnavailable",
    "SessionInfo",
    "SyncConnection",
    "connect",
    "connect_sync",
]
