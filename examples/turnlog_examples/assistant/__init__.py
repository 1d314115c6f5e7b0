"""The assistant: one turn with everything that a stream of blocks can say.

Thinking, text with sources, tools of the provider, tools of our own at once and with pictures, one that
fails, an agent whose model fails, a reply that breaks off and is taken back, a question to the page, a file,
and what it all cost.

    turnlog serve turnlog_examples.assistant:app             then name a place: Oslo, Göreme, Bristol
    turnlog serve turnlog_examples.assistant.live:app        the same with a real model and your API key
    turnlog chat turnlog_examples.assistant:app "Can we fly from Göreme?" --all
"""

from turnlog_examples.assistant.team import make_agent, make_app, searching

__all__ = ["app", "make_agent", "make_app", "searching"]

app = make_app(pace_s=0.05)
