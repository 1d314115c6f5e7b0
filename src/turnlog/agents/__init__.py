"""Agents: a small runtime whose every move is in the log."""

from turnlog.agents.agent import Agent
from turnlog.agents.models import Model, Scripted, Text, ToolUse
from turnlog.agents.tools import Tool, tool

__all__ = ["Agent", "Model", "Scripted", "Text", "Tool", "ToolUse", "tool"]
