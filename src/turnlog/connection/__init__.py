"""The Python client of a server: `turnlog.connect(url, token)` and `turnlog.connect_sync(url, token)`."""

from turnlog.agents.remote.server_client import ServerUnavailable
from turnlog.connection.event_follower import HistoryReset
from turnlog.connection.json_requests import ServerRefused
from turnlog.connection.server_connection import MessageReceipt, ServerConnection, SessionOverview, connect
from turnlog.connection.sync_connection import SyncConnection, connect_sync

__all__ = [
    "HistoryReset",
    "MessageReceipt",
    "ServerConnection",
    "ServerRefused",
    "ServerUnavailable",
    "SessionOverview",
    "SyncConnection",
    "connect",
    "connect_sync",
]
