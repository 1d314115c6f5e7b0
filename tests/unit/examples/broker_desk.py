"""A broker's session without a server: events in, as the log would have them, rules after each batch."""

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from turnlog import Catalog
from turnlog.events import CORE, Envelope, Event, Origin, Payload, Scope, decode_envelope, encode_envelope
from turnlog.state.fold import Item, fold
from turnlog.state.rules import EmittedEvent, Phase, settle
from turnlog_examples.broker.case import REDUCERS, Case, new_case
from turnlog_examples.broker.events import BROKER
from turnlog_examples.broker.rules import RULES

CATALOG = Catalog(CORE, BROKER)
START_MS = 1_767_875_696_789
STEP_MS = 1_000


def entered(payload: Payload, seq: int, origin: Origin = "app", scope: Scope = Scope()) -> Envelope:  # noqa: B008
    """The envelope of a payload at its place in the log; a second passes from each to the next."""
    body, name = msgspec.json.encode(payload), CATALOG.get_type_name(type(payload))
    event = Event(type=name, id=f"evt_{seq}", payload=payload, body=body, origin=origin, scope=scope)
    return decode_envelope(
        encode_envelope(event, session_id="sess_1", seq=seq, ts_ms=START_MS + STEP_MS * seq)
    )


def after(case: Case, *payloads: Payload, seq: int = 0) -> Case:
    """A case after these events, without rules."""
    items = [(entered(payload, seq + number), payload) for number, payload in enumerate(payloads)]
    folded: Case = fold(REDUCERS, items, case)
    return folded


@dataclass
class Desk:
    """One session: its log, and the case that is made of it."""

    items: list[Item] = field(default_factory=list)
    case: Case = field(default_factory=new_case)
    fired: list[str] = field(default_factory=list)

    def take(
        self, *payloads: Payload, origin: Origin = "ui", phase: Phase = "apply", channel: str | None = None
    ) -> list[Payload]:
        """Append a batch and let the rules speak; what they said comes back."""
        scope = Scope(trace_id=f"tr_{len(self.items)}", channel=channel)
        for payload in payloads:
            CATALOG.build_event(payload, id="evt_1", origin=origin)  # who may not say it is refused here
            self._add(entered(payload, len(self.items), origin, scope), payload)
        self.case = fold(REDUCERS, self.items[len(self.items) - len(payloads) :], self.case)
        return self._settle(phase)

    def _add(self, envelope: Envelope, payload: Payload) -> Envelope:
        self.items.append((envelope, payload))
        return envelope

    def _settle(self, phase: Phase) -> list[Payload]:
        def enter(event: EmittedEvent) -> Envelope:
            return self._add(entered(event.payload, len(self.items)), event.payload)

        settled = settle(RULES, REDUCERS, self.case, phase, enter)
        self.case = settled.state
        self.fired += dict.fromkeys(event.rule for event in settled.emitted)
        return [event.payload for event in settled.emitted]

    def kinds(self, kind: type[Payload]) -> Sequence[Payload]:
        """The events of a class."""
        return [payload for _, payload in self.items if isinstance(payload, kind)]
