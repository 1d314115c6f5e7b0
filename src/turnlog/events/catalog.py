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

from turnlog.errors import InvalidEvent, UnknownType, quote
from turnlog.events.envelope import Entry, Envelope, Event, Scope, Unknown
from turnlog.events.names import check_names
from turnlog.events.payload import ANYONE, EventId, Origin, Origins, Payload
from turnlog.events.strict_json import LIMIT_DEPTH, nests, problem, short
from turnlog.events.tool import ToolResult, contradiction

LEVELS = 2 * LIMIT_DEPTH  # what came through the gate and what stands around it; any stack can read it back
_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)?")
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


class Kind(msgspec.Struct, frozen=True):
    """One declared type of event."""

    name: str
    payload: type[Payload]
    decoder: msgspec.json.Decoder[Payload]

    @property
    def tag(self) -> str:
        """The bare name inside its vocabulary."""
        return self.name.rpartition(".")[2]

    def read(self, body: bytes | msgspec.Raw) -> Payload:
        """Return the payload that JSON holds; raise `InvalidEvent` with the path if it does not fit."""
        try:
            payload = self.decoder.decode(body)
        except msgspec.ValidationError as error:
            raise InvalidEvent(*problem(error)) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise InvalidEvent(f"expected JSON: {short(str(error))}", "$") from None
        check_names(self.payload, payload)
        return payload

    def admits(self, payload: Payload, origin: str) -> bool:
        """Whether this origin may emit this payload."""
        origins: Origins = self.payload.ORIGINS
        return origin in (origins(payload) if callable(origins) else origins)


class Misfit(msgspec.Struct, frozen=True):
    """A declared type of which stored events do not decode. `problem` is that of the first of them."""

    type: str
    count: int
    problem: str


class Vocabulary:
    """The declared types of one application (or of the package itself)."""

    def __init__(self, name: str, payloads: Iterable[type[Payload]]) -> None:
        check_name(name)
        self.name = name
        self.kinds: dict[str, Kind] = {}
        for payload in payloads:
            self._declare(payload)

    def _declare(self, payload: object) -> None:
        if not (isinstance(payload, type) and issubclass(payload, Payload)):
            raise InvalidEvent(f"expected a subclass of Payload, got {quote(payload)}", self.name)
        name = payload.TYPE or f"{self.name}.{_HUMP.sub('_', payload.__name__).lower()}"
        check_name(name)
        if name in self.kinds:
            raise InvalidEvent(f"expected each type once, got {name} twice", self.name)
        check_declarations(name, payload)
        self.kinds[name] = Kind(name, payload, msgspec.json.Decoder(payload))

    def __iter__(self) -> Iterator[Kind]:
        return iter(self.kinds.values())

    def tag(self, tag: str) -> Kind | None:
        """The kind of a bare tag name, in this vocabulary only."""
        return self.kinds.get(f"{self.name}.{tag}")


class Catalog:
    """Every type a session may meet: name to class, class to name."""

    def __init__(self, *vocabularies: Vocabulary) -> None:
        self.kinds: dict[str, Kind] = {}
        for vocabulary in vocabularies:
            for kind in vocabulary:
                if self.kinds.setdefault(kind.name, kind) is not kind:
                    raise InvalidEvent(f"expected each type once, got {kind.name} twice", vocabulary.name)
        self._names: dict[type[Payload], str] = {}
        for kind in self:
            if (known := self._names.setdefault(kind.payload, kind.name)) != kind.name:
                raise InvalidEvent(f"expected each class once, got {known} and {kind.name} of one", kind.name)

    def __iter__(self) -> Iterator[Kind]:
        return iter(self.kinds.values())

    def kind(self, name: str) -> Kind:
        """The kind of a full name."""
        try:
            return self.kinds[name]
        except KeyError:
            raise UnknownType(f"expected a declared type, got {quote(name)}") from None

    def name(self, payload: type[Payload]) -> str:
        """The full name of a class."""
        try:
            return self._names[payload]
        except KeyError:
            raise UnknownType(f"expected a declared class, got {payload.__name__}") from None

    def payload(self, envelope: Envelope) -> Payload | Unknown:
        """The typed payload of an envelope. What this version cannot read is kept as `Unknown`."""
        return self.read(envelope.type, envelope.payload)

    def read(self, name: str, data: msgspec.Raw) -> Payload | Unknown:
        """Return a stored payload as its class, or as `Unknown` with the problem if it does not fit."""
        kind = self.kinds.get(name)
        if kind is None:
            return Unknown(data)
        try:
            return kind.read(data)
        except InvalidEvent as wrong:
            return Unknown(data, str(wrong))

    def misfits(self, stored: Iterable[tuple[str, bytes]]) -> list["Misfit"]:
        """Return the declared types of which stored (type, payload) pairs no longer decode, with how many."""
        found: dict[str, Misfit] = {}
        for name, data in stored:
            payload = self.read(name, msgspec.Raw(data))
            if isinstance(payload, Unknown) and payload.problem is not None:
                first = found.get(name) or Misfit(name, 0, payload.problem)
                found[name] = msgspec.structs.replace(first, count=first.count + 1)
        return list(found.values())

    def entry(self, envelope: Envelope) -> Entry:
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
            payload=self.payload(envelope),
        )

    def event(
        self,
        what: Payload | str,
        data: Mapping[str, Any] | None = None,
        *,
        id: str,
        origin: Origin = "app",
        scope: Scope = Scope(),  # noqa: B008
    ) -> Event:
        """Build a validated event, from a payload or by name; legacy types and wrong origins are refused."""
        kind = self.kind(what if isinstance(what, str) else self.name(type(what)))
        body = encode_payload(kind.name, (data or {}) if isinstance(what, str) else what)
        payload = read_payload(kind, body)
        if isinstance(what, str):  # by name: the class decides order and form, not the caller's dict
            body = encode_payload(kind.name, payload)
        if kind.payload.LEGACY:
            raise InvalidEvent(
                f"{kind.name} is a legacy type: it is read, but not written any more", "$.type"
            )
        if not kind.admits(payload, origin):
            raise InvalidEvent(f"{kind.name} may not come from {origin}", "$.origin")
        if channel := named_channel(payload):
            scope = msgspec.structs.replace(scope, channel=channel)
        check_place(id, scope)
        return Event(
            type=kind.name,
            id=id,
            payload=payload,
            body=body,
            origin=origin,
            scope=scope,
            live=kind.payload.LIVE,
        )


def named_channel(payload: Payload | Unknown) -> str | None:
    """Return the channel that a payload itself names; None for all classes but those that declare it."""
    if not isinstance(payload, Payload) or not payload.NAMES_CHANNEL:
        return None
    channel: str | None = getattr(payload, "channel", None)
    return channel


def check_declarations(name: str, payload: type[Payload]) -> None:
    """Refuse origins that do not exist, and an example that the class would not take."""
    origins = payload.ORIGINS
    if payload.EXAMPLE and not callable(origins):
        example_of(name, payload)
    declared = origins(example_of(name, payload)) if callable(origins) else origins
    if wrong := sorted(set(declared) - ANYONE):
        known = ", ".join(sorted(ANYONE))
        raise InvalidEvent(f"ORIGINS of {name}: expected some of {known}, got {quote(wrong[0])}", name)


def example_of(name: str, payload: type[Payload]) -> Payload:
    """The example of a class as its payload."""
    if unknown := unknown_fields(payload, payload.EXAMPLE):
        raise InvalidEvent(f"EXAMPLE of {name}: the class has no field {quote(unknown[0])}", name)
    try:
        return msgspec.convert(payload.EXAMPLE, payload)
    except msgspec.ValidationError as error:
        sentence, path = problem(error)
        raise InvalidEvent(f"EXAMPLE of {name} does not fit its class: {sentence}", path) from None


def unknown_fields(payload: type[Payload], data: Mapping[str, Any]) -> list[str]:
    """The keys of an object that are no fields of a class; decoding drops them without a word."""
    return [key for key in data if key not in payload.__struct_encode_fields__]


def encode_payload(name: str, payload: Payload | Mapping[str, Any]) -> bytes:
    """The payload as one line of JSON; what JSON cannot say is refused."""
    try:
        body = msgspec.json.encode(payload)
        if len(body) > 2 * LEVELS and nests(body, LEVELS):  # a shorter one has not so many brackets
            raise ValueError(f"expected at most {LEVELS} levels")
        if b"null" in body:  # msgspec writes NaN as null; the plain encoder refuses it
            check_finite(payload)
        return body
    except (UnicodeEncodeError, TypeError, ValueError, RecursionError) as error:
        raise InvalidEvent(f"{name} cannot be written as JSON: {error}", "$.payload") from None


def check_finite(payload: Payload | Mapping[str, Any]) -> None:
    """Refuse NaN and infinity."""
    import json  # only payloads with a null pay for it

    json.dumps(msgspec.to_builtins(payload), allow_nan=False)


def read_payload(kind: Kind, body: bytes) -> Payload:
    """Return a payload that may be appended; raise `InvalidEvent` with the path inside the event."""
    try:
        payload = kind.read(body)
    except InvalidEvent as wrong:
        raise InvalidEvent(f"{kind.name}: {wrong.problem}", "$.payload" + wrong.path[1:]) from None
    check = APPEND_CHECKS.get(kind.payload)
    if check and (found := check(payload)):
        raise InvalidEvent(f"{kind.name}: {found}", "$.payload")
    return payload


# What no field can say alone. It holds for new events only: what a log has already is read as it is.
APPEND_CHECKS: Mapping[type[Payload], Callable[[Any], str | None]] = {ToolResult: contradiction}


def check_place(event_id: str, scope: Scope) -> None:
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
        raise InvalidEvent(*problem(error)) from None
    check_names(Scope, scope)


def check_name(name: str) -> None:
    """Refuse a vocabulary or type name that no tag and no URL could carry."""
    if not _NAME.fullmatch(name):
        raise InvalidEvent(f"expected a name like `broker` or `tool.call`, got {quote(name)}", "name")
