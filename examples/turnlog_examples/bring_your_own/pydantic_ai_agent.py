"""An agent of Pydantic AI with a sub-agent and an approval, served by Turnlog.

The lines with `# turnlog` are all that an existing agent needs. Then, in this folder:

    turnlog serve pydantic_ai_agent:app

The models are offline: functions in place of a provider.
"""

from collections.abc import AsyncIterator
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.messages import ModelMessage, ToolReturnPart
from pydantic_ai.models.function import AgentInfo, DeltaToolCall, FunctionModel

from turnlog import App, adapters  # turnlog


def has_results(messages: list[ModelMessage]) -> bool:
    return any(isinstance(part, ToolReturnPart) for part in messages[-1].parts)


async def play_clerk(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
    if has_results(messages):
        yield "The order is handled."
        return
    yield "Let me look. "
    question = '{"question": "Who ordered?"}'
    yield {1: DeltaToolCall(name="ask_researcher", json_args=question, tool_call_id="call_ask")}
    yield {2: DeltaToolCall(name="refund", json_args='{"order": "A-17"}', tool_call_id="call_refund")}


async def play_researcher(messages: list[ModelMessage], info: AgentInfo) -> AsyncIterator[Any]:
    for word in ("Ada ", "ordered ", "it."):
        yield word


researcher = Agent(
    FunctionModel(stream_function=play_researcher),
    name="Researcher",
    capabilities=[adapters.watch_pydantic_ai()],  # turnlog: shows the sub-agent while it works
)
clerk = Agent(FunctionModel(stream_function=play_clerk), name="Clerk")


@clerk.tool_plain
async def ask_researcher(question: str) -> str:
    """Ask the researcher."""
    return (await researcher.run(question)).output


@clerk.tool_plain(requires_approval=True)
def refund(order: str) -> str:
    """Refund an order."""
    return f"refunded {order}"


app = App("shop", adapters.pydantic_ai(clerk))  # turnlog
