"""Models: a model reads a conversation and streams a reply.

`make_model` resolves a string: `anthropic:<model>` calls the real API, `scripted:<path>` plays a JSON script
offline.
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
    """Return the model of a string like `anthropic:claude-sonnet-4-5` or `scripted:demo.json`.

    A model is returned as it is. Raise `CallerError` for any other value.
    """
    if isinstance(spec, str):
        provider, _, model_name = spec.partition(":")
        factory = PROVIDERS.get(provider)
        if factory is not None and model_name.strip():
            return factory(model_name.strip())
    elif hasattr(spec, "stream"):
        return spec
    known = " or ".join(f"{name}:..." for name in PROVIDERS)
    raise CallerError(f"expected a model like {known}, not {quote(spec)}")
