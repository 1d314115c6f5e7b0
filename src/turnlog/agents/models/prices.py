"""Compute the cost of a completion from a dated price table. Pure.

A model that the table does not have has no price, not even as a newer version of a known model. An id of the
table matches its dated and hosted forms too (`claude-sonnet-4-5-20250929`,
`us.anthropic.claude-sonnet-4-5-20250929-v1:0`). If several ids match, the longest counts.

`Usage.input_tokens` of the Messages API excludes tokens that were read from the cache or written to it, so
the size of the input is the sum of the three.
"""

import re
from functools import lru_cache
from typing import NamedTuple

from turnlog.events import Cost, Usage

PRICES_DATE = "2026-04-28"  # of the provider's price list
LONG_CONTEXT_TOKENS = 200_000  # input of one completion beyond which a model with a long context costs more
LONG_INPUT_FACTOR = 2.0
LONG_OUTPUT_FACTOR = 1.5
CACHE_WRITE_FACTOR = 1.25  # of the price of input
CACHE_READ_FACTOR = 0.1
COST_DIGITS = 6
MODEL_ID_PATTERN = r"(?<![\w-]){id}(?=$|[-@]\d{{8}}|-latest|-v\d|:|\[)"


class Price(NamedTuple):
    """US dollars for a million tokens."""

    input: float
    output: float
    has_long_price: bool = False  # whether a long context has a price of its own


PRICES: dict[str, Price] = {
    "claude-opus-4-6": Price(5, 25, has_long_price=True),
    "claude-opus-4-5": Price(5, 25),
    "claude-opus-4-1": Price(15, 75),
    "claude-opus-4": Price(15, 75),
    "claude-opus-4-0": Price(15, 75),
    "claude-sonnet-4-5": Price(3, 15, has_long_price=True),
    "claude-sonnet-4": Price(3, 15, has_long_price=True),
    "claude-sonnet-4-0": Price(3, 15, has_long_price=True),
    "claude-haiku-4-5": Price(1, 5),
    "claude-3-5-haiku": Price(0.80, 4),
    "claude-3-haiku": Price(0.25, 1.25),
}


@lru_cache(64)  # a process uses few models, and the search tries every id of the table
def find_price(model: str) -> Price | None:
    matches = [
        model_id for model_id in PRICES if re.search(MODEL_ID_PATTERN.format(id=re.escape(model_id)), model)
    ]
    return PRICES[max(matches, key=len)] if matches else None


def compute_cost(model: str, usage: Usage) -> Cost | None:
    """Return the cost of one completion; None if the price is not known."""
    price = find_price(model)
    if price is None:
        return None
    input_size = usage.input_tokens + usage.cache_read_tokens + usage.cache_creation_tokens
    is_long = price.has_long_price and input_size > LONG_CONTEXT_TOKENS
    input_price = price.input * (LONG_INPUT_FACTOR if is_long else 1) / 1_000_000
    output_price = price.output * (LONG_OUTPUT_FACTOR if is_long else 1) / 1_000_000

    input_cost = usage.input_tokens * input_price
    output_cost = usage.output_tokens * output_price
    read_cost = usage.cache_read_tokens * input_price * CACHE_READ_FACTOR
    write_cost = usage.cache_creation_tokens * input_price * CACHE_WRITE_FACTOR
    return Cost(
        total_cost=round(input_cost + output_cost + read_cost + write_cost, COST_DIGITS),
        input_cost=round(input_cost, COST_DIGITS),
        output_cost=round(output_cost, COST_DIGITS),
        cache_read_cost=round(read_cost, COST_DIGITS),
        cache_write_cost=round(write_cost, COST_DIGITS),
    )
