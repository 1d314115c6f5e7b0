"""What a loan costs, to the penny.

An APR is the effective rate of a year, so the rate i of a month is (1 + APR)^(1/12) - 1. The monthly payment
is that of an annuity paid at the end of each month, amount * i / (1 - (1 + i)^-n), rounded half up to pence.
The total is exactly the payment times the months. Sums are decimal; as JSON numbers they keep two digits.
"""

from collections.abc import Mapping
from decimal import ROUND_HALF_UP, Context, Decimal, localcontext
from typing import Any, NotRequired, TypedDict

from turnlog_examples.broker.panel import PANEL, Lender, apr_pct

PENNY = Decimal("0.01")
EXACT = Context(prec=34)  # the caller's own context must not change a fold

# What panels save: kWh a year for each kWp, pounds for each kWh used at home, and the share that is.
YIELD_KWH, PRICE_POUNDS = 850, Decimal("0.25")
USED_PCT = {"panels_only": 45, "panels_battery": 75, "panels_battery_ev": 85, "panels_battery_ev_other": 85}


class Terms(TypedDict):
    """The price of a loan."""

    aprPct: float
    termMonths: int
    monthlyPayment: float
    totalPayable: float


class Quote(TypedDict):
    """What the customer is shown before any lender is asked."""

    amount: float
    termMonths: int
    indicativeAprPct: float
    monthlyPayment: float
    totalPayable: float
    estimatedMonthlySolarSavings: NotRequired[float]
    capturedAt: str


def exact(number: float) -> Decimal:
    """A number of JSON as it is written."""
    return Decimal(str(number))


def pence(value: Decimal) -> Decimal:
    """A sum of money, rounded half up."""
    return value.quantize(PENNY, ROUND_HALF_UP, EXACT)


def payment(amount: Decimal, apr: Decimal, months: int) -> Decimal:
    """What is paid each month, to the penny; `apr` in percent."""
    with localcontext(EXACT):
        rate = (1 + apr / 100) ** (Decimal(1) / 12) - 1
        return pence(amount / months if rate == 0 else amount * rate / (1 - (1 + rate) ** -months))


def priced(lender: Lender, amount: Decimal, months: int) -> Terms:
    """What a lender charges."""
    apr = apr_pct(lender, amount)
    monthly = payment(amount, apr, months)
    return {
        "aprPct": float(apr),
        "termMonths": months,
        "monthlyPayment": float(monthly),
        "totalPayable": float(monthly * months),
    }


def savings(project: Mapping[str, Any]) -> float | None:
    """What the panels save each month, roughly; only a system whose size is known saves."""
    if "systemKwp" not in project:
        return None
    used_pct = USED_PCT[project.get("productSpec", "panels_only")]
    yearly = exact(project["systemKwp"]) * YIELD_KWH * PRICE_POUNDS * used_pct / 100
    return float(pence(yearly / 12))


def quote(project: Mapping[str, Any], months: int, ts: str) -> Quote:
    """The provisional quote for a project, at the rate of the first lender."""
    terms = priced(PANEL[0], exact(project["netLoanAmount"]), months)
    quoted: Quote = {
        "amount": project["netLoanAmount"],
        "termMonths": months,
        "indicativeAprPct": terms["aprPct"],
        "monthlyPayment": terms["monthlyPayment"],
        "totalPayable": terms["totalPayable"],
        "capturedAt": ts,
    }
    if (saved := savings(project)) is not None:
        quoted["estimatedMonthlySolarSavings"] = saved
    return quoted
