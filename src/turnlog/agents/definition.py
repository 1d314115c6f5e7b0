"""What is wrong with a definition is said where it is made: the event it would lead to is tried. Pure."""

from turnlog.errors import CallerError, InvalidEvent
from turnlog.events import CATALOG


def validate_definition(subject: str, type: str, **fields: object) -> None:
    """Refuse what no log would take later, when a turn is under way and nobody is there to be told."""
    try:
        CATALOG.build_event(type, fields, id="evt_tried", origin="system")
    except InvalidEvent as wrong:
        raise CallerError(f"{subject}: {wrong}") from None
