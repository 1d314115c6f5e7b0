"""What a protocol of another project is to the server: a name, and routes that use the server's parts.

`create_app(protocols=[...])` takes them, and `turnlog serve` serves all of `PROTOCOLS`. The routes run behind
the same checks as the server's own (host, origin, authentication, limits). A protocol that streams
turns does so in a dialect (`turnlog.wire.dialects`), which owns the bytes of its stream.
"""

from collections.abc import Iterable
from typing import NamedTuple, Protocol

from turnlog.errors import CallerError
from turnlog.server.limits.policy import Limits
from turnlog.server.openapi import Operation
from turnlog.server.session_access import SessionAccess
from turnlog.server.streaming.event_stream import EventStreamRoute


class ProtocolServer(NamedTuple):
    """The parts of a server that its protocols use: sessions, streams with their dialects, and limits."""

    access: SessionAccess
    events: EventStreamRoute
    limits: Limits


class ServerProtocol(Protocol):
    """One protocol. `name` is what `turnlog serve --without-protocol` calls it."""

    @property
    def name(self) -> str: ...

    def operations(self, server: ProtocolServer) -> list[Operation]:
        """Return the routes. This is called once, before the server starts; its sessions exist later."""
        ...


def index_protocols(protocols: Iterable[ServerProtocol]) -> dict[str, ServerProtocol]:
    """Return protocols by name. Raise `CallerError` for two of the same name."""
    by_name: dict[str, ServerProtocol] = {}
    for protocol in protocols:
        if protocol.name in by_name:
            raise CallerError(f"expected protocols of different names, got {protocol.name} twice")
        by_name[protocol.name] = protocol
    return by_name
