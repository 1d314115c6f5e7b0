"""Vocabularies and the catalog: the one place where a name becomes a class, and a class a name.

A `Vocabulary` is a list of payload classes. The package's own classes carry their full names; an
application's names are its vocabulary's name and the class name in snake case, so that
`Vocabulary("broker", [RecordEligibility])` declares `broker.record_eligibility`, whose bare tag name is
`record_eligibility`. A `Catalog` joins vocabularies, builds events and reads payloads. It knows nothing else:
behaviour lives in tables of other rooms, keyed by class.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any

import msgspec

from turnlog.errors import CallerError, InvalidEvent, UnknownType, quote
from turnlog.events.assistant import AssistantView
from turnlog.events.envelope import Entry, Envelope, Event, Scope, UnknownPayload
from turnlog.events.names import check_names
from turnlog.events.payload import ANY_ORIGIN, EventId, Origin, Origins, Payload
from turnlog.events.strict_json import MAX_JSON_DEPTH, exceeds_depth, one_line, split_validation_error
from turnlog.events.tool import ToolResult, find_contradiction

MAX_PAYLOAD_DEPTH = (
    2 * MAX_JSON_DEPTH
)  # what came through the gate and what stands around it; any stack can read it back
_TYPE_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)?")
_CAMEL_BOUNDARY = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def tag_name(payload: type[Payload]) -> str:
    """Return the bare name of an application's event: `NoteTrip` is `note_trip`."""
    return _CAMEL_BOUNDARY.sub("_", payload.__name__).lower()


class EventType(msgspec.Struct, frozen=True):
    """One declared type of event."""

    name: str
    payload_class: type[Payload]
    decoder: msgspec.json.Decoder[Payload]

    @property
    def tag(self) -> str:
        """The bare name inside its vocabulary."""
        return self.name.rpartition(".")[2]

    def decode_payload(self, body: bytes | msgspec.Raw) -> Payload:
        """Return the payload that JSON holds; raise `InvalidEvent` with the path if it does not fit."""
        try:
            payload = self.decoder.decode(body)
        except msgspec.ValidationError as error:
            raise InvalidEvent(*split_validation_error(error)) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidEvent(f"expected JSON: {one_line(str(error))}", "$") from None
        check_names(self.payload_class, payload)
        return payload

    def allows_origin(self, payload: Payload, origin: str) -> bool:
        """Whether this origin may emit this payload."""
        origins: Origins = self.payload_class.ORIGINS
        return origin in (origins(payload) if callable(origins) else origins)


class Misfit(msgspec.Struct, frozen=True):
    """A declared type of which stored events do not decode. `problem` is that of the first of them."""

    type: str
    count: int
    problem: str


class Vocabulary:
    """The declared types of one application (or of the package itself)."""

    def __init__(self, name: str, payloads: Iterable[type[Payload]]) -> None:
        check_type_name(name)
        self.name = name
        self.types: dict[str, EventType] = {}
        for payload in payloads:
            self._declare(payload)

    def _declare(self, payload: object) -> None:
        if not (isinstance(payload, type) and issubclass(payload, Payload)):
            raise InvalidEvent(f"expected a subclass of Payload, got {quote(payload)}", self.name)
        name = payload.TYPE or f"{self.name}.{tag_name(payload)}"
        check_type_name(name)
        if name in self.types:
            raise InvalidEvent(f"expected each type once, got {name} twice", self.name)
        check_declarations(name, payload)
        self.types[name] = EventType(name, payload, msgspec.json.Decoder(payload))

    def __iter__(self) -> Iterator[EventType]:
        return iter(self.types.values())

    def find_tag(self, tag: str) -> EventType | None:
        """The kind of a bare tag name, in this vocabulary only."""
        return self.types.get(f"{self.name}.{tag}")


class Catalog:
    """Every type a session may meet: name to class, class to name."""

    def __init__(self, *vocabularies: Vocabulary) -> None:
        self.types: dict[str, EventType] = {}
        for vocabulary in vocabularies:
            for kind in vocabulary:
                if self.types.setdefault(kind.name, kind) is not kind:
                    raise InvalidEvent(f"expected each type once, got {kind.name} twice", vocabulary.name)
        self._type_names: dict[type[Payload], str] = {}
        for kind in self:
            if (known := self._type_names.setdefault(kind.payload_class, kind.name)) != kind.name:
                raise InvalidEvent(f"expected each class once, got {known} and {kind.name} of one", kind.name)

    def __iter__(self) -> Iterator[EventType]:
        return iter(self.types.values())

    def get_event_type(self, name: str) -> EventType:
        """The kind of a full name."""
        try:
            return self.types[name]
        except KeyError:
            raise UnknownType(f"expected a declared type, got {quote(name)}") from None

    def find_tag(self, tag: str) -> EventType | None:
        """The application's event of a bare name; the package's own classes carry full names."""
        return next((kind for kind in self if kind.tag == tag and not kind.payload_class.TYPE), None)

    def get_type_name(self, payload: type[Payload]) -> str:
        """The full name of a class."""
        try:
            return self._type_names[payload]
        except KeyError:
            raise UnknownType(f"expected a declared class, got {payload.__name__}") from None

    def decode_payload(self, envelope: Envelope) -> Payload | UnknownPayload:
        """The typed payload of an envelope. What this version cannot read is kept as `Unknown`."""
        return self.decode_or_unknown(envelope.type, envelope.payload)

    def decode_or_unknown(self, name: str, data: msgspec.Raw) -> Payload | UnknownPayload:
        """Return a stored payload as its class, or as `Unknown` with the problem if it does not fit."""
        kind = self.types.get(name)
        if kind is None:
            return UnknownPayload(data)
        try:
            return kind.decode_payload(data)
        except InvalidEvent as wrong:
            return UnknownPayload(data, str(wrong))

    def find_misfits(self, stored: Iterable[tuple[str, bytes]]) -> list["Misfit"]:
        """Return the declared types of which stored (type, payload) pairs no longer decode, with how many."""
        found: dict[str, Misfit] = {}
        for name, data in stored:
            payload = self.decode_or_unknown(name, msgspec.Raw(data))
            if isinstance(payload, UnknownPayload) and payload.problem is not None:
                first = found.get(name) or Misfit(name, 0, payload.problem)
                found[name] = msgspec.structs.replace(first, count=first.count + 1)
        return list(found.values())

    def decode_entry(self, envelope: Envelope) -> Entry:
        """An envelope, read."""
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
        """Build a validated event, from a payload or by name; legacy types and wrong origins are refused."""
        kind = self.get_event_type(
            payload_or_type if isinstance(payload_or_type, str) else self.get_type_name(type(payload_or_type))
        )
        body = encode_payload(
            kind.name, (data or {}) if isinstance(payload_or_type, str) else payload_or_type
        )
        payload = decode_for_append(kind, body)
        if isinstance(
            payload_or_type, str
        ):  # by name: the class decides order and form, not the caller's dict
            body = encode_payload(kind.name, payload)
        if kind.payload_class.LEGACY:
            raise InvalidEvent(
                f"{kind.name} is a legacy type: it is read, but not written any more", "$.type"
            )
        if not kind.allows_origin(payload, origin):
            raise InvalidEvent(f"{kind.name} may not come from {origin}", "$.origin")
        if isinstance(payload, AssistantView):
            self._check_button_events(payload, origin)
        if channel := get_payload_channel(payload):
            scope = msgspec.structs.replace(scope, channel=channel)
        check_id_and_scope(id, scope)
        return Event(
            type=kind.name,
            id=id,
            payload=payload,
            body=body,
            origin=origin,
            scope=scope,
            live=kind.payload_class.LIVE,
        )

    def _check_button_events(self, view: AssistantView, origin: Origin) -> None:
        """Raise `InvalidEvent` with the path for an event that no click on the view may emit."""
        from turnlog.events.view_nodes import ButtonEvent, iter_parts, parse_view_tree  # with the first view

        root = parse_view_tree(view.view.tree)
        for path, _, event in iter_parts(root) if root is not None else ():
            if not isinstance(event, ButtonEvent):
                continue
            place = f"$.payload.view.tree{path[1:]}"
            # a person reads the label, which a model may write: then it must not choose the event too
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
    """Return the channel that a payload itself names; None for all classes but those that declare it."""
    if not isinstance(payload, Payload) or not payload.NAMES_CHANNEL:
        return None
    channel: str | None = getattr(payload, "channel", None)
    return channel


def check_declarations(name: str, payload: type[Payload]) -> None:
    """Refuse origins that do not exist, and an example that the class would not take."""
    origins = payload.ORIGINS
    if payload.EXAMPLE and not callable(origins):
        build_example(name, payload)
    declared = origins(build_example(name, payload)) if callable(origins) else origins
    if wrong := sorted(set(declared) - ANY_ORIGIN):
        known = ", ".join(sorted(ANY_ORIGIN))
        raise InvalidEvent(f"ORIGINS of {name}: expected some of {known}, got {quote(wrong[0])}", name)


def build_example(name: str, payload: type[Payload]) -> Payload:
    """The example of a class as its payload."""
    if unknown := find_unknown_fields(payload, payload.EXAMPLE):
        raise InvalidEvent(f"EXAMPLE of {name}: the class has no field {quote(unknown[0])}", name)
    try:
        return msgspec.convert(payload.EXAMPLE, payload)
    except msgspec.ValidationError as error:
        sentence, path = split_validation_error(error)
        raise InvalidEvent(f"EXAMPLE of {name} does not fit its class: {sentence}", path) from None


def find_unknown_fields(payload: type[Payload], data: Mapping[str, Any]) -> list[str]:
    """The keys of an object that are no fields of a class; decoding drops them without a word."""
    return [key for key in data if key not in payload.__struct_encode_fields__]


def encode_payload(name: str, payload: Payload | Mapping[str, Any]) -> bytes:
    """The payload as one line of JSON; what JSON cannot say is refused."""
    try:
        body = msgspec.json.encode(payload)
        if len(body) > 2 * MAX_PAYLOAD_DEPTH and exceeds_depth(
            body, MAX_PAYLOAD_DEPTH
        ):  # a shorter one has not so many brackets
            raise ValueError(f"expected at most {MAX_PAYLOAD_DEPTH} levels")
        if b"null" in body:  # msgspec writes NaN as null; the plain encoder refuses it
            check_finite(payload)
        return body
    except (UnicodeEncodeError, TypeError, ValueError, RecursionError) as error:
        raise InvalidEvent(f"{name} cannot be written as JSON: {error}", "$.payload") from None


def check_finite(payload: Payload | Mapping[str, Any]) -> None:
    """Refuse NaN and infinity."""
    import json  # only payloads with a null pay for it

    json.dumps(msgspec.to_builtins(payload), allow_nan=False)


def decode_for_append(event_type: EventType, body: bytes) -> Payload:
    """Return a payload that may be appended; raise `InvalidEvent` with the path inside the event."""
    try:
        payload = event_type.decode_payload(body)
    except InvalidEvent as wrong:
        raise InvalidEvent(f"{event_type.name}: {wrong.problem}", "$.payload" + wrong.path[1:]) from None
    check = APPEND_CHECKS.get(event_type.payload_class)
    if check and (found := check(payload)):
        raise InvalidEvent(f"{event_type.name}: {found}", "$.payload")
    return payload


# What no field can say alone. It holds for new events only: what a log has already is read as it is.
APPEND_CHECKS: Mapping[type[Payload], Callable[[Any], str | None]] = {ToolResult: find_contradiction}


def check_id_and_scope(event_id: str, scope: Scope) -> None:
    """Refuse what is not an event id, and a wrong scope."""
    try:
        msgspec.convert(event_id, EventId)
    except msgspec.ValidationError:
        wanted = "`evt_` and 1 to 64 of A-Z a-z 0-9 _ -"
        raise InvalidEvent(f"expected {wanted}, got {quote(event_id)}", "$.id") from None
    check_scope(scope)


@lru_cache(256)  # the events of one invocation share one scope
def check_scope(scope: Scope) -> None:
    """Refuse a scope that could not be read back."""
    try:
        msgspec.convert(msgspec.structs.asdict(scope), Scope)
    except msgspec.ValidationError as error:
        raise InvalidEvent(*split_validation_error(error)) from None
    check_names(Scope, scope)


def check_type_name(name: str) -> None:
    """Refuse a vocabulary or type name that no tag and no URL could carry."""
    if not _TYPE_NAME.fullmatch(name):
        raise InvalidEvent(f"expected a name like `broker` or `tool.call`, got {quote(name)}", "name")
