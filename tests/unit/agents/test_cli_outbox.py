"""What goes down to a process: the words of messages, actions, events of pages and commands, by turn."""

from typing import Any, ClassVar

import pytest

from turnlog.agents.claude.prompts import MAX_APP_EVENTS, PromptQueue
from turnlog.events import (
    CORE,
    AgentStart,
    Catalog,
    Origin,
    Payload,
    Scope,
    UiAction,
    UiCommand,
    UiMessage,
    Vocabulary,
    decode_envelope,
    encode_envelope,
)
from turnlog.events.payload import ANY_ORIGIN
from turnlog.events.ui import InputSubmit, JobHelp, OfferWork, Stop, Summon, Wake, WakeAgent
from turnlog.state.tree import Tree
from turnlog.team.events import TEAM, RosterJoin


class NoteFact(Payload, frozen=True, kw_only=True):
    """Something is known now."""

    ORIGINS: ClassVar = ANY_ORIGIN

    text: str = ""


CATALOG = Catalog(CORE, TEAM, Vocabulary("case", [NoteFact]))


class Desk:
    """A log that is written while it is read."""

    def __init__(self) -> None:
        self.tree = Tree()
        self.outbox = PromptQueue(self.tree)

    def add(self, payload: Payload, trace: str | None = "tr_1", origin: Origin = "ui", **place: Any) -> None:
        seq = self.tree.last_seq + 1
        scope = Scope(trace_id=trace, **place)
        event = CATALOG.build_event(payload, id=f"evt_{seq}", origin=origin, scope=scope)
        envelope = decode_envelope(encode_envelope(event, session_id="sess_1", seq=seq, ts_ms=0))
        self.tree.apply(envelope, CATALOG.decode_payload(envelope))
        self.outbox.apply(envelope, CATALOG.decode_payload(envelope))

    def start(self, trace: str = "tr_1", depth: int = 0) -> None:
        self.add(
            AgentStart(name="Julian", via="prompt"), trace, "system", agent_id=f"agt_{trace}", depth=depth
        )

    @property
    def texts(self) -> dict[str, str]:
        return {trace: self.outbox.render(letter) for trace, letter in self.outbox.pending.items()}


WAKE = WakeAgent(name='Ly"ra', color="#fff", color_name="white", seat=2, has_soul=True, has_transcript=False)
SOUL = WakeAgent(name="Orin", color="", color_name="", seat=3, has_soul=False, has_transcript=False)


@pytest.mark.parametrize(
    ("payload", "text"),
    [
        (UiMessage(text="hello"), "hello"),
        (UiMessage(text="hello", target="Lyra"), "[ROUTE TO AGENT: Lyra] hello"),
        (UiMessage(text="[ROUTE TO AGENT: Lyra] hello"), "[ROUTE TO AGENT: Lyra] hello"),
        (NoteFact(text="x"), '[The user acted: {"type":"note_fact","data":{"text":"x"}}]'),
        (
            UiAction(action=InputSubmit(values={"a": 1})),
            '[The user acted: {"action":{"kind":"input.submit","values":{"a":1}},"view_id":null}]',
        ),
        (UiCommand(command=Summon()), "[SUMMON AGENTS]"),
        (
            UiCommand(command=OfferWork(agent="Lyra", jobs=("a", "b"))),
            "[OFFER WORK TO AGENT: Lyra]\n- a\n- b",
        ),
        (UiCommand(command=JobHelp(form={"name": "x"})), '[JOB HELP] {"name":"x"}'),
        (
            UiCommand(command=Wake(agents=(WAKE, SOUL))),
            "[WAKE AGENTS]\n<agent-payloads>"
            '<agent name=\'Ly"ra\' color="#fff" colorName="white" position="2" type="wake"></agent>'
            '<agent name="Orin" color="" colorName="" position="3" type="birth"></agent></agent-payloads>',
        ),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_opens_a_turn_is_told_in_words(payload: Payload, text: str) -> None:
    desk = Desk()
    desk.add(payload)
    assert desk.texts == {"tr_1": text}
    desk.start()
    assert desk.texts == {}


def test_who_is_spoken_to_is_known() -> None:
    desk = Desk()
    desk.add(UiMessage(text="hi", target="Lyra"), "tr_1")
    desk.add(UiMessage(text="[ROUTE TO AGENT: Orin] hi"), "tr_2")
    desk.add(UiMessage(text="hi", channel="customer"), "tr_3")
    letters = desk.outbox.pending.values()
    assert [letter.speaker for letter in letters] == ["Lyra", "Orin", None]
    assert [letter.scope.channel for letter in letters] == [None, None, "customer"]


def test_the_order_is_that_of_the_log_and_a_turn_is_one_letter() -> None:
    desk = Desk()
    desk.add(NoteFact(text="x"), "tr_1")
    desk.add(UiMessage(text="second"), "tr_2")
    desk.add(UiMessage(text="first"), "tr_1")
    assert [letter.texts[-1] for letter in desk.outbox.pending.values()] == ["first", "second"]
    assert desk.texts["tr_1"].endswith("\nfirst")


def test_what_says_nothing_opens_nothing() -> None:
    desk = Desk()
    desk.add(UiCommand(command=Stop()))
    desk.add(UiCommand(command=Summon()), None)
    desk.add(UiAction(action=InputSubmit(values={}), call_id="call_1"))
    desk.add(NoteFact(), origin="model")
    assert desk.outbox.pending == {}


def test_what_is_said_while_an_agent_of_the_turn_is_there_is_not_pending() -> None:
    desk = Desk()
    desk.add(UiMessage(text="one"))
    desk.start()
    desk.add(UiMessage(text="two"))
    assert desk.outbox.pending == {}


def test_what_followed_is_told_with_the_next_turn_and_once() -> None:
    desk = Desk()
    for number in range(MAX_APP_EVENTS + 1):
        desk.add(NoteFact(text=str(number)), "tr_0", "app")
    desk.start("tr_0", depth=1)  # somebody below is not told
    desk.add(UiMessage(text="hello"))
    lines = desk.texts["tr_1"].split("\n")
    assert len(lines) == MAX_APP_EVENTS + 1
    assert lines[0] == '[It followed: {"type":"note_fact","data":{"text":"1"}}]'
    desk.start()
    desk.add(UiMessage(text="again"), "tr_2")
    assert desk.texts == {"tr_2": "again"}


def test_who_is_woken_is_told_its_soul_if_it_is_still_that_one() -> None:
    desk = Desk()
    for name, seat in (('Ly"ra', 2), ("Somebody", 3)):
        desk.add(RosterJoin(name=name, seat=seat, soul="I <listen>."), "tr_0", "model")
    desk.add(UiCommand(command=Wake(agents=(WAKE, SOUL))))
    assert desk.texts["tr_1"].count("<soul>") == 1
    assert 'type="wake"><soul>I &lt;listen&gt;.</soul></agent>' in desk.texts["tr_1"]


def test_of_two_agents_with_one_name_the_seat_says_who_is_meant() -> None:
    desk = Desk()
    for seat, name in enumerate(["Lyra", "Orin", "Lyra"]):
        desk.add(RosterJoin(name=name, seat=seat), None, "model")
    desk.add(UiMessage(text="Hi", target="Orin", target_seat=1), "tr_1")
    desk.add(UiMessage(text="Hi", target="Lyra", target_seat=2), "tr_2")
    desk.add(UiMessage(text="Hi", target="Lyra"), "tr_3")
    assert list(desk.texts.values()) == [
        "[ROUTE TO AGENT: Orin] Hi",
        "[ROUTE TO AGENT: Lyra (gridPosition 2)] Hi",
        "[ROUTE TO AGENT: Lyra] Hi",
    ]
    assert desk.outbox.pending["tr_2"].speaker == "Lyra"
