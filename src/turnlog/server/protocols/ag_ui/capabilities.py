"""What an application can do, as AgentCapabilities of AG-UI."""

from typing import Any

from turnlog import __version__
from turnlog.app import App


def describe_capabilities(app: App, *, shows_internals: bool) -> dict[str, Any]:
    """Describe an application. Its tools and agents are internals (protocol section 8.9)."""
    capabilities: dict[str, Any] = {
        "identity": {"name": app.title, "type": "turnlog", "version": __version__},
        "transport": {"streaming": True, "websocket": False, "httpBinary": False, "resumable": True},
        "tools": {"supported": True, "parallelCalls": True, "clientProvided": app.runtime.takes_client_tools},
        "state": {"snapshots": bool(app.reducers), "deltas": bool(app.reducers), "persistentState": True},
        "reasoning": {"supported": True, "streaming": True, "encrypted": True},
        "multimodal": {"input": {"image": True, "pdf": True, "audio": False, "video": False}},
        "humanInTheLoop": {"supported": True, "approvals": True, "interrupts": True},
    }
    if app.has_agents and shows_internals:
        root = app.agent
        items = [
            {"name": tool.name, "description": tool.description, "parameters": tool.schema}
            for tool in root.tools
        ]
        capabilities["tools"]["items"] = items
        others = [agent for agent in root.iter_team() if agent is not root]
        subagents = [{"name": agent.name, "description": agent.description} for agent in others]
        capabilities["multiAgent"] = {
            "supported": bool(others),
            "delegation": bool(root.agents),
            "handoffs": bool(root.handoffs),
            "subagents": subagents,
        }
    return capabilities
