"""Models: something that reads a conversation and streams a reply."""

from turnlog.agents.models.model import Model, ModelFault, ReadBlob, Request, ToolSpec
from turnlog.agents.models.scripted import Scripted, ToolUse

__all__ = ["Model", "ModelFault", "ReadBlob", "Request", "Scripted", "ToolSpec", "ToolUse"]
