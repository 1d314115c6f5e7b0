"""A surface of A2UI for clients that replace what they have with what comes."""

from typing import Any

from turnlog.events import View
from turnlog.events.a2ui import A2UI_KIND
from turnlog.state.a2ui_surfaces import snapshot_messages
from turnlog.state.view_actions import OpenViews


def surface_operations(views: OpenViews, channel: str | None, view: View) -> list[dict[str, Any]] | None:
    """Return messages that build a whole surface after the event of `view`, or that delete it.

    `views` has that event. Return None if the surface was created before the events of `views`, and for views
    of other kinds.
    """
    if view.kind != A2UI_KIND:
        return None
    open_view = views.open.get((channel, view.view_id))
    if open_view is not None and open_view.surface is not None:
        return snapshot_messages(open_view.surface)
    messages: list[dict[str, Any]] = view.tree.get("messages", [])
    is_end = not messages or "deleteSurface" in messages[-1]
    return messages if is_end else None
