"""What happened to a case, for those who must account for it: all of it is made from the log's events alone.

The timeline has a line for every event of the log that counts, also for one that changed nothing, which its
summary says. `replayed` asks a model again for each disclosure that was presented, as often as wanted, with
the conversation as it was before; the asking is the caller's, or an agent's (`asking`).
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

import msgspec

from turnlog import Agent, Catalog, new_id
from turnlog.agents import ReplyBuilder, Request, instructions_with_tags, tag_parser_factory
from turnlog.events import CORE, AssistantMessage, Envelope, Payload, ProcessStart, UiMessage, UnknownPayload
from turnlog.log import Log
from turnlog.parse import strip_event_tags
from turnlog.state import Item, Message, describe_app_event, fold, is_app_event_for_model
from turnlog_examples.broker import events as said
from turnlog_examples.broker.answers import Tag
from turnlog_examples.broker.case import REDUCERS, Case, new_case
from turnlog_examples.broker.disclosures import DISCLOSURES, Disclosure

RUNS, MOST_RUNS = 5, 20
TITLE_CHARS = 12  # of a title in the display text: the model said it, though without its tag
SNIPPET_CHARS = 160
CATALOG = Catalog(CORE, said.BROKER)

Ask = Callable[[list[Message]], Awaitable[str]]


class Line(NamedTuple):
    """How a class of events stands in the timeline."""

    kind: str
    summary: Callable[[Any], str]


def answered(payload: said.WaterfallStep) -> str:
    kind = msgspec.to_builtins(payload.outcome)["kind"].replace("_", " ")
    return f"{payload.lender} ({payload.position}): {kind}"


def agreed(payload: said.CaptureConsent) -> str:
    return f"Consent {payload.consent_type} {'granted' if payload.granted else 'refused'}"


LINES: dict[type[Payload], Line] = {
    said.PresentDisclosure: Line("disclosure_presented", lambda payload: f"Presented {payload.id}"),
    said.AcknowledgeDisclosure: Line("disclosure_acknowledged", lambda payload: f"Acknowledged {payload.id}"),
    said.CaptureConsent: Line("consent_recorded", agreed),
    said.RecordEligibility: Line("eligibility_recorded", lambda _: "Answers on eligibility"),
    said.RecordProvisionalQuote: Line(
        "quote_recorded", lambda payload: f"Quote over {payload.term_months} months"
    ),
    said.RecordEmailPreference: Line(
        "email_preference_recorded",
        lambda payload: f"{'A' if payload.wants_email_copy else 'No'} copy by e-mail",
    ),
    said.RecordPersonalFacts: Line("personal_facts_recorded", lambda _: "Facts about the customer"),
    said.RecordFinancialFacts: Line("financial_facts_recorded", lambda _: "Facts about the customer's money"),
    said.RecordVulnerabilityIndicators: Line(
        "vulnerability_recorded", lambda payload: f"{len(payload.indicators)} indicators of vulnerability"
    ),
    said.SubmitApplication: Line("submission", lambda _: "Application submitted"),
    said.WaterfallStep: Line("waterfall_step", answered),
    said.AcceptCounterOffer: Line("counter_decision", lambda _: "Counter-offer accepted"),
    said.RefuseCounterOffer: Line("counter_decision", lambda _: "Counter-offer refused"),
    said.SelectOffer: Line("selected", lambda payload: f"Selected {payload.offer_id}"),
    said.Withdraw: Line("withdrawn", lambda payload: payload.reason or "Withdrawn"),
    said.CaseComplete: Line("completed", lambda _: "Case complete"),
    UiMessage: Line("message", lambda payload: f"user: {payload.text[:SNIPPET_CHARS]}"),
    AssistantMessage: Line("message", lambda payload: f"assistant: {payload.text[:SNIPPET_CHARS]}"),
}


async def items_of(log: Log, session_id: str) -> list[Item]:
    """Everything that happened in a session."""
    items: list[Item] = []
    while page := await log.read(session_id, items[-1][0].seq if items else -1, replay_from=-1):
        items += [(envelope, CATALOG.decode_payload(envelope)) for envelope in page.envelopes()]
    return items


def accounted(items: Sequence[Item]) -> dict[str, Any]:
    """A case as those see it who must account for it."""
    case: Case = fold(REDUCERS, items, new_case())
    return {"status": case["status"], "compliance": compliance(case, items), "timeline": timeline(items)}


def timeline(items: Iterable[Item]) -> list[dict[str, Any]]:
    """Every event that counts as {ts, kind, summary, payload}, in the order of the log."""
    case, lines = new_case(), []
    for envelope, payload in items:
        before, reducer = case, REDUCERS.get(type(payload))  # type: ignore[arg-type]
        case = reducer(case, payload, envelope) if reducer else case
        line = LINES.get(type(payload))  # type: ignore[arg-type]
        if isinstance(payload, ProcessStart) and case is not before:
            lines.append({"ts": envelope.ts, "kind": "case_created", "summary": "Case created"})
        elif line is not None:
            idle = "" if reducer is None or case is not before else " (changed nothing)"
            summary, fields = line.summary(payload) + idle, msgspec.to_builtins(payload)
            lines.append({"ts": envelope.ts, "kind": line.kind, "summary": summary, "payload": fields})
    return lines


def compliance(case: Case, items: Sequence[Item]) -> dict[str, Any]:
    """The figures of a case, and of the log it is made of."""
    disclosures, money = case["disclosures"], case["financial"]
    known = [record for record in disclosures if "acknowledgedAt" in record]
    clicked = {
        payload.consent_type
        for envelope, payload in items
        if isinstance(payload, said.CaptureConsent) and envelope.origin == "ui"
    }
    return {
        "disclosuresPresentedCount": len(disclosures),
        "disclosuresAcknowledgedCount": len(known),
        "allDisclosuresAcknowledged": {record["id"] for record in known} == set(DISCLOSURES),
        "consentsCount": len(case["consents"]),
        "explicitConsents": [
            one["type"] for one in case["consents"] if one["granted"] and one["type"] in clicked
        ],
        "vulnerabilityProbed": "vulnerabilityCapturedAt" in money,
        "vulnerabilityIndicatorsCount": len(money.get("vulnerabilityIndicators", ())),
        "waterfallSteps": len(case["waterfall"]["steps"]) if "waterfall" in case else 0,
        "finalOutcome": case["caseOutcome"]["kind"] if "caseOutcome" in case else None,
        "durations": durations(case, items),
    }


def durations(case: Case, items: Sequence[Item]) -> dict[str, int | None]:
    """How long the session took, and how long from the consent to the first submission after it."""
    agreed = [one["capturedAt"] for one in case["consents"] if one["type"] == "credit_search"]
    sent = [envelope.ts for envelope, payload in items if isinstance(payload, said.SubmitApplication)]
    after = [ts for ts in sent if agreed and ts >= agreed[0]]
    return {
        "sessionMs": between(items[0][0].ts, items[-1][0].ts) if items else 0,
        "fromConsentToSubmissionMs": between(agreed[0], after[0]) if after else None,
    }


def between(start: str, end: str) -> int:
    """Milliseconds from one time to another."""
    return (datetime.fromisoformat(end) - datetime.fromisoformat(start)) // timedelta(milliseconds=1)


def histories(items: Iterable[Item]) -> dict[said.DisclosureId, list[Message]]:
    """For each disclosure that was presented: the customer's conversation before it, and a line that asks.

    The words with which it was presented stand before their event, in the same turn: they are left out.
    """
    asked: dict[said.DisclosureId, list[Message]] = {}
    spoken: list[Spoken] = []
    for envelope, payload in items:
        if isinstance(payload, said.PresentDisclosure) and payload.id not in asked:
            own = envelope.trace_id
            before = [words for words in spoken if own is None or words.turn != own or words.role == "user"]
            asked[payload.id] = conversation(before, f"Please show me now: {DISCLOSURES[payload.id].title}.")
        if envelope.channel in (None, "customer"):
            spoken += words_of(envelope, payload)
    return asked


class Spoken(NamedTuple):
    """Return a message or an event as a model reads it."""

    turn: str | None
    role: Literal["user", "assistant"]
    text: str


def words_of(envelope: Envelope, payload: Payload | UnknownPayload) -> list[Spoken]:
    """What a model reads of an event: words, and what a page did or a rule said."""
    if isinstance(payload, AssistantMessage):
        return [Spoken(envelope.trace_id, "assistant", payload.text)]
    if isinstance(payload, UiMessage):
        return [Spoken(envelope.trace_id, "user", payload.text)]
    return (
        [Spoken(envelope.trace_id, "user", describe_app_event(envelope, payload))]
        if is_app_event_for_model(payload, envelope)
        else []
    )


def conversation(spoken: Iterable[Spoken], last: str) -> list[Message]:
    """What was said as a model reads it, neighbours of one role joined, with a last line of the user."""
    messages: list[Message] = []
    for _, role, text in (*spoken, Spoken(None, "user", last)):
        if not messages or messages[-1].role != role:
            messages.append(Message(role, []))
        messages[-1].content.append({"type": "text", "text": text})
    return messages


def passes(disclosure: Disclosure, output: str) -> bool:
    """Whether a model presented it: by its event, or by the first characters of its title."""
    parsed = strip_event_tags(output, said.BROKER)
    by_event = said.PresentDisclosure(id=disclosure.id) in [event.payload for event in parsed.events]
    return by_event or disclosure.title[:TITLE_CHARS].casefold() in parsed.display.casefold()


def judged(disclosure: Disclosure, outputs: Sequence[str]) -> dict[str, Any]:
    """What came of asking so often."""
    failures = [
        {"runIndex": number, "snippet": output[:SNIPPET_CHARS]}
        for number, output in enumerate(outputs)
        if not passes(disclosure, output)
    ]
    passed = len(outputs) - len(failures)
    return {
        "disclosureId": disclosure.id,
        "runs": len(outputs),
        "passed": passed,
        "failed": len(failures),
        "passRate": passed / len(outputs),
        "failures": failures,
    }


def asking(agent: Agent) -> Ask:
    """An agent's model asked as in a session: what it says, with the disclosures that it presents as tags."""
    instructions = instructions_with_tags(agent.instructions_for(None), said.BROKER)

    async def ask(messages: list[Message]) -> str:
        reply, lines = ReplyBuilder(new_id, tag_parser_factory(said.BROKER)), list[str]()
        async for batch in agent.model.stream(Request(instructions, messages), reply):
            lines += [payload.text for payload in batch if isinstance(payload, AssistantMessage)]
            shown = [payload.id for payload in batch if isinstance(payload, said.PresentDisclosure)]
            lines += [str(Tag("present_disclosure", {"id": name})) for name in shown]
        return "\n".join(lines)

    return ask


async def replayed(items: Iterable[Item], ask: Ask, runs: int = RUNS) -> list[dict[str, Any]]:
    """Every disclosure that was presented, asked for again, 1 to 20 times each."""
    times = range(max(1, min(runs, MOST_RUNS)))
    return [
        judged(DISCLOSURES[name], [await ask(messages) for _ in times])
        for name, messages in histories(items).items()
    ]
