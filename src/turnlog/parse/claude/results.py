"""The `result` line of a Claude CLI turn: how the turn ended, its cost and its tokens. Pure.

Only `is_error` says whether the turn failed; the subtype does not. Cost and tokens are totals of the process,
sub-agents included: a turn's share is the increase. A total that is smaller than before has restarted. The
text of the line is not used: it repeats raw text, and is missing if a turn fails.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from msgspec import structs

from turnlog.events import AgentUsage, Cost, ErrorInfo, Usage
from turnlog.events.agent import StopReason
from turnlog.events.payload import Amount, Count
from turnlog.parse.json_values import JsonObject, as_list, as_name, convert_or_none
from turnlog.parse.messages_api import USAGE_FIELDS, bounded_text
from turnlog.parse.open_agents import put_bounded

MAX_MODELS = 64  # of one process
MAX_REPORTED_MESSAGES = 1024  # whose tokens are reported once: a turn has a few hundred
NO_TOKENS = Usage(input_tokens=0, output_tokens=0)
UNKNOWN_MODEL = "unknown"
DOLLAR_DIGITS = 9  # decimal places; differences of floats have more, which mean nothing
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
}  # all others are "end_turn"
STOP_REASON_BY_SUBTYPE: dict[str, StopReason] = {"error_max_turns": "max_steps"}
ERROR_CODES = {"authentication_failed": "auth_failed", "oauth_org_not_allowed": "auth_failed"}
RETRIABLE_CODES = frozenset({"rate_limit", "overloaded", "server_error"})


class TurnOutcome(NamedTuple):
    """Why a turn ended; `error` is set if it failed."""

    reason: StopReason
    error: ErrorInfo | None = None


def parse_turn_outcome(line: JsonObject, problem: str | None) -> TurnOutcome:
    """Parse a `result` line. `problem` is the error code of the turn's last failed completion, if any."""
    subtype = as_name(line.get("subtype")) or ""
    if line.get("is_error") is not True:
        reason = STOP_REASONS.get(as_name(line.get("stop_reason")) or "", "end_turn")
        return TurnOutcome(STOP_REASON_BY_SUBTYPE.get(subtype, reason))

    terminal_reason = as_name(line.get("terminal_reason")) or ""
    if terminal_reason.startswith("aborted"):
        return TurnOutcome("cancelled")

    # A failed turn may have the subtype "success".
    fallback = terminal_reason if subtype == "success" else subtype
    code = problem or fallback or "error"
    code = ERROR_CODES.get(code, code)
    texts = [bounded_text(text) for text in (line.get("result"), *as_list(line.get("errors")))]
    message = next((text for text in texts if text), code)
    return TurnOutcome(STOP_REASON_BY_SUBTYPE.get(subtype, "error"), ErrorInfo(code=code, message=message))


class TurnEnd(NamedTuple):
    """How a turn ended, with the totals of its `result` line. What is None is not known."""

    reason: StopReason
    usage: Usage | None = None
    cost: Cost | None = None
    steps: int | None = None

    def followed_by(self, later: "TurnEnd") -> "TurnEnd":
        """Return the end of both together: the later one says why."""
        return TurnEnd(
            later.reason,
            add_known(self.usage, later.usage),
            add_known(self.cost, later.cost),
            add_known(self.steps, later.steps),
        )


class ModelTotals(NamedTuple):
    """The token counts and the cost of one model since the start of the process."""

    counts: dict[str, int]
    cost: float


class UsageTotals:
    """The totals of the last `result` line, to compute the increase of the next turn."""

    def __init__(self) -> None:
        self._total_cost = 0.0
        self._by_model: dict[str, ModelTotals] = {}

    def take_turn_cost(self, line: JsonObject) -> Cost | None:
        """Return the cost of the turn and store the new total; None if the line has no cost."""
        total = convert_or_none(line.get("total_cost_usd"), Amount)
        if total is None:
            return None
        increase = counter_increase(self._total_cost, total)
        self._total_cost = total
        return Cost(total_cost=increase)

    def take_turn_usages(self, line: JsonObject) -> list[AgentUsage]:
        models = line.get("modelUsage")
        if not isinstance(models, dict):
            return []
        usages = [self._take_model_usage(name, numbers) for name, numbers in models.items()]
        return [usage for usage in usages if usage is not None]

    def _take_model_usage(self, name: str, numbers: Any) -> AgentUsage | None:
        model = as_name(name)
        if model is None or not isinstance(numbers, dict):
            return None
        if model not in self._by_model and len(self._by_model) >= MAX_MODELS:
            return None

        counts = parse_token_counts(numbers, MODEL_USAGE_FIELDS)
        cost: float = convert_or_none(numbers.get("costUSD"), Amount) or 0.0
        before = self._by_model.get(model, ModelTotals(dict.fromkeys(counts, 0), 0.0))
        self._by_model[model] = ModelTotals(counts, cost)

        increases = {
            field: int(counter_increase(before.counts[field], count)) for field, count in counts.items()
        }
        if not any(increases.values()):
            return None
        turn_cost = Cost(total_cost=counter_increase(before.cost, cost))
        return AgentUsage(model=model, usage=Usage(**increases), cost=turn_cost)


class CompletionUsages:
    """Reports the tokens of each completion, and at the end of a turn those that no completion has named.

    A process names the tokens of a message when it begins and, if it streams it, when it ends. Those of
    sub-agents are not streamed, and the output of a message that has only begun is too small.
    """

    def __init__(self) -> None:
        self._reported_ids: dict[str, None] = {}
        self._reported = NO_TOKENS  # in this turn

    def add(self, message_id: str | None, model: str | None, usage: Usage) -> AgentUsage | None:
        """Return the usage of a completion; None if it has no tokens, or was reported before."""
        if usage == NO_TOKENS or message_id in self._reported_ids:
            return None
        if message_id is not None:
            put_bounded(self._reported_ids, message_id, None, MAX_REPORTED_MESSAGES)
        self._reported += usage
        return AgentUsage(model=model or UNKNOWN_MODEL, usage=usage)

    def take_rest(self, usages: list[AgentUsage]) -> list[AgentUsage]:
        """Return what is missing to the usages of a turn by model, as one. The next turn begins."""
        reported = self._reported
        self._reported = NO_TOKENS
        if not usages:
            return []
        total = sum_usages(usages)
        counts = structs.asdict(total)
        rest = {name: max(0, count - getattr(reported, name)) for name, count in counts.items()}
        if not any(rest.values()):
            return []
        # the models of single completions may have other names than those of the totals
        largest = max(usages, key=lambda item: item.usage.input_tokens + item.usage.output_tokens)
        return [AgentUsage(model=largest.model, usage=Usage(**rest))]


def sum_usages(usages: list[AgentUsage]) -> Usage:
    total = usages[0].usage
    for item in usages[1:]:
        total += item.usage
    return total


def add_known(first: Any, second: Any) -> Any:
    """Return the sum, or the one that is known; None if none is."""
    if first is None or second is None:
        return first if second is None else second
    return first + second


def counter_increase(before: float, now: float) -> float:
    """Return the increase of a running total. A smaller value means that the counter has restarted."""
    increase = now - before if now >= before else now
    return round(increase, DOLLAR_DIGITS)


def parse_token_counts(numbers: JsonObject, fields: Mapping[str, str]) -> dict[str, int]:
    """Return the counts under the field names of `Usage`. A count that is missing or not valid is 0."""
    return {field: convert_or_none(numbers.get(name), Count) or 0 for name, field in fields.items()}


def parse_message_usage(message: JsonObject) -> Usage:
    usage = message.get("usage")
    return Usage(**parse_token_counts(usage, USAGE_FIELDS)) if isinstance(usage, dict) else NO_TOKENS


def parse_turn_usage(line: JsonObject, usages: list[AgentUsage]) -> Usage | None:
    """Return the tokens of a turn: the sum over the models, else the main agent's; None if not known."""
    if usages:
        return sum_usages(usages)

    main_usage = line.get("usage")
    if not isinstance(main_usage, dict):
        return None
    return Usage(**parse_token_counts(main_usage, USAGE_FIELDS))
