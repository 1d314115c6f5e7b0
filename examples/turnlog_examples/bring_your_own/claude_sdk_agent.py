"""An agent of the Claude Agent SDK with a sub-agent and an approval, served by Turnlog.

The lines with `# turnlog` are all that an existing agent needs. Then, in this folder:

    turnlog serve claude_sdk_agent:app

The program is offline: a script in place of Claude Code. Without `cli_path` the SDK starts the real one.
"""

from pathlib import Path
from typing import Any

from claude_agent_sdk import AgentDefinition, ClaudeAgentOptions, create_sdk_mcp_server, tool

from turnlog import App, adapters  # turnlog


@tool("refund", "Refund an order.", {"order": str})
async def refund(args: dict[str, Any]) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": f"refunded {args['order']}"}]}


options = ClaudeAgentOptions(
    system_prompt="You are a clerk.",
    agents={"Researcher": AgentDefinition(description="Knows all orders.", prompt="You look orders up.")},
    mcp_servers={"shop": create_sdk_mcp_server("shop", tools=[refund])},
    cli_path=Path(__file__).parent / "offline" / "claude.py",
)

app = App("shop", adapters.claude_sdk(options, name="Clerk"))  # turnlog
