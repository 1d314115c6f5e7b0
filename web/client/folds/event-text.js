/**
 * How an event is told, and to whom: shared by the transcript, the documents and what is open.
 *
 * What people do without words is told in words, as the model reads it (docs/protocol.md, section 9.3). A type
 * that is not the package's own is told only if `declared` says that the application has it. Values are
 * written as JavaScript writes them: 1 where the log has 1.0, keys that are whole numbers first.
 */

import { TYPES } from "../event-types.js";

/** A message as it is; an action, or an event of the application, told. */
export function eventText({ type, payload }) {
  if (type === "ui.message") return payload.text;
  if (type === "ui.action") return userActed({ action: payload.action, view_id: payload.view_id ?? null });
  return userActed({ type: type.slice(type.lastIndexOf(".") + 1), data: payload });
}

const userActed = (fields) => `[The user acted: ${JSON.stringify(fields)}]`;

/** No type is the application's. */
export const noTypes = () => false;

/** Whether a page sent an event of the application. */
export const isPageEvent = (event, declared) => event.origin === "ui" && !TYPES.has(event.type) && declared(event.type);

/** The role whose members alone see an event; null is everybody. Older events say it in their payload. */
export const visibleChannel = (event) =>
  event.channel ?? (CHANNEL_PAYLOADS.has(event.type) ? event.payload.channel : null) ?? null;

// only these payloads name the channel of their event; in others `channel` is a field like any other
const CHANNEL_PAYLOADS = new Set(["ui.message", "assistant.message"]);
