/** A link to an event: its address in the console, so that it can be opened in another tab too. */

import { html } from "lit";

import { addressOf, goToEvent, currentRoute, onPlainClick } from "./router.js";

export function toEvent(seq, words) {
  const open = onPlainClick(() => goToEvent(seq));
  return html`<a href=${addressOf({ ...currentRoute(), panel: "events", seq })} data-seq=${seq} @click=${open}>${words}</a>`;
}
