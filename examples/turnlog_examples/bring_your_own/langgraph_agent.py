"""An agent of LangGraph (`create_agent`) with a sub-agent and an approval, served by Turnlog.

The lines with `# turnlog` are all that an existing agent needs. Then, in this folder:

    turnlog serve langgraph_agent:app

The models are offline: a chat model that plays a script in place of a provider.
"""

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.language_models.chat_models import BaseChatModel
from langchain_core.messages import AIMessageChunk, BaseMessage, HumanMessage, ToolCallChunk, ToolMessage
from langchain_core.outputs import ChatGenerationChunk, ChatResult
from langchain_core.tools import tool

from turnlog import App, adapters  # turnlog


class Script(BaseChatModel):
    """A model that says some words, calls some tools, and then says its last words."""

    words: tuple[str, ...]
    calls: tuple[tuple[str, str], ...] = ()
    last_words: tuple[str, ...] = ()

    @property
    def _llm_type(self) -> str:
        return "script"

    def bind_tools(self, tools: Any, **options: Any) -> Any:
        return self

    def _generate(self, messages: list[BaseMessage], *args: Any, **options: Any) -> ChatResult:
        raise NotImplementedError

    async def _astream(
        self, messages: list[BaseMessage], *args: Any, **options: Any
    ) -> AsyncIterator[ChatGenerationChunk]:
        message_id = f"msg_{uuid4()}"
        is_last = isinstance(messages[-1], ToolMessage)
        for word in self.last_words if is_last else self.words:
            yield ChatGenerationChunk(message=AIMessageChunk(content=word, id=message_id))
        pieces = [
            ToolCallChunk(name=name, args=args_text, id=f"call_{name}", index=index)
            for index, (name, args_text) in enumerate(() if is_last else self.calls)
        ]
        last = AIMessageChunk(content="", id=message_id, tool_call_chunks=pieces, chunk_position="last")
        yield ChatGenerationChunk(message=last)


researcher = create_agent(Script(words=("Ada ", "ordered ", "it.")), name="Researcher")


@tool
async def ask_researcher(question: str) -> str:
    """Ask the researcher."""
    answer = await researcher.ainvoke({"messages": [HumanMessage(question)]})
    return str(answer["messages"][-1].text)


@tool
def refund(order: str) -> str:
    """Refund an order."""
    return f"refunded {order}"


clerk = create_agent(
    Script(
        words=("Let me look. ",),
        calls=(("ask_researcher", '{"question": "Who ordered?"}'), ("refund", '{"order": "A-17"}')),
        last_words=("The order is handled.",),
    ),
    [ask_researcher, refund],
    middleware=[HumanInTheLoopMiddleware(interrupt_on={"refund": True})],
    name="Clerk",
)

app = App("shop", adapters.langgraph(clerk))  # turnlog
