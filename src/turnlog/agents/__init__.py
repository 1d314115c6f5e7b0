"""Agents: a small runtime whose every move is in the log."""

from turnlog.agents.agent import Agent, Patience
from turnlog.agents.claude.claude_code import ClaudeCli
from turnlog.agents.models import AnthropicModel, Model, ModelFault, Request, Scripted, ToolSpec, ToolUse
from turnlog.agents.run import all_ended
from turnlog.agents.tool_context import Context, ToolFault, WaitForInput
from turnlog.agents.tools import Picture, Tool, tool
from turnlog.parse.reply import Reply

__all__ = [
    "Agent",
    "AnthropicModel",
    "ClaudeCli",
    "Context",
    "Model",
    "ModelFault",
    "Patience",
    "Picture",
    "Reply",
    "Request",
    "Scripted",
    "Tool",
    "ToolFault",
    "ToolSpec",
    "ToolUse",
    "WaitForInput",
    "all_ended",
    "tool",
]
