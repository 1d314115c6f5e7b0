"""Weights: a message, a form to confirm it, and an executor with a table in another process.

    python -m turnlog_examples.weights                      server and executor together, to try it out

    export TURNLOG_TOKEN=...                                or each by itself, with one token
    turnlog serve turnlog_examples.weights:app
    python -m turnlog_examples.weights.executor

Then say "Weigh-in 187.6 today", "85 kg yesterday, after breakfast", "show my weights", "history".
The agent never writes: it asks the executor, which judges what may be saved, saves it once, and keeps an
audit. The page never decides: what a user does on a view goes to the agent. Deleting needs a person's yes.
"""

from turnlog_examples.weights.team import make_agent, make_app

__all__ = ["app", "make_agent", "make_app"]

app = make_app(pace_s=0.05)
