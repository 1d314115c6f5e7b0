"""Logs written by hand: events with given ids, seqs and times, as a reader of the log would get them."""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from turnlog.events import (
    Catalog,
    Envelope,
    Event,
    EventDraft,
    Origin,
    Payload,
    Scope,
    UnknownPayload,
    decode_envelope,
    encode_envelope,
)
from turnlog.vocabularies import FULL_CATALOG

Item = tuple[Envelope, Payload | UnknownPayload]

ORIGINS: tuple[Origin, ...] = ("system", "model", "ui", "tool", "app")


def scope(agent_id: str, depth: int = 0, trace_id: str = "tr_1") -> Scope:
    """The scope of an invocation."""
    return Scope(trace_id=trace_id, agent_id=agent_id, agent_name=agent_id.upper(), depth=depth)


def place(event: Event, seq: int, catalog: Catalog = FULL_CATALOG) -> Item:
    """An event at its seq."""
    envelope = decode_envelope(
        encode_envelope(event, session_id="sess_1", seq=seq, ts_ms=1_767_875_696_000 + seq)
    )
    return envelope, catalog.decode_payload(envelope)


def entry(
    payload: Payload,
    at: Scope = Scope(),  # noqa: B008
    seq: int = 0,
    catalog: Catalog = FULL_CATALOG,
) -> Item:
    """One event of a log, from whoever may emit it."""
    kind = catalog.get_event_type(catalog.get_type_name(type(payload)))
    origin = next(origin for origin in ORIGINS if kind.allows_origin(payload, origin))
    return place(catalog.build_event(payload, id=f"evt_{seq}", origin=origin, scope=at), seq, catalog)


def log(*entries: tuple[Payload, Scope]) -> list[Item]:
    """A log of these events."""
    return [entry(payload, at, seq) for seq, (payload, at) in enumerate(entries)]


def plain_log(payloads: Iterable[Payload], catalog: Catalog) -> list[Item]:
    """A log of events of nobody in particular."""
    return [entry(payload, Scope(), seq, catalog) for seq, payload in enumerate(payloads)]


def vector_log(entries: Iterable[Mapping[str, Any]]) -> list[Item]:
    """The log of a vector: entries have the fields of an envelope, without what their place decides."""
    return [place(vector_event(fields, seq), seq) for seq, fields in enumerate(entries)]


def vector_event(fields: Mapping[str, Any], seq: int) -> Event:
    """An event as it stands in a vector; its type may be one that nobody declares."""
    body = msgspec.json.encode(fields["payload"])
    at = {name: value for name, value in fields.items() if name in Scope.__struct_fields__}
    return Event(
        type=fields["type"],
        id=f"evt_{seq}",
        payload=UnknownPayload(msgspec.Raw(body)),
        body=body,
        origin=fields.get("origin", "system"),
        scope=msgspec.convert(at, Scope),
    )


def closing_log(closings: Iterable[EventDraft], seq: int) -> list[Item]:
    """The closing events in the log, from a seq on; the catalog has to take them."""
    return [
        place(item.build(FULL_CATALOG, "evt_unused"), seq + number) for number, item in enumerate(closings)
    ]
