"""The assistant with a real model, which thinks and searches the web; the SDK takes ANTHROPIC_API_KEY."""

from turnlog.agents.models import AnthropicModel
from turnlog_examples.assistant.team import make_app

SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
THINKING = {"type": "enabled", "budget_tokens": 2048}

app = make_app(model=AnthropicModel("claude-sonnet-4-5", thinking=THINKING, provider_tools=(SEARCH,)))
