"""The broker's sums: known annuities, and what must hold of every loan."""

from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from tests.support.examples import examples
from tests.support.tables import for_each_row
from turnlog_examples.broker.panel import PANEL, Lender, apr_pct
from turnlog_examples.broker.quote import exact, payment, priced, quote, savings

EVERY = examples(100)

AMOUNTS = st.decimals(Decimal(1_000), Decimal(50_000), places=2)
RATES = st.decimals(Decimal(0), Decimal(30), places=2)
MONTHS = st.integers(1, 180)


@for_each_row(
    ("amount", "apr", "months", "monthly"),
    [
        ("12500", "9.9", 120, "161.59"),
        ("1000", "12.682503013196972", 12, "88.85"),  # one percent a month: the tables say 88.8488
        ("100000", "6.167781186449828", 360, "599.55"),  # half a percent a month: 599.5505
        ("1200", "0", 12, "100.00"),
        ("1000", "0", 3, "333.33"),
        ("1000", "100", 1, "1059.46"),  # doubled in a year is a twelfth root of two in a month
    ],
)
def test_known_annuities(amount: str, apr: str, months: int, monthly: str) -> None:
    assert payment(Decimal(amount), Decimal(apr), months) == Decimal(monthly)


@EVERY
@given(AMOUNTS, RATES, MONTHS)
def test_the_payments_repay_the_loan_within_their_rounding(
    amount: Decimal, apr: Decimal, months: int
) -> None:
    monthly = payment(amount, apr, months)
    growth = (1 + apr / 100) ** (Decimal(1) / 12)
    balance, most = amount, Decimal(0)
    for _ in range(months):
        balance, most = balance * growth - monthly, most * growth + Decimal("0.005")
    assert abs(balance) <= most + Decimal("0.000001")


@EVERY
@given(AMOUNTS, RATES, MONTHS, st.decimals(Decimal("0.01"), Decimal(500), places=2))
def test_more_money_or_a_higher_rate_cost_more_and_a_longer_term_less_a_month(
    amount: Decimal, apr: Decimal, months: int, more: Decimal
) -> None:
    monthly = payment(amount, apr, months)
    assert payment(amount + more, apr, months) >= monthly
    assert payment(amount, apr + more / 100, months) >= monthly
    assert payment(amount, apr, months + 1) <= monthly


@EVERY
@given(st.sampled_from(PANEL), AMOUNTS, st.integers(24, 180))
def test_the_total_is_exactly_the_payments(lender: Lender, amount: Decimal, months: int) -> None:
    terms = priced(lender, amount, months)
    assert exact(terms["totalPayable"]) == exact(terms["monthlyPayment"]) * months


@for_each_row(
    ("amount", "rate"),
    [("4999.99", "9.9"), ("5000", "9.65"), ("12500", "9.4"), ("25000", "8.65"), ("900000", "8.65")],
)
def test_the_rate_falls_for_every_whole_tier_up_to_the_most_that_is_lent(amount: str, rate: str) -> None:
    assert apr_pct(PANEL[0], Decimal(amount)) == Decimal(rate)


def test_a_quote_is_the_first_lenders_price() -> None:
    assert quote({"netLoanAmount": 12500.0}, 120, "now") == {
        "amount": 12500.0,
        "termMonths": 120,
        "indicativeAprPct": 9.4,
        "monthlyPayment": 158.47,
        "totalPayable": 19016.4,
        "capturedAt": "now",
    }


def test_panels_save_by_their_size_and_more_with_a_battery() -> None:
    assert savings({}) is None
    assert savings({"systemKwp": 4}) == 31.88  # 4 * 850 * 0.25 * 45 % / 12
    assert savings({"systemKwp": 4, "productSpec": "panels_battery"}) == 53.13
    assert quote({"netLoanAmount": 1.0, "systemKwp": 4}, 12, "")["estimatedMonthlySolarSavings"] == 31.88
