"""Agents: a small runtime whose every move is in the log."""

from turnlog.agents.agent import Agent
from turnlog.agents.models import Model, ModelFault, Request, Scripted, ToolSpec, ToolUse
from turnlog.agents.tools import Tool, tool
from turnlog.parse.reply import Reply

__all__ = [
    "Agent",
    "Model",
    "ModelFault",
    "Reply",
    "Request",
    "Scripted",
    "Tool",
    "ToolSpec",
    "ToolUse",
    "tool",
]
