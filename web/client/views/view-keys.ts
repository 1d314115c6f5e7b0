/** The kinds of views, and which view an action is about. A page needs it before it draws a view. Pure. */

import type { UiAction } from "../events.js";

/** The kind of a view with messages of A2UI v0.9. */
export const A2UI_KIND: string = "a2ui.v0.9";

/** The kind of a view that is a tree of nodes. */
export const NODES_KIND: string = "a2ui.v1";

/** Return the key of a view in `OpenViews.open`. A channel has no space in its name, so the key is unique. */
export const viewKey = (channel: string | null | undefined, viewId: string): string => `${channel ?? ""} ${viewId}`;

/**
 * Return the view of an action in a channel, or undefined. Several channels may show one `view_id`. First comes the
 * view that `shown` names, then the one in the action's channel, then the one in no channel, then the newest.
 */
export function findView<View extends { event_id: string; channel: string | null; view_id: string }>(
  views: Iterable<View>,
  { view_id, shown }: Pick<UiAction, "view_id" | "shown">,
  channel: string | null = null,
): View | undefined {
  const candidates = [...views].filter((view) => view.view_id === view_id);
  return (
    candidates.find(({ event_id }) => event_id === shown) ??
    candidates.find((view) => view.channel === channel) ??
    candidates.find((view) => view.channel === null) ??
    candidates.at(-1)
  );
}
