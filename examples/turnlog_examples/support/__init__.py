"""Support: an agent that you bring along, in a process of its own. The server has its sessions, not its code.

    export TURNLOG_TOKEN=...                                each by itself
    turnlog serve turnlog_examples.support:app --tokens tokens.json
    python -m turnlog_examples.support.worker

Then say "Where is order 17?", "Refund order 17", "Refund order 99". The agent is a loop of its own, without a
framework; with one, `adapters.pydantic_ai(...)` or `adapters.langgraph(...)` takes its place. A refund needs
a person's yes, which may come when the process has been started again.
"""

from turnlog_examples.support.team import TRIES, make_app

__all__ = ["TRIES", "app", "make_app"]

app = make_app()
