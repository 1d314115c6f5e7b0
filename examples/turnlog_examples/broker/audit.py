"""What happened to a case, for those who must account for it: all of it is made from the log's events alone.

The timeline has a line for every event of the log that counts, also for one that changed nothing, which its
summary says. `replayed` asks a model again for each disclosure that was presented, as often as wanted, with
the conversation as it was before; the asking is the caller's.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import msgspec

from turnlog.events import AssistantMessage, Payload, ProcessStart, UiMessage
from turnlog.parse import strip_event_tags
from turnlog.state.fold import Item
from turnlog.state.history import Message, add, text_part
from turnlog_examples.broker import events as said
from turnlog_examples.broker.case import REDUCERS, Case, new_case
from turnlog_examples.broker.disclosures import DISCLOSURES, Disclosure

RUNS, MOST_RUNS = 5, 20
TITLE_CHARS = 12  # of a title in the display text: the model said it, though without its tag
SNIPPET_CHARS = 160

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
    spoken: list[tuple[str | None, Payload]] = []
    for envelope, payload in items:
        if isinstance(payload, UiMessage | AssistantMessage) and envelope.channel in (None, "customer"):
            spoken.append((envelope.trace_id, payload))
        elif isinstance(payload, said.PresentDisclosure) and payload.id not in asked:
            own = envelope.trace_id
            asked[payload.id] = conversation(
                [
                    words
                    for trace, words in spoken
                    if own is None or trace != own or isinstance(words, UiMessage)
                ],
                f"Please show me now: {DISCLOSURES[payload.id].title}.",
            )
    return asked


def conversation(spoken: Iterable[Payload], last: str) -> list[Message]:
    """What was said as a model reads it, neighbours of one role joined, with a last line of the user."""
    messages: list[Message] = []
    for payload in spoken:
        if isinstance(payload, UiMessage):
            add(messages, "user", text_part(payload.text))
        elif isinstance(payload, AssistantMessage):
            add(messages, "assistant", text_part(payload.text))
    add(messages, "user", text_part(last))
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


async def replayed(items: Iterable[Item], ask: Ask, runs: int = RUNS) -> list[dict[str, Any]]:
    """Every disclosure that was presented, asked for again, 1 to 20 times each."""
    times = range(max(1, min(runs, MOST_RUNS)))
    return [
        judged(DISCLOSURES[name], [await ask(messages) for _ in times])
        for name, messages in histories(items).items()
    ]
