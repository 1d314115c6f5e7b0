/**
 * The text of an event for a model or a transcript, and the channel that sees it.
 *
 * An action without words becomes a sentence, as the model reads it (docs/protocol.md, section 9.3). Types that are
 * not the package's own count only if `isDeclared` says that the application declares them. Values are written as
 * JavaScript writes JSON: 1 where the log has 1.0, keys that are whole numbers first.
 */

import { TYPES } from "../event-types.js";

/** Return the text of a message, or a sentence about an action or an application's event. */
export function eventText({ type, payload }) {
  if (type === "ui.message") return payload.text;
  if (type === "ui.action") return userActed({ action: payload.action, view_id: payload.view_id ?? null });
  return userActed({ type: type.slice(type.lastIndexOf(".") + 1), data: payload });
}

const userActed = (fields) => `[The user acted: ${JSON.stringify(fields)}]`;

/** The default of `isDeclared`: the application has no types. */
export const noTypes = () => false;

/** Whether an event is of a declared type and was posted by a page. */
export const isPageEvent = (event, declared) => event.origin === "ui" && !TYPES.has(event.type) && declared(event.type);

/** Return the role whose members see an event; null is all. Older events have it in their payload. */
export const visibleChannel = (event) =>
  event.channel ?? (CHANNEL_PAYLOADS.has(event.type) ? event.payload.channel : null) ?? null;

// only in these payloads `channel` is the channel of the event
const CHANNEL_PAYLOADS = new Set(["ui.message", "assistant.message"]);
