"""The lenders of the panel, in the order in which they are asked, and what each charges.

A lender's rate falls by some basis points for every whole 5,000 pounds of the loan, up to the most it lends.
"""

from decimal import Decimal
from typing import NamedTuple

from turnlog_examples.broker.events import Position

TIER_POUNDS = 5_000


class Lender(NamedTuple):
    """What a lender lends, to whom and at which rate."""

    name: str
    position: Position
    amounts: tuple[int, int]  # pounds, least and most
    terms: tuple[int, int]  # months, shortest and longest
    base_pct: Decimal  # the APR of a loan below the first tier
    tier_bps: int  # off for each tier
    share_pct: int  # of what is left each month: the highest payment this lender thinks affordable


PANEL = (
    Lender("Northgate Bank", "Prime Priority 1", (2_000, 25_000), (36, 180), Decimal("9.9"), 25, 25),
    Lender("Harbour Bank", "Prime Priority 2", (1_000, 50_000), (24, 180), Decimal("11.4"), 20, 35),
    Lender("Fairway Finance", "Sub-Prime 1", (1_000, 20_000), (24, 120), Decimal("18.9"), 10, 45),
)


def apr_pct(lender: Lender, amount: Decimal) -> Decimal:
    """The rate of a loan in percent a year."""
    tiers = min(amount, Decimal(lender.amounts[1])) // TIER_POUNDS
    return lender.base_pct - tiers * lender.tier_bps / 100
