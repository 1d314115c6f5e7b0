"""What a completion costs, from a table with a date. Pure.

A model that the table does not name has no price: a newer version of a known model is not that model. The
table's id stands for itself and for its dated and hosted forms (`claude-sonnet-4-5-20250929`,
`us.anthropic.claude-sonnet-4-5-20250929-v1:0`). Of several ids in one name the longest counts.

`Usage.input_tokens` is what the Messages API says, and it says it without the tokens that were read from the
cache or written to it; so nothing is subtracted, and the size of the input is the sum of the three.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from turnlog.events import Cost, Usage

DATE = "2026-04-28"  # when the prices were taken down
LONG_TOKENS = 200_000  # input of one completion beyond which a model with a long context costs more
LONG_INPUT, LONG_OUTPUT = 2.0, 1.5
CACHE_WRITE, CACHE_READ = 1.25, 0.1  # of the price of input
DIGITS = 6
FORM = r"(?<![\w-]){id}(?=$|[-@]\d{{8}}|-latest|-v\d|:|\[)"


class Price(NamedTuple):
    """US dollars for a million tokens."""

    input: float
    output: float
    long: bool = False  # whether a long context has a price of its own


PRICES: dict[str, Price] = {
    "claude-opus-4-6": Price(5, 25, long=True),
    "claude-opus-4-5": Price(5, 25),
    "claude-opus-4-1": Price(15, 75),
    "claude-opus-4": Price(15, 75),
    "claude-opus-4-0": Price(15, 75),
    "claude-sonnet-4-5": Price(3, 15, long=True),
    "claude-sonnet-4": Price(3, 15, long=True),
    "claude-sonnet-4-0": Price(3, 15, long=True),
    "claude-haiku-4-5": Price(1, 5),
    "claude-3-5-haiku": Price(0.80, 4),
    "claude-3-haiku": Price(0.25, 1.25),
}


@lru_cache(64)  # the models of a process are few, and each name is searched for every id of the table
def price_of(model: str) -> Price | None:
    """The price of a model, if the table knows it."""
    named = [known for known in PRICES if re.search(FORM.format(id=re.escape(known)), model)]
    return PRICES[max(named, key=len)] if named else None


def cost(model: str, usage: Usage) -> Cost | None:
    """What one completion costs; None if the price is not known."""
    price = price_of(model)
    if price is None:
        return None
    size = usage.input_tokens + usage.cache_read_tokens + usage.cache_creation_tokens
    long = price.long and size > LONG_TOKENS
    input_price = price.input * (LONG_INPUT if long else 1) / 1_000_000
    output_price = price.output * (LONG_OUTPUT if long else 1) / 1_000_000
    parts = (
        usage.input_tokens * input_price,
        usage.output_tokens * output_price,
        usage.cache_read_tokens * input_price * CACHE_READ,
        usage.cache_creation_tokens * input_price * CACHE_WRITE,
    )
    taken, said, read, written = (round(part, DIGITS) for part in parts)
    return Cost(
        total_cost=round(sum(parts), DIGITS),
        input_cost=taken,
        output_cost=said,
        cache_read_cost=read,
        cache_write_cost=written,
    )
