"""Agents: a small runtime that records everything it does in the log."""

from turnlog.agents.agent import Agent
from turnlog.agents.claude.claude_code import ClaudeCode
from turnlog.agents.models import AnthropicModel, Model, ModelError, Request, Scripted, ToolSpec, ToolUse
from turnlog.agents.retry import RetryPolicy
from turnlog.agents.run import all_ended
from turnlog.agents.tool_context import ToolContext, ToolError, WaitForInput
from turnlog.agents.tools import ImageContent, Tool, tool
from turnlog.parse.reply import ReplyBuilder

__all__ = [
    "Agent",
    "AnthropicModel",
    "ClaudeCode",
    "ImageContent",
    "Model",
    "ModelError",
    "ReplyBuilder",
    "Request",
    "RetryPolicy",
    "Scripted",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolSpec",
    "ToolUse",
    "WaitForInput",
    "all_ended",
    "tool",
]
