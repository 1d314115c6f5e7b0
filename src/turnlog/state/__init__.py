"""Events to state: folds, pure and the same for live events, replay, the command line and a rebuild."""

from turnlog.state.fold import Reducer, Reducers, fold
from turnlog.state.history import Message
from turnlog.state.rules import Rule

__all__ = ["Message", "Reducer", "Reducers", "Rule", "fold"]
