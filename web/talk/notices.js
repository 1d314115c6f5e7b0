/** Draws what stands between a person and the conversation: no connection, no access. */

import { html } from "lit";

import { NotFound, NotSignedIn, OtherPrincipal } from "../client/api/errors.js";

// keyed by class: the build shortens the names of classes
const REFUSALS = new Map([
  [NotSignedIn, "signedOut"],
  [NotFound, "noAccess"],
  [OtherPrincipal, "otherPerson"],
]);

/** Say that the server refused, and what to do. */
export function drawRefusal({ error, texts }) {
  const name = [...REFUSALS].find(([Kind]) => error instanceof Kind)?.[1] ?? "refused";
  return html`<div class="blank refusal" role="alert"><p>${texts[name]}</p></div>`;
}

/** Say that there is no connection, with a button to try at once. */
export const drawTrouble = (talk, words) => html`<div class="offline" role="status">
  <span>${words}</span>
  <button type="button" @click=${() => talk.tryNow()}>${talk.texts.tryNow}</button>
</div>`;
