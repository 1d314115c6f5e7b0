"""Protocols of other projects, each with its own routes."""

from collections.abc import Callable

from turnlog.server.protocols.ag_ui.routes import AgUiProtocol
from turnlog.server.protocols.ai_sdk.routes import AiSdkProtocol
from turnlog.server.protocols.base import ServerProtocol
from turnlog.server.protocols.durable_streams import DurableStreams

# Every protocol of this package by its name. `turnlog serve` serves them all, unless an option turns one off.
PROTOCOLS: dict[str, Callable[[], ServerProtocol]] = {
    AgUiProtocol.name: AgUiProtocol,
    AiSdkProtocol.name: AiSdkProtocol,
    DurableStreams.name: DurableStreams,
}
