/** The button below a list that shows its end, or its beginning, with the rest on demand. */

import { html, nothing } from "lit";

import { formatCount } from "./format.js";

/** Draw the button; nothing if no item is hidden. */
export const drawShowEarlier = (hiddenCount, items, showMore) =>
  hiddenCount > 0
    ? html`<button @click=${showMore}>Show earlier ${items} (${formatCount(hiddenCount)})</button>`
    : nothing;
