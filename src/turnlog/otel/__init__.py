"""The turns of a session as spans of OpenTelemetry (`turnlog[otel]`), from the log."""

from turnlog.otel.export import export_session_spans
from turnlog.otel.spans import SpanValue, build_spans

__all__ = ["SpanValue", "build_spans", "export_session_spans"]
