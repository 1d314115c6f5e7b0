"""The pipeline: agents that call agents that call agents, and one that takes over at the end.

turnlog chat turnlog_examples.pipeline:app "honey and the Moon"          what the top of the tree says
turnlog chat turnlog_examples.pipeline:app "honey and the Moon" --all    every level, as it happens
turnlog serve turnlog_examples.pipeline:app                              the same team behind a server
"""

from turnlog_examples.pipeline.team import make_app, make_team

__all__ = ["app", "make_app", "make_team"]

app = make_app(pace_s=0.05)
