"""The server of the chat: an agent with two tools, one of which needs an approval. The words are scripted."""

from collections.abc import Iterator

from turnlog import Agent, App, tool
from turnlog.agents import Scripted, ScriptPart, ScriptTurn, ToolUse


@tool
def find_order(number: int) -> str:
    """Find an order by its number."""
    return f"order {number}: a red bicycle, 480 euros, delivered on Monday"


@tool(approval=True)
def refund(number: int) -> str:
    """Pay the price of an order back."""
    return f"480 euros for order {number} are on their way back"


def answer(turn: ScriptTurn) -> Iterator[ScriptPart]:
    """Find the order, propose the refund, say what came of it."""
    digits = "".join(filter(str.isdigit, turn.text))
    if not digits:
        yield "Hello! Tell me the number of your order, and I look whether I can refund it."
    elif not turn.results:
        yield f"I look up order {digits}."
        yield ToolUse("find_order", {"number": int(digits)})
    elif len(turn.results) == 1:
        yield f"I found {turn.results[0].text}. A colleague must approve the refund."
        yield ToolUse("refund", {"number": int(digits)})
    else:
        yield f"Done: {turn.results[1].text}."


app = App("refunds", Agent("Clerk", "Help customers.", Scripted(answer), tools=(find_order, refund)))
