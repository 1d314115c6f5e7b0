/**
 * The text of an event for a model or a transcript, and the channel that sees it.
 *
 * An action without words becomes a sentence, as the model reads it (docs/protocol.md, section 9.3). Types that are
 * not the package's own count only if `isDeclared` says that the application declares them. Values are written as
 * JavaScript writes JSON: 1 where the log has 1.0, keys that are whole numbers first.
 */

import { TYPES } from "../event-types.js";
import type { Envelope, UiAction, UiMessage } from "../events.js";

/** Whether an event type is the application's own. */
export type IsDeclared = (type: string) => boolean;

/** Any event, also of an application. */
export type AnyEvent = Envelope<string, unknown>;

/** Return the text of a message, or a sentence about an action or an application's event. */
export function eventText({ type, payload }: Pick<AnyEvent, "type" | "payload">): string {
  if (type === "ui.message") return (payload as UiMessage).text;
  if (type === "ui.action") return actionText(payload as UiAction);
  return userActed({ type: type.slice(type.lastIndexOf(".") + 1), data: payload });
}

export const actionText = ({ action, view_id }: Pick<UiAction, "action" | "view_id">): string =>
  userActed({ action, view_id: view_id ?? null });

const userActed = (fields: object): string => `[The user acted: ${JSON.stringify(fields)}]`;

/** The default of `isDeclared`: the application has no types. */
export const noTypes: IsDeclared = () => false;

/** Whether an event is of a declared type and was posted by a page. */
export const isPageEvent = (event: AnyEvent, declared: IsDeclared): boolean =>
  event.origin === "ui" && !TYPES.has(event.type) && declared(event.type);

/** Return the role whose members see an event; null is all. Older events have it in their payload. */
export const visibleChannel = (event: AnyEvent): string | null =>
  event.channel ?? (CHANNEL_PAYLOADS.has(event.type) ? (event.payload as UiMessage).channel : null) ?? null;

// only in these payloads `channel` is the channel of the event
const CHANNEL_PAYLOADS = new Set(["ui.message", "assistant.message"]);
