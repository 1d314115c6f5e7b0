"""Models: something that reads a conversation and streams a reply.

`make_model` turns a name into one: `anthropic:<model>` asks the real API, `scripted:<path>` plays a JSON
script offline. What is a model already is taken as it is.
"""

from collections.abc import Callable

from turnlog.agents.models.anthropic import AnthropicModel
from turnlog.agents.models.model import Model, ModelError, ReadBlob, Request, ToolSpec
from turnlog.agents.models.script import load_script
from turnlog.agents.models.script_turn import ScriptResult, ScriptTurn
from turnlog.agents.models.scripted import (
    Cite,
    Emit,
    EndMessage,
    Fail,
    Files,
    ProviderCall,
    Script,
    Scripted,
    ScriptPart,
    Thinking,
    ToolUse,
    UsageReport,
)
from turnlog.errors import CallerError, quote

__all__ = [
    "AnthropicModel",
    "Cite",
    "Emit",
    "EndMessage",
    "Fail",
    "Files",
    "Model",
    "ModelError",
    "ProviderCall",
    "ReadBlob",
    "Request",
    "Script",
    "ScriptPart",
    "ScriptResult",
    "ScriptTurn",
    "Scripted",
    "Thinking",
    "ToolSpec",
    "ToolUse",
    "UsageReport",
    "make_model",
]

PROVIDERS: dict[str, Callable[[str], Model]] = {"anthropic": AnthropicModel, "scripted": load_script}


def make_model(spec: str | Model) -> Model:
    """The model of a name like `anthropic:claude-sonnet-4-5` or `scripted:demo.json`."""
    if not isinstance(spec, str) and hasattr(spec, "stream"):
        return spec
    provider, _, rest = spec.partition(":") if isinstance(spec, str) else ("", "", "")
    make = PROVIDERS.get(provider)
    if make is None or not rest.strip():
        known = " or ".join(f"{name}:..." for name in PROVIDERS)
        raise CallerError(f"expected a model like {known}, not {quote(spec)}")
    return make(rest.strip())
