"""Dialects: pure projections of the log, one module each, and their registry."""

from turnlog.wire.dialects.base import DEFAULT_OPTIONS, Dialect, DialectFactory, DialectOptions, no_history
from turnlog.wire.dialects.framing import encode_frames

__all__ = ["DEFAULT_OPTIONS", "Dialect", "DialectFactory", "DialectOptions", "encode_frames", "no_history"]
