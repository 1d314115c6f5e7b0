/** Draws `<tl-json>`, whose script is loaded when the first one is drawn: most values are folded. */

import { html } from "lit";

export function drawJson(value) {
  import("./json-tree.js");
  return html`<tl-json .value=${value}></tl-json>`;
}
