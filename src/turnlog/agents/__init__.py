"""Agents: a small runtime that records everything it does in the log."""

from turnlog.agents.agent import Agent
from turnlog.agents.claude.claude_code import ClaudeCode
from turnlog.agents.models import (
    AnthropicModel,
    Cite,
    Emit,
    EndMessage,
    Fail,
    Files,
    Model,
    ModelError,
    ProviderCall,
    Request,
    Script,
    Scripted,
    ScriptPart,
    ScriptResult,
    ScriptTurn,
    Thinking,
    ToolSpec,
    ToolUse,
    UsageReport,
)
from turnlog.agents.retry import RetryPolicy
from turnlog.agents.run import all_ended
from turnlog.agents.tag_instructions import instructions_with_tags
from turnlog.agents.tool_context import ToolContext, ToolError, WaitForInput
from turnlog.agents.tools import ImageContent, Tool, tool
from turnlog.parse.reply import ReplyBuilder, tag_parser_factory

__all__ = [
    "Agent",
    "AnthropicModel",
    "Cite",
    "ClaudeCode",
    "Emit",
    "EndMessage",
    "Fail",
    "Files",
    "ImageContent",
    "Model",
    "ModelError",
    "ProviderCall",
    "ReplyBuilder",
    "Request",
    "RetryPolicy",
    "Script",
    "ScriptPart",
    "ScriptResult",
    "ScriptTurn",
    "Scripted",
    "Thinking",
    "Tool",
    "ToolContext",
    "ToolError",
    "ToolSpec",
    "ToolUse",
    "UsageReport",
    "WaitForInput",
    "all_ended",
    "instructions_with_tags",
    "tag_parser_factory",
    "tool",
]
