"""The server: logs and agents over HTTP. `create_app` gives an ASGI application, `serve` runs it."""

from turnlog.server.application import create_app
from turnlog.server.auth.credentials import Identity
from turnlog.server.uvicorn_server import serve

__all__ = ["Identity", "create_app", "serve"]
