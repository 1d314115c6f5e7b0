/**
 * A name in a place that may be too narrow for it: the cut is in its middle, since names of models differ at their
 * ends. The two parts read as one word.
 */

import { html } from "lit";

const TAIL_CHARS = 12;

export function middleEllipsis(name) {
  const at = Math.max(0, name.length - TAIL_CHARS);
  return html`<span class="middle" title=${name}><span>${name.slice(0, at)}</span><span>${name.slice(at)}</span></span>`;
}
