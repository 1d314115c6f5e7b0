"""Durable Streams, the pure parts: events, offsets, headers, the state of a stream, framing."""
