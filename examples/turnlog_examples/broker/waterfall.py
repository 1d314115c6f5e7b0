"""The waterfall: the lenders of the panel are asked one after the other, until one does not decline.

What a lender answers follows from the case alone. It lends only between its bounds, and only a payment up to
its share of what is left of the income each month. It approves what was quoted, counters with another rate or
term (never another amount), or declines. Whether a customer is vulnerable does not matter to a lender.
"""

from decimal import Decimal

from turnlog.events import Payload
from turnlog_examples.broker.case import Case
from turnlog_examples.broker.events import (
    Answer,
    ApprovedAsRequested,
    ApprovedWithCounter,
    Declined,
    Offer,
    WaterfallEnd,
    WaterfallStep,
)
from turnlog_examples.broker.panel import PANEL, Lender
from turnlog_examples.broker.quote import Quote, Terms, exact, pence, priced

YEAR = 12  # terms are lengthened by whole years


def requested(case: Case) -> Quote:
    """The quote the lenders are asked for; lenders are not asked without one."""
    return case["waterfall"]["requestedQuote"] if "waterfall" in case else case["provisionalQuote"]


def left_monthly(case: Case) -> Decimal:
    """What is left of a month's income; an income that was not stated is none."""
    money = case["financial"]
    return exact(money.get("annualIncome", 0)) / YEAR - exact(money.get("monthlyOutgoings", 0))


def affordable(case: Case, lender: Lender) -> Terms | None:
    """The shortest term from the wanted one on whose payment the customer can afford, with its price."""
    quote = requested(case)
    highest = left_monthly(case) * lender.share_pct / 100
    shortest, longest = lender.terms
    first = min(max(quote["termMonths"], shortest), longest)
    for months in (first, *range(first + YEAR - first % YEAR, longest + 1, YEAR)):
        terms = priced(lender, exact(quote["amount"]), months)
        if exact(terms["monthlyPayment"]) <= highest:
            return terms
    return None


def decide(case: Case, lender: Lender) -> Answer:
    """What a lender answers to the case."""
    quote, (least, most) = requested(case), lender.amounts
    if not least <= quote["amount"] <= most:
        return Declined(reason=f"This lender lends from {least:,} to {most:,} pounds.")
    terms = affordable(case, lender)
    if terms is None:
        share = f"{lender.share_pct} percent of what is left each month"
        return Declined(reason=f"The payment would be more than {share}.")
    offer = offered(case, lender, terms)
    if changed := changes(quote, terms):
        return ApprovedWithCounter(offer=offer, reason=f"This lender offers {' and '.join(changed)}.")
    return ApprovedAsRequested(offer=offer)


def changes(quote: Quote, terms: Terms) -> list[str]:
    """How a lender's terms differ from what was quoted."""
    pairs = (
        ("a term of {} months", terms["termMonths"], quote["termMonths"]),
        ("an APR of {} %", terms["aprPct"], quote["indicativeAprPct"]),
    )
    return [f"{words.format(said)} instead of {wanted}" for words, said, wanted in pairs if said != wanted]


def offered(case: Case, lender: Lender, terms: Terms) -> Offer:
    """A lender's offer; the panel's place makes its id."""
    quote = requested(case)
    saved = quote.get("estimatedMonthlySolarSavings")
    cost = None if saved is None else float(pence(exact(terms["monthlyPayment"]) - exact(saved)))
    return Offer(
        id=f"offer_{PANEL.index(lender) + 1}",
        lender=lender.name,
        position=lender.position,
        apr_pct=terms["aprPct"],
        term_months=terms["termMonths"],
        monthly_payment=terms["monthlyPayment"],
        total_payable=terms["totalPayable"],
        net_loan_amount=quote["amount"],
        estimated_monthly_solar_savings=saved,
        net_cost_per_month=cost,
    )


def settled(case: Case) -> bool:
    """Whether no lender has to be asked: an offer is accepted or to be decided on, or all were asked."""
    fall = case.get("waterfall")
    return fall is not None and (
        "acceptedOffer" in fall or fall["awaitingCounterDecision"] or fall["exhausted"]
    )


def walk(case: Case) -> list[Payload]:
    """What happens when lenders are asked: those that were not yet, up to the first that does not decline."""
    fall = case.get("waterfall")
    if fall and settled(case):
        return [WaterfallEnd(exhausted=fall["exhausted"])]
    happened: list[Payload] = []
    for index in range(len(fall["steps"]) if fall else 0, len(PANEL)):
        lender = PANEL[index]
        outcome = decide(case, lender)
        happened.append(
            WaterfallStep(index=index, lender=lender.name, position=lender.position, outcome=outcome)
        )
        if not isinstance(outcome, Declined):
            return [*happened, WaterfallEnd(exhausted=False)]
    return [*happened, WaterfallEnd(exhausted=True)]
