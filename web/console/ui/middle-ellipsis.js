/**
 * A name that is cut in its middle when it is too wide, since names of models differ at their ends. Both parts read as
 * one word.
 */

import { html } from "lit";

const TAIL_CHARS = 12;

export function middleEllipsis(name) {
  const at = Math.max(0, name.length - TAIL_CHARS);
  return html`<span class="middle" title=${name}><span>${name.slice(0, at)}</span><span>${name.slice(at)}</span></span>`;
}
