"""Applications for documents 001 and 002: a team that reports usage, an agent that shows an empty view."""

from collections.abc import Iterator

from turnlog import Agent, App, View, tool
from turnlog.agents import Scripted, ScriptPart, ToolContext, ToolUse, UsageReport
from turnlog.events import Usage
from turnlog.state.history import Message


def make_agent(name: str, tokens: int, *calls: ToolUse, **more: tuple[Agent, ...]) -> Agent:
    """An agent that makes calls, then speaks; each of its completions reports this many tokens."""

    def script(messages: list[Message]) -> Iterator[ScriptPart]:
        yield UsageReport(Usage(input_tokens=10 * tokens, output_tokens=tokens))
        if calls and not any(part["type"] == "tool_result" for part in messages[-1].content):
            yield from calls
        else:
            yield f"{name} is done."

    return Agent(name, "", Scripted(script), **more)  # type: ignore[arg-type]


helper = make_agent("Helper", 1)
writer = make_agent("Writer", 100)
first = make_agent(
    "First",
    10,
    ToolUse("helper", {"prompt": "help"}),
    ToolUse("handoff_to_writer", {"prompt": "write"}),
    agents=(helper,),
    handoffs=(writer,),
)
metered = App("metered", first)


@tool
def show(context: ToolContext) -> str:
    """Show the view of the document."""
    context.show_view(View(kind="a2ui.v1", view_id="view_1", tree={}))
    return "shown"


def show_then_speak(messages: list[Message]) -> Iterator[ScriptPart]:
    shown = any(part["type"] == "tool_result" for part in messages[-1].content)
    yield "There it is." if shown else ToolUse("show")


viewing = App("viewing", Agent("Clerk", "", Scripted(show_then_speak), tools=(show,)))
