"""The Durable Streams protocol on the log: `/v1/stream/...` (protocol section 12)."""

from turnlog.server.protocols.durable_streams.routes import DurableStreams

__all__ = ["DurableStreams"]
