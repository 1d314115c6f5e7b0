"""The assistant and the tower it calls, and the application around them."""

from pathlib import Path

from turnlog import Agent, App
from turnlog.agents import AnthropicModel, Model, RetryPolicy, Scripted
from turnlog_examples.assistant.script import Unreliable, pilot, tower
from turnlog_examples.assistant.tools import LIMIT_KNOTS, camera, confirm, register, wind

GUIDE = Path(__file__).with_name("guide.md")
TRIES = tuple(f"Can we fly from {place}?" for place in ("Göreme", "Oslo", "Bristol"))
DEFAULT = RetryPolicy()
NAMES = ("scripted:claude-sonnet-4-5", "scripted:claude-haiku-4-5")  # whose prices are counted

SEARCH = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
THINKING = {"type": "enabled", "budget_tokens": 2048}


def searching(name: str) -> AnthropicModel:
    """A model of Anthropic's that thinks and searches the web."""
    return AnthropicModel(name, thinking=THINKING, provider_tools=(SEARCH,))


def make_agent(
    pace_s: float = 0.0, patience: RetryPolicy = DEFAULT, model: Model | str | None = None
) -> Agent:
    """The assistant. A pace makes the words come as from a model; a model of your own speaks for itself."""
    calling = Agent(
        "Tower",
        "You are the tower of the launch field that is named. Say in one line whether it is free.",
        model or Scripted(tower, pace_s, NAMES[1]),
        description="The tower of a launch field; the prompt is the name of the field.",
        retry=patience,
    )
    return Agent(
        "Assistant",
        "You brief balloon pilots. Search for the rules, then ask for wind, camera, register and tower of "
        f"the place in one step. Above {LIMIT_KNOTS} knots there is no flight. Else ask with `confirm` if "
        "you should write the flight plan, and write it.",
        model or Scripted(Unreliable(pilot), pace_s, NAMES[0]),
        tools=(wind, camera, register, confirm),
        agents=(calling,),
        retry=patience,
    )


def make_app(pace_s: float = 0.0, patience: RetryPolicy = DEFAULT, model: Model | str | None = None) -> App:
    """The assistant behind a server: `turnlog serve turnlog_examples.assistant:app`."""
    agent = make_agent(pace_s, patience, model)
    return App("assistant", agent, title="Balloon briefing", guide=GUIDE, suggestions=TRIES)
