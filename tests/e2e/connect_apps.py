"""Applications for the tests of the Python client: a question, an approval, an input, and a recorded one."""

from collections.abc import Iterator

from turnlog import Agent, App, tool
from turnlog.agents import Scripted, ToolUse
from turnlog.state.history import Message


@tool(executor="frontend")
def pick(question: str) -> str:
    """Ask the page."""
    raise NotImplementedError


@tool(kind="write", approval=True)
def delete(path: str) -> str:
    """Delete a file."""
    return f"deleted {path}"


def decide(messages: list[Message]) -> Iterator[str | ToolUse]:
    """Call the tool that the message names, and say what it returned."""
    last = messages[-1].content[-1]
    if last["type"] == "tool_result":
        yield f"The tool said {last['content']}."
    elif last["text"] == "pick":
        yield ToolUse("pick", {"question": "Which?"})
    elif last["text"] == "delete":
        yield ToolUse("delete", {"path": "/a"})
    else:
        yield f"You said {last['text']}."


asking = App("asking", Agent("Asker", "Ask.", Scripted(decide), tools=(pick, delete)))
