"""The example `broker` for the tests over sockets: as it is, slow, and with a model that repeats words."""

from turnlog.agents import Scripted
from turnlog.state.history import Message
from turnlog_examples.broker import make_app

app = make_app()
slow = make_app(pace_s=0.03)


def echoed(messages: list[Message]) -> list[str]:
    """A model that says what it is told, tags and all: a test writes down what it says."""
    return [messages[-1].content[-1]["text"]]


echo = make_app(model=Scripted(echoed))
