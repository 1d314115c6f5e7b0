"""Send the spans of a session to an exporter of the OpenTelemetry SDK. Imports the SDK when it is called."""

from typing import TYPE_CHECKING, Any

from turnlog.errors import CallerError, PeerError
from turnlog.events import Catalog, decode_envelope
from turnlog.log import Log, envelope_json
from turnlog.otel.spans import SpanBuilder, SpanValue
from turnlog.vocabularies import FULL_CATALOG

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter

SCOPE_NAME = "turnlog"
SERVICE_NAME = "turnlog"
MAX_SPANS_PER_EXPORT = 512  # as the SDK's own processor sends at most
MISSING_PACKAGE = "spans need the OpenTelemetry SDK: pip install 'turnlog[otel]'"


async def export_session_spans(
    log: Log,
    session_id: str,
    exporter: "SpanExporter",
    *,
    after: int = -1,
    resource: "Resource | None" = None,
    catalog: Catalog = FULL_CATALOG,
) -> int:
    """Export the spans of a session that ended after a seq. Return the last seq, for the next export.

    The whole log of the session is read. Spans that were exported before have the same ids again. Raise
    `PeerError` if the exporter fails: the same call may be repeated.
    """
    builder = SpanBuilder(session_id)
    last = -1
    while page := await log.read(session_id, last, replay_from=-1):
        for row in page:
            if not row.live:
                builder.apply(catalog.decode_entry(decode_envelope(envelope_json(row))))
        last = page.last
        spans = [span for span in builder.take_spans() if span.last_seq > after]
        for start in range(0, len(spans), MAX_SPANS_PER_EXPORT):
            send_spans(exporter, spans[start : start + MAX_SPANS_PER_EXPORT], resource)
    return last


def send_spans(exporter: "SpanExporter", spans: list[SpanValue], resource: "Resource | None") -> None:
    try:
        from opentelemetry.sdk.resources import Resource
        from opentelemetry.sdk.trace.export import SpanExportResult
    except ImportError:
        raise CallerError(MISSING_PACKAGE) from None

    used_resource = resource or Resource.create({"service.name": SERVICE_NAME})
    result = exporter.export([to_readable_span(span, used_resource) for span in spans])
    if result is not SpanExportResult.SUCCESS:
        raise PeerError(f"the exporter {type(exporter).__name__} did not accept {len(spans)} spans")


def to_readable_span(span: SpanValue, resource: "Resource") -> "ReadableSpan":
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

    def make_context(span_id: str) -> Any:
        sampled = TraceFlags(TraceFlags.SAMPLED)
        return SpanContext(int(span.trace_id, 16), int(span_id, 16), is_remote=False, trace_flags=sampled)

    is_ok = span.error is None
    # made here and not by a tracer: a tracer would choose ids and times of its own
    return ReadableSpan(
        name=span.name,
        context=make_context(span.span_id),
        parent=make_context(span.parent_span_id) if span.parent_span_id else None,
        resource=resource,
        attributes=span.attributes,
        kind=SpanKind[span.kind.upper()],
        status=Status(StatusCode.UNSET) if is_ok else Status(StatusCode.ERROR, span.error),
        start_time=span.start_ns,
        end_time=span.end_ns,
        instrumentation_scope=InstrumentationScope(SCOPE_NAME),
    )
