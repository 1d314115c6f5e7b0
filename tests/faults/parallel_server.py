"""Servers of a turn with two sub-agents at once, a completion that is retried, and a hand-off.

Each sub-agent runs two tools at once: one that reads and one that writes, one of these with a key.
"""

from collections.abc import Iterator

from tests.faults.turn_server import KEY, Order, make_tools, results_of, serve_orders
from turnlog import Agent, App
from turnlog.agents import Scripted, ToolUse
from turnlog.agents.models import Fail
from turnlog.agents.retry import RetryPolicy
from turnlog.state.history import Message

HANDOFF_TOOL = "handoff_to_closer"


def make_scout(order: Order, name: str, write: ToolUse) -> Agent:
    def script(messages: list[Message]) -> Iterator[str | ToolUse]:
        if results_of(messages):
            yield f"{name} is back."
        else:
            yield "I walk around."
            yield ToolUse("look")
            yield write

    return Agent(name, "", Scripted(script), tools=tuple(make_tools(order.effects_path).values()))


def make_guide(order: Order) -> Agent:
    """Make an agent whose completion after the results of its sub-agents fails once in each process."""
    failures = iter([Fail()])

    def script(messages: list[Message]) -> Iterator[str | ToolUse | Fail]:
        if not results_of(messages):
            yield "Both of you."
            yield ToolUse("one", {"prompt": "Go"})
            yield ToolUse("two", {"prompt": "Go"})
        else:
            yield "I hand over."
            yield from failures
            yield ToolUse(HANDOFF_TOOL, {"prompt": "Close"})

    one = make_scout(order, "One", ToolUse("pay", {"idempotency_key": KEY}))
    two = make_scout(order, "Two", ToolUse("scribble"))
    closer = Agent("Closer", "", Scripted(lambda _: ["All is done."]))
    retry = RetryPolicy(initial_delay_s=0.001)
    return Agent("Guide", "", Scripted(script), agents=[one, two], handoffs=[closer], retry=retry)


def make_parallel_app(order: Order) -> App:
    return App("outlive", make_guide(order), on_crash=order.on_crash)


if __name__ == "__main__":
    serve_orders(Order, make_parallel_app)
