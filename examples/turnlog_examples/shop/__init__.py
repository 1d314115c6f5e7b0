"""Bring your own agent: the one file `bring_your_own/ag_ui_agent.py`, as the demo shows it.

Its agent is a server of its own that speaks AG-UI, in another process. The application here is the last line
of that file, with a title and a guide.
"""

from turnlog_examples.shop.team import TRIES, make_app

__all__ = ["TRIES", "make_app"]
