"""Events to state: folds, pure and the same for live events, replay, the command line and a rebuild."""

from turnlog.state.descriptions import describe_app_event, is_app_event_for_model
from turnlog.state.fold import Item, Reducer, Reducers, fold
from turnlog.state.history import Message
from turnlog.state.rules import Rule

__all__ = [
    "Item",
    "Message",
    "Reducer",
    "Reducers",
    "Rule",
    "describe_app_event",
    "fold",
    "is_app_event_for_model",
]
