"""Agents: a small runtime whose every move is in the log."""

from turnlog.agents.agent import Agent
from turnlog.agents.models import Model, Scripted, ToolUse
from turnlog.agents.tools import Tool, tool
from turnlog.parse.reply import Reply

__all__ = ["Agent", "Model", "Reply", "Scripted", "Tool", "ToolUse", "tool"]
