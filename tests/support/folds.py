"""Folds over a whole log, for tests."""

from collections.abc import Iterable
from typing import TypeVar

from turnlog.state.derived_documents import DerivedDocument
from turnlog.state.fold import Fold, Item
from turnlog.state.history import Conversation, History, Message
from turnlog.team.documents import Documents

F = TypeVar("F", bound=Fold)


def apply_events(target: F, items: Iterable[Item]) -> F:
    """Apply events to a fold and return it."""
    for envelope, payload in items:
        target.apply(envelope, payload)
    return target


def fold_documents(items: Iterable[Item]) -> dict[str, DerivedDocument]:
    """Return the documents of a session by id, each as it was changed last."""
    documents = Documents()
    return {
        document.id: document
        for envelope, payload in items
        for document in documents.apply(envelope, payload)
    }


def root_messages(history: History) -> list[Message]:
    """Return the messages outside of all channels."""
    return history.by_channel.get("", Conversation()).messages
