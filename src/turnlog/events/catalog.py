"""Vocabularies and the catalog: the only place where a type name becomes a class, and a class its name.

A `Vocabulary` is a list of payload classes. The package's own classes declare their full names. The name of
an application's type is the vocabulary's name and the class name in snake case:
`Vocabulary("broker", [RecordEligibility])` declares `broker.record_eligibility`, whose bare tag name is
`record_eligibility`. A `Catalog` joins vocabularies, builds events and decodes payloads. What happens with an
event is in tables of other packages, keyed by class.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from turnlog.errors import CallerError, InvalidEvent, UnknownType, quote
from turnlog.events.assistant import NODES_KIND, AssistantView
from turnlog.events.envelope import Entry, Envelope, Event, Scope, UnknownPayload
from turnlog.events.names import check_names
from turnlog.events.payload import ANY_ORIGIN, EVENT_ID_PATTERN, Origin, Origins, Payload
from turnlog.events.strict_json import MAX_JSON_DEPTH, exceeds_depth, one_line, split_validation_error
from turnlog.events.tool import ToolResult, find_contradiction

MAX_PAYLOAD_DEPTH = 2 * MAX_JSON_DEPTH  # validated input plus the payload that wraps it
_TYPE_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)?")
_is_event_id = re.compile(EVENT_ID_PATTERN).match
_CAMEL_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def tag_name(payload: type[Payload]) -> str:
    """Return the bare name of an application's event: `NoteTrip` is `note_trip`."""
    return _CAMEL_BOUNDARY.sub("_", payload.__name__).lower()


class EventType(msgspec.Struct, frozen=True):
    """A declared type: its full name, its class, and the decoder of its payloads."""

    name: str
    payload_class: type[Payload]
    decoder: msgspec.json.Decoder[Payload]

    @property
    def tag(self) -> str:
        return self.name.rpartition(".")[2]

    def decode_payload(self, body: bytes | msgspec.Raw) -> Payload:
        """Decode a payload. Raise `InvalidEvent` with the path if it does not fit the class."""
        try:
            payload = self.decoder.decode(body)
        except msgspec.ValidationError as error:
            raise InvalidEvent(*split_validation_error(error)) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidEvent(f"expected JSON: {one_line(str(error))}", "$") from None
        check_names(self.payload_class, payload)
        return payload

    def allows_origin(self, payload: Payload, origin: str) -> bool:
        origins: Origins = self.payload_class.ORIGINS
        if callable(origins):
            return origin in origins(payload)
        return origin in origins


class Misfit(msgspec.Struct, frozen=True):
    """A declared type whose stored events no longer decode. `problem` is the first event's."""

    type: str
    count: int
    problem: str


class Vocabulary:
    """The declared types of one application (or of the package itself). Raises `InvalidEvent`."""

    def __init__(self, name: str, payloads: Iterable[type[Payload]]) -> None:
        check_type_name(name)
        self.name = name
        self.types: dict[str, EventType] = {}
        for payload_class in payloads:
            self._declare(payload_class)

    def _declare(self, payload_class: object) -> None:
        if not (isinstance(payload_class, type) and issubclass(payload_class, Payload)):
            raise InvalidEvent(f"expected a subclass of Payload, got {quote(payload_class)}", self.name)

        name = payload_class.TYPE or f"{self.name}.{tag_name(payload_class)}"
        check_type_name(name)
        if name in self.types:
            raise InvalidEvent(f"expected each type once, got {name} twice", self.name)

        check_declarations(name, payload_class)
        self.types[name] = EventType(name, payload_class, msgspec.json.Decoder(payload_class))

    def __iter__(self) -> Iterator[EventType]:
        return iter(self.types.values())

    def find_tag(self, tag: str) -> EventType | None:
        """Return the type with this bare tag name; None if this vocabulary does not declare it."""
        return self.types.get(f"{self.name}.{tag}")


class Catalog:
    """All types of a session: name to class, class to name. Raises `InvalidEvent` for a duplicate."""

    def __init__(self, *vocabularies: Vocabulary) -> None:
        self.types: dict[str, EventType] = {}
        for vocabulary in vocabularies:
            for event_type in vocabulary:
                name = event_type.name
                if self.types.setdefault(name, event_type) is not event_type:
                    raise InvalidEvent(f"expected each type once, got {name} twice", vocabulary.name)

        self._type_names: dict[type[Payload], str] = {}
        for event_type in self:
            name = event_type.name
            first_name = self._type_names.setdefault(event_type.payload_class, name)
            if first_name != name:
                raise InvalidEvent(f"expected each class once, got {first_name} and {name} of one", name)

    def __iter__(self) -> Iterator[EventType]:
        return iter(self.types.values())

    def get_event_type(self, name: str) -> EventType:
        try:
            return self.types[name]
        except KeyError:
            raise UnknownType(f"expected a declared type, got {quote(name)}") from None

    def find_tag(self, tag: str) -> EventType | None:
        """Return the application's event of a bare name, or None. Turnlog's own classes have full names."""
        for event_type in self:
            if event_type.tag == tag and not event_type.payload_class.TYPE:
                return event_type
        return None

    def get_type_name(self, payload_class: type[Payload]) -> str:
        try:
            return self._type_names[payload_class]
        except KeyError:
            raise UnknownType(f"expected a declared class, got {payload_class.__name__}") from None

    def decode_payload(self, envelope: Envelope) -> Payload | UnknownPayload:
        """Decode the payload of an envelope. Return an `UnknownPayload` if this version cannot."""
        return self.decode_or_unknown(envelope.type, envelope.payload)

    def decode_or_unknown(self, name: str, data: msgspec.Raw) -> Payload | UnknownPayload:
        """Decode a stored payload. Return an `UnknownPayload`, with the problem, if it does not fit."""
        event_type = self.types.get(name)
        if event_type is None:
            return UnknownPayload(data)
        try:
            return event_type.decode_payload(data)
        except InvalidEvent as error:
            return UnknownPayload(data, str(error))

    def find_misfits(self, stored: Iterable[tuple[str, bytes]]) -> list["Misfit"]:
        """Return the declared types whose stored (type, payload) pairs no longer decode, with counts."""
        misfits: dict[str, Misfit] = {}
        for name, data in stored:
            payload = self.decode_or_unknown(name, msgspec.Raw(data))
            if isinstance(payload, UnknownPayload) and payload.problem is not None:
                misfit = misfits.get(name) or Misfit(name, 0, payload.problem)
                misfits[name] = msgspec.structs.replace(misfit, count=misfit.count + 1)
        return list(misfits.values())

    def decode_entry(self, envelope: Envelope) -> Entry:
        return Entry(
            type=envelope.type,
            id=envelope.id,
            seq=envelope.seq,
            ts=envelope.ts,
            session_id=envelope.session_id,
            trace_id=envelope.trace_id,
            agent_id=envelope.agent_id,
            agent_name=envelope.agent_name,
            depth=envelope.depth or 0,
            channel=envelope.channel,
            actor=envelope.actor,
            origin=envelope.origin,
            payload=self.decode_payload(envelope),
        )

    def build_event(
        self,
        payload_or_type: Payload | str,
        data: Mapping[str, Any] | None = None,
        *,
        id: str,
        origin: Origin = "app",
        scope: Scope = Scope(),  # noqa: B008
    ) -> Event:
        """Build a validated event from a payload, or from a type name and the fields of its payload.

        Raise `UnknownType`, or `InvalidEvent` with the path: for a payload that does not fit, a legacy type,
        an origin that may not emit it, a bad id or scope.
        """
        if isinstance(payload_or_type, str):
            event_type = self.get_event_type(payload_or_type)
            payload = decode_for_append(event_type, encode_payload(event_type.name, data or {}))
            # The class decides the order of the fields and which are written, not the caller's dict.
            body = encode_payload(event_type.name, payload)
        else:
            event_type = self.get_event_type(self.get_type_name(type(payload_or_type)))
            body = encode_payload(event_type.name, payload_or_type)
            payload = decode_for_append(event_type, body)

        if event_type.payload_class.LEGACY:
            raise InvalidEvent(f"{event_type.name} is a legacy type: new events may not use it", "$.type")
        if not event_type.allows_origin(payload, origin):
            raise InvalidEvent(f"{event_type.name} may not come from {origin}", "$.origin")

        if isinstance(payload, AssistantView) and payload.view.kind == NODES_KIND:
            self._check_button_events(payload, origin)
        channel = get_payload_channel(payload)
        if channel:
            scope = msgspec.structs.replace(scope, channel=channel)
        check_id_and_scope(id, scope)
        return Event(
            type=event_type.name,
            id=id,
            payload=payload,
            body=body,
            origin=origin,
            scope=scope,
            live=event_type.payload_class.LIVE,
        )

    def _check_button_events(self, view: AssistantView, origin: Origin) -> None:
        """Raise `InvalidEvent` with the path for an event that no click on the view may emit."""
        from turnlog.events.view_nodes import iter_button_events  # loads the nodes with the first view

        for path, event in iter_button_events(view.view.tree):
            place = f"$.payload.view.tree{path[1:]}"
            # A person reads the label, which a model may write: then it must not choose the event too.
            if origin == "model":
                raise InvalidEvent("a model may not show a button that emits events", place)
            kind = self.find_tag(event.type)
            if kind is None:
                raise InvalidEvent(f"expected an event of the application, got {quote(event.type)}", place)
            if unknown := find_unknown_fields(kind.payload_class, event.data):
                raise InvalidEvent(f"{kind.name} has no field {quote(unknown[0])}", place)
            try:
                self.build_event(kind.name, event.data, id="evt_button", origin="ui")
            except InvalidEvent as error:
                raise InvalidEvent(error.problem, place) from None

    def validate_definition(self, subject: str, type: str, **fields: object) -> None:
        """Raise `CallerError` if no event of this type can have these fields.

        Definitions of tools and agents call it, so that their faults are found before a turn runs.
        """
        try:
            self.build_event(type, fields, id="evt_definition", origin="system")
        except InvalidEvent as error:
            raise CallerError(f"{subject}: {error}") from None


def get_payload_channel(payload: Payload | UnknownPayload) -> str | None:
    """Return the channel that a payload names itself; None unless its class declares `NAMES_CHANNEL`."""
    if not isinstance(payload, Payload) or not payload.NAMES_CHANNEL:
        return None
    channel: str | None = getattr(payload, "channel", None)
    return channel


def check_declarations(name: str, payload_class: type[Payload]) -> None:
    """Raise `InvalidEvent` for unknown origins, and for an example that does not fit the class."""
    origins = payload_class.ORIGINS
    if callable(origins):
        declared = origins(build_example(name, payload_class))
    else:
        declared = origins
        if payload_class.EXAMPLE:
            build_example(name, payload_class)

    unknown = sorted(set(declared) - ANY_ORIGIN)
    if unknown:
        known = ", ".join(sorted(ANY_ORIGIN))
        raise InvalidEvent(f"ORIGINS of {name}: expected some of {known}, got {quote(unknown[0])}", name)


def build_example(name: str, payload_class: type[Payload]) -> Payload:
    unknown = find_unknown_fields(payload_class, payload_class.EXAMPLE)
    if unknown:
        raise InvalidEvent(f"EXAMPLE of {name}: the class has no field {quote(unknown[0])}", name)
    try:
        return msgspec.convert(payload_class.EXAMPLE, payload_class)
    except msgspec.ValidationError as error:
        sentence, path = split_validation_error(error)
        raise InvalidEvent(f"EXAMPLE of {name} does not fit its class: {sentence}", path) from None


def find_unknown_fields(payload_class: type[Payload], data: Mapping[str, Any]) -> list[str]:
    """Return the keys of an object that are no fields of the class. Decoding drops them silently."""
    return [key for key in data if key not in payload_class.__struct_encode_fields__]


def encode_payload(name: str, payload: Payload | Mapping[str, Any]) -> bytes:
    """Encode a payload as one line of JSON. Raise `InvalidEvent` for what JSON cannot express."""
    try:
        body = msgspec.json.encode(payload)
        # A shorter body has too few brackets to be that deep.
        if len(body) > 2 * MAX_PAYLOAD_DEPTH and exceeds_depth(body, MAX_PAYLOAD_DEPTH):
            raise ValueError(f"expected at most {MAX_PAYLOAD_DEPTH} levels")
        # msgspec writes NaN as null; the encoder of the standard library refuses it.
        if b"null" in body:
            check_finite(payload)
        return body
    except (UnicodeEncodeError, TypeError, ValueError, RecursionError) as error:
        raise InvalidEvent(f"{name} cannot be written as JSON: {error}", "$.payload") from None


def check_finite(payload: Payload | Mapping[str, Any]) -> None:
    import json  # only for payloads with a null

    json.dumps(msgspec.to_builtins(payload), allow_nan=False)


def decode_for_append(event_type: EventType, body: bytes) -> Payload:
    """Decode a payload that may be appended. Raise `InvalidEvent` with the path inside the event."""
    try:
        payload = event_type.decode_payload(body)
    except InvalidEvent as error:
        raise InvalidEvent(f"{event_type.name}: {error.problem}", "$.payload" + error.path[1:]) from None

    check = APPEND_CHECKS.get(event_type.payload_class)
    problem = check(payload) if check else None
    if problem:
        raise InvalidEvent(f"{event_type.name}: {problem}", "$.payload")
    return payload


# Rules over several fields. They hold for new events only: stored events are decoded without them.
APPEND_CHECKS: Mapping[type[Payload], Callable[[Any], str | None]] = {ToolResult: find_contradiction}


def check_id_and_scope(event_id: object, scope: Scope) -> None:
    if not isinstance(event_id, str) or not _is_event_id(event_id):
        form = "`evt_` and 1 to 64 of A-Z a-z 0-9 _ -"
        raise InvalidEvent(f"expected {form}, got {quote(event_id)}", "$.id")
    check_scope(scope)


@lru_cache(256)  # the events of one invocation share one scope
def check_scope(scope: Scope) -> None:
    """Raise `InvalidEvent` for a scope that could not be decoded again."""
    try:
        msgspec.convert(msgspec.structs.asdict(scope), Scope)
    except msgspec.ValidationError as error:
        raise InvalidEvent(*split_validation_error(error)) from None
    check_names(Scope, scope)


def check_type_name(name: str) -> None:
    """Raise `InvalidEvent` for a vocabulary or type name that does not fit into a tag or a URL."""
    if not _TYPE_NAME.fullmatch(name):
        raise InvalidEvent(f"expected a name like `broker` or `tool.call`, got {quote(name)}", "name")
