"""How a turn of a Claude CLI process ended and what it took: its `result` line. Pure.

Whether it failed is what `is_error` says, whatever the subtype is called. Cost and tokens by model are those
of the whole process so far, sub-agents included: a turn took the difference; numbers that fell have begun
again. The text of the line is not used: it repeats raw text, and is not there when a turn fails.
"""

from functools import reduce
from operator import add
from typing import Any, NamedTuple

from turnlog.events import AgentUsage, Cost, ErrorInfo, Usage
from turnlog.events.agent import StopReason
from turnlog.events.payload import Amount, Count
from turnlog.parse.json_values import JsonObject, as_name, convert_or_none
from turnlog.parse.messages_api import USAGE_FIELDS, bounded_text

MAX_MODELS = 64  # of one process
DOLLAR_DIGITS = 9  # of a dollar; differences of sums have more, and they mean nothing
MODEL_USAGE_FIELDS = {
    "inputTokens": "input_tokens",
    "outputTokens": "output_tokens",
    "cacheReadInputTokens": "cache_read_tokens",
    "cacheCreationInputTokens": "cache_creation_tokens",
}
STOP_REASONS: dict[str, StopReason] = {
    "max_tokens": "max_tokens",
    "stop_sequence": "stop_sequence",
    "refusal": "refusal",
    "model_context_window_exceeded": "context_window",
}  # all others are the end of a turn
STOP_REASON_BY_SUBTYPE: dict[str, StopReason] = {"error_max_turns": "max_steps"}
ERROR_CODES = {"authentication_failed": "auth_failed", "oauth_org_not_allowed": "auth_failed"}
RETRIABLE_CODES = frozenset({"rate_limit", "overloaded", "server_error"})


class TurnOutcome(NamedTuple):
    """Why a turn ended, and the fault if it failed."""

    reason: StopReason
    error: ErrorInfo | None = None


def parse_turn_outcome(line: JsonObject, problem: str | None) -> TurnOutcome:
    """What a `result` says; `problem` is what the model's last failed answer said it was."""
    subtype, ending = as_name(line.get("subtype")) or "", as_name(line.get("terminal_reason")) or ""
    if line.get("is_error") is not True:
        reason = STOP_REASONS.get(as_name(line.get("stop_reason")) or "", "end_turn")
        return TurnOutcome(STOP_REASON_BY_SUBTYPE.get(subtype, reason))
    if ending.startswith("aborted"):
        return TurnOutcome("cancelled")
    code = problem or (ending if subtype == "success" else subtype) or "error"
    code = ERROR_CODES.get(code, code)
    errors = line.get("errors")
    words = [line.get("result"), *(errors if isinstance(errors, list) else [])]
    message = next((word for word in map(bounded_text, words) if word), code)
    return TurnOutcome(STOP_REASON_BY_SUBTYPE.get(subtype, "error"), ErrorInfo(code=code, message=message))


class UsageTotals:
    """What the process has taken so far."""

    def __init__(self) -> None:
        self._total_cost = 0.0
        self._models: dict[str, tuple[dict[str, int], float]] = {}

    def take_turn_cost(self, line: JsonObject) -> Cost | None:
        """What the turn cost, if that is known."""
        total = convert_or_none(line.get("total_cost_usd"), Amount)
        if total is None:
            return None
        spent, self._total_cost = counter_increase(self._total_cost, total), total
        return Cost(total_cost=spent)

    def take_turn_usages(self, line: JsonObject) -> list[AgentUsage]:
        """What the turn took of each model."""
        models = line.get("modelUsage")
        found = [self._take_model_usage(*pair) for pair in models.items()] if isinstance(models, dict) else []
        return [usage for usage in found if usage]

    def _take_model_usage(self, name: str, numbers: Any) -> AgentUsage | None:
        model = as_name(name)
        if model is None or not isinstance(numbers, dict):
            return None
        if model not in self._models and len(self._models) >= MAX_MODELS:
            return None
        counts = {
            own: convert_or_none(numbers.get(field), Count) or 0 for field, own in MODEL_USAGE_FIELDS.items()
        }
        cost: float = convert_or_none(numbers.get("costUSD"), Amount) or 0.0
        before, paid = self._models.get(model, (dict.fromkeys(counts, 0), 0.0))
        self._models[model] = counts, cost
        taken = {own: int(counter_increase(before[own], count)) for own, count in counts.items()}
        if not any(taken.values()):
            return None
        return AgentUsage(
            model=model, usage=Usage(**taken), cost=Cost(total_cost=counter_increase(paid, cost))
        )


def counter_increase(before: float, now: float) -> float:
    """How much a sum grew; one that fell began again."""
    return round(now - before if now >= before else now, DOLLAR_DIGITS)


def parse_turn_usage(line: JsonObject, usages: list[AgentUsage]) -> Usage | None:
    """The tokens of a turn: the sum over the models, or else what the line says of the main agent."""
    if usages:
        return reduce(add, (item.usage for item in usages))
    said = line.get("usage")
    if not isinstance(said, dict):
        return None
    return Usage(**{own: convert_or_none(said.get(field), Count) or 0 for field, own in USAGE_FIELDS.items()})
