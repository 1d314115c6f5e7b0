"""An agent of the OpenAI Agents SDK with a sub-agent and an approval, served by Turnlog.

The lines with `# turnlog` are all that an existing agent needs. Then, in this folder:

    turnlog serve openai_agents_agent:app

The models are offline: classes that play a script in place of a provider.
"""

from collections.abc import AsyncIterator
from typing import Any
from uuid import uuid4

from agents import Agent, Model, ModelResponse, function_tool
from openai.types.responses import (
    Response,
    ResponseCompletedEvent,
    ResponseFunctionToolCall,
    ResponseOutputMessage,
    ResponseOutputText,
    ResponseTextDeltaEvent,
)

from turnlog import App, adapters  # turnlog


class Script(Model):
    """A model that says some words, calls some tools, and then says its last words."""

    def __init__(
        self,
        words: tuple[str, ...],
        calls: tuple[tuple[str, str], ...] = (),
        last_words: tuple[str, ...] = (),
    ) -> None:
        self.words = words
        self.calls = calls
        self.last_words = last_words

    async def get_response(self, *args: Any, **options: Any) -> ModelResponse:
        raise NotImplementedError

    async def stream_response(
        self, system_instructions: Any, input: Any, *args: Any, **options: Any
    ) -> AsyncIterator[Any]:
        is_last = isinstance(input, list) and input[-1].get("type") == "function_call_output"
        words = self.last_words if is_last else self.words
        message_id = f"msg_{uuid4()}"
        for word in words:
            yield ResponseTextDeltaEvent(
                type="response.output_text.delta",
                delta=word,
                item_id=message_id,
                output_index=0,
                content_index=0,
                logprobs=[],
                sequence_number=0,
            )
        text = ResponseOutputText(type="output_text", text="".join(words), annotations=[])
        output: list[Any] = [
            ResponseOutputMessage(
                type="message", id=message_id, content=[text], role="assistant", status="completed"
            )
        ]
        for name, arguments in () if is_last else self.calls:
            output.append(
                ResponseFunctionToolCall(
                    type="function_call", call_id=f"call_{name}", name=name, arguments=arguments
                )
            )
        response = Response(
            id=f"resp_{uuid4()}",
            created_at=0,
            model="script",
            object="response",
            output=output,
            tool_choice="auto",
            tools=[],
            parallel_tool_calls=True,
        )
        yield ResponseCompletedEvent(type="response.completed", response=response, sequence_number=1)


@function_tool(needs_approval=True)
def refund(order: str) -> str:
    """Refund an order."""
    return f"refunded {order}"


researcher = Agent(name="Researcher", model=Script(words=("Ada ", "ordered ", "it.")))
ask_researcher = researcher.as_tool(
    "ask_researcher",
    "Ask the researcher.",
    on_stream=adapters.watch_openai_agents,  # turnlog: shows the sub-agent while it works
)
clerk = Agent(
    name="Clerk",
    model=Script(
        words=("Let me look. ",),
        calls=(("ask_researcher", '{"input": "Who ordered?"}'), ("refund", '{"order": "A-17"}')),
        last_words=("The order is handled.",),
    ),
    tools=[ask_researcher, refund],
)

app = App("shop", adapters.openai_agents(clerk))  # turnlog
