"""The answers of the broker without a paid model: two guides, one for the installer, one for the customer.

Both follow from their conversation alone. A gate is open when its question was asked last; an answer that was
understood closes it, or an event of the page or the application, which the conversation tells in brackets.
The guides say in tags which events happened, and ask the next question. What binds the customer they never
say: they point at the buttons.
"""

import json
import re
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from turnlog.agents import ScriptPart
from turnlog.state import Message
from turnlog_examples.broker import answers
from turnlog_examples.broker.answers import Meant, Tag
from turnlog_examples.broker.disclosures import DISCLOSURES
from turnlog_examples.broker.events import BROKER, DisclosureId

LEAVES = re.compile(r"\b(withdraw|changed my mind|call it off)\b", re.I)
TOLD = re.compile(r"^\[[^\[\]{}]*(\{.*\})\]$", re.M)


class Gate(NamedTuple):
    """A step of the journey: what is asked, what words mean, which events answer as well."""

    question: str
    hear: Callable[[str], Meant]
    closed_by: tuple[Tag, ...]
    shows: DisclosureId | None = None


class Guide(NamedTuple):
    """A guide through gates: the first words, the last, and those when the case is over."""

    greeting: str
    goodbye: str
    over: str
    gates: tuple[Gate, ...]


class Turn(NamedTuple):
    """What a person wrote, after what was said to them, and which events the turn tells."""

    before: str
    words: str
    acts: list[Tag]


class Standing(NamedTuple):
    """Where a journey is: the questions that are closed, what the last words mean, whether it has ended."""

    closed: frozenset[str]
    fresh: Meant
    ended: bool


INSTALLER = Guide(
    "Hello. I take down the project, then your customer goes on alone.",
    "That is all. Your customer gets a link and goes on alone.",
    "This case is over. Goodbye.",
    (
        Gate(
            "What does the project cost, what deposit is paid, and what is installed?",
            answers.project,
            (Tag("record_project_facts", {}),),
        ),
        Gate(
            "Who is the customer, and at which number or address?",
            answers.contact,
            (Tag("installer_handoff_complete", {}),),
        ),
    ),
)
CUSTOMER = Guide(
    "Hello. I guide you through your application, one question at a time.",
    "Your case rests here. Goodbye.",
    "Your case rests here. Goodbye.",
    (
        Gate(
            "Do you understand how we work?",
            answers.understood,
            (Tag("acknowledge_disclosure", {"id": "service_status"}),),
            "service_status",
        ),
        Gate(
            "Are you over 18, a resident of the UK, a homeowner and employed?",
            answers.eligibility,
            (Tag("record_eligibility", {}),),
        ),
        Gate(
            "Over how many months would you like to pay?",
            answers.term,
            (Tag("record_provisional_quote", {}),),
        ),
        Gate(
            "Would you like a copy by e-mail, and at which address?",
            answers.copy,
            (Tag("record_email_preference", {}),),
        ),
        Gate(
            "Please give me your full name, your employment, your income a year and what you spend a month.",
            answers.details,
            (Tag("record_financial_facts", {}),),
        ),
        Gate(
            "Has anything happened that we should know, with your health, your family or your income?",
            answers.vulnerability,
            (Tag("record_vulnerability_indicators", {}),),
        ),
        Gate(
            "Please grant or refuse it with the buttons on your page.",
            answers.only_by_button,
            (Tag("capture_consent", {"consentType": "credit_search", "granted": True}),),
            "credit_search_consent",
        ),
        Gate(
            "Please confirm it on your page; then your application goes to the lenders.",
            answers.only_by_button,
            (Tag("acknowledge_disclosure", {"id": "pre_contract_summary"}),),
            "pre_contract_summary",
        ),
        Gate(
            "What the lenders answer stands on your page. Have you seen it, and decided on any offer?",
            answers.decided,
            (
                Tag("accept_counter_offer", {}),
                Tag("select_offer", {}),
                Tag("waterfall_end", {"exhausted": True}),
            ),
        ),
        Gate("Is there anything else you would like to know?", answers.finished, (Tag("case_complete", {}),)),
    ),
)
NEWS = {
    "submit_application": "Your application is submitted.",
    "accept_counter_offer": "You have accepted the offer.",
    "refuse_counter_offer": "You have refused the offer, so the next lender is asked.",
}
ANSWERS = {
    "approved_as_requested": "approved, £{monthlyPayment:.2f} for {termMonths} months at {aprPct} %.",
    "approved_with_counter": "£{monthlyPayment:.2f} for {termMonths} months at {aprPct} %. {reason}",
    "declined": "declined. {reason}",
}


class Told(msgspec.Struct, frozen=True):
    """An event as the conversation tells it."""

    type: str
    data: msgspec.Raw


def turns(messages: list[Message]) -> list[Turn]:
    """A conversation as turns of the person."""
    found, before = [], ""
    for message in messages:
        text = "\n".join(part["text"] for part in message.content if part["type"] == "text")
        if message.role == "assistant":
            before = text
        else:
            acts = [tag for words in TOLD.findall(text) if (tag := told_event(words))]
            found.append(Turn(before, TOLD.sub("", text).strip(), acts))
    return found


def told_event(told: str) -> Tag | None:
    """The event in brackets; what the vocabulary does not know is only words."""
    try:
        event = msgspec.json.decode(told, type=Told)
        kind = BROKER.find_tag(event.type)
        return Tag(event.type, msgspec.to_builtins(kind.decoder.decode(event.data))) if kind else None
    except (msgspec.MsgspecError, RecursionError):
        return None


def closes(gate: Gate, happened: Tag) -> bool:
    """Whether an event answers a gate."""
    return any(
        tag.type == happened.type and tag.data.items() <= happened.data.items() for tag in gate.closed_by
    )


def ends(tag: Tag) -> bool:
    """Whether a journey ends with an event."""
    refused = tag.type == "record_eligibility" and not all(tag.data.values())
    return refused or tag.type in ("withdraw", "case_complete", "case_outcome")


def standing(gates: tuple[Gate, ...], spoken: list[Turn]) -> Standing:
    """What the turns so far have come to."""
    now = Standing(frozenset(), None, False)
    for turn in spoken:
        asked = asked_in(turn, gates)
        fresh = understood(asked, turn.words) if asked and turn.words and not now.ended else None
        if LEAVES.search(turn.words) and not now.ended:
            fresh = [Tag("withdraw", {"reason": turn.words})]
        happened = [*turn.acts, *(fresh or ())]
        closed = {gate.question for gate in gates for tag in happened if closes(gate, tag)}
        answered = {asked.question} if asked and fresh is not None else set()
        now = Standing(now.closed | closed | answered, fresh, now.ended or any(map(ends, happened)))
    return now


def understood(gate: Gate, words: str) -> Meant:
    """What words mean at a gate; what could not be recorded, as a deposit of 200 %, was not understood."""
    meant = gate.hear(words)
    return meant if meant is None or all(map(recordable, meant)) else None


def recordable(tag: Tag) -> bool:
    """Whether the vocabulary takes an event."""
    return told_event(json.dumps({"type": tag.type, "data": tag.data})) is not None


def asked_in(turn: Turn, gates: tuple[Gate, ...]) -> Gate | None:
    """The gate that a turn answers; who knows what is wanted need not be asked the first question."""
    first = gates[0] if not turn.before and not gates[0].shows else None
    return next((gate for gate in gates if gate.question in turn.before), first)


def guided(guide: Guide, messages: list[Message]) -> Iterator[ScriptPart]:
    """Say what is new, then ask what is next; the tags come last."""
    spoken = turns(messages)
    now = standing(guide.gates, spoken)
    asked_before = any(gate.question in turn.before for gate in guide.gates for turn in spoken)
    lines = opening(spoken[-1], now) if asked_before else [guide.greeting, *told(spoken[-1])]
    following = next((gate for gate in guide.gates if gate.question not in now.closed), None)
    tags = list(now.fresh or ())
    if now.ended or following is None:
        lines.append(guide.over if now.ended else guide.goodbye)
        tags += closing(tags)
    else:
        if following.shows:
            shown = DISCLOSURES[following.shows]
            lines.append(f"{shown.title}. {shown.body}")
            tags.append(Tag("present_disclosure", {"id": shown.id}))
        lines.append(following.question)
    yield "\n\n".join(lines)
    yield from (f"\n{tag}" for tag in tags)


def closing(tags: list[Tag]) -> list[Tag]:
    """The outcome of a journey that ends by an answer on eligibility."""
    reason = "An answer to the questions of eligibility was no."
    ineligible = any(tag.type == "record_eligibility" for tag in tags)
    return [Tag("case_outcome", {"kind": "ineligible", "reason": reason})] if ineligible else []


def opening(turn: Turn, now: Standing) -> list[str]:
    """What is said first: the news, that an answer was understood, or that it was not."""
    lines = told(turn)
    if lines or (now.ended and not now.fresh):
        return lines
    return ["Thank you." if turn.acts or now.fresh is not None else "I did not get that."]


def told(turn: Turn) -> list[str]:
    """What the events of a turn mean to the customer."""
    return [line for tag in turn.acts if (line := news(tag))]


def news(tag: Tag) -> str | None:
    """What an event of the page or of the lenders means to the customer."""
    if tag.type == "capture_consent" and not tag.data["granted"]:
        return "Without the search no lender can be asked. You may still grant it, or withdraw."
    if tag.type == "waterfall_step":
        outcome = tag.data["outcome"]
        values = {**outcome.get("offer", {}), **outcome}
        return f"{tag.data['lender']}: {ANSWERS[outcome['kind']].format(**values)}"
    if tag.type == "waterfall_end" and tag.data["exhausted"]:
        return "No lender of our panel is left to ask."
    if tag.type == "case_outcome" and tag.data["kind"] == "ineligible":
        return tag.data.get("reason")
    return NEWS.get(tag.type)


def installer(messages: list[Message]) -> Iterator[ScriptPart]:
    """What the installer's guide says."""
    return guided(INSTALLER, messages)


def customer(messages: list[Message]) -> Iterator[ScriptPart]:
    """What the customer's guide says."""
    return guided(CUSTOMER, messages)
