/**
 * `<tl-text>`: what somebody said, in markdown, while it is written and afterwards, with its sources.
 *
 * What takes long to draw is drawn less often: drawing has at most a quarter of the time, so that a huge table
 * that grows by a word does not stop the page.
 */

import { html, nothing } from "lit";

import { Element } from "../ui/base-element.js";
import { linkOf, placeOf } from "../markdown/url-policy.js";
import { Prose } from "../markdown/render.js";
import { CUTS } from "../store/labels.js";

const REST = 3; // times as long as drawing took
const FRAME_MS = 16; // a rest that is shorter has passed when the next frame comes
const LAYOUT_MS = 1 / 250; // for each character: what the browser needs after us grows with the text

export class Text extends Element {
  static properties = { entry: { attribute: false }, version: { attribute: false } };
  #prose = null;
  #isDone = true;
  #rested = 0;

  async scheduleUpdate() {
    const wait = this.#rested - performance.now();
    const isEarly = wait > FRAME_MS && this.entry.open; // what is upgraded has its entry after the first update
    if (isEarly || !this.#isDone) await new Promise((resolve) => setTimeout(resolve, isEarly ? wait : 0));
    const began = performance.now();
    super.scheduleUpdate();
    const now = performance.now();
    this.#rested = now + REST * (now - began) + LAYOUT_MS * this.entry.text.length;
  }

  updated() {
    const element = this.querySelector(".prose");
    this.#prose ??= new Prose(element);
    this.#isDone = this.#prose.update(this.entry.text, { open: this.entry.open });
    if (!this.#isDone) this.requestUpdate();
  }

  render() {
    const { citations, aborted, cut } = this.entry;
    const why = aborted ? (CUTS[cut] ?? null) : null;
    return html`<div class="prose"></div>
      ${why ? html`<p class="note"><span class="chip">${why}</span></p>` : nothing}
      ${citations.length ? html`<ol class="sources" aria-label="Sources">${citations.map(source)}</ol>` : nothing}`;
  }
}

/** One source: what it is called, where it is, and the words. */
function source({ title, document_title, source, url, cited_text }) {
  const link = linkOf(url ?? source);
  const name = title ?? document_title ?? (link === null ? (url ?? source) : null) ?? "Source";
  return html`<li>${name}${
    link === null
      ? nothing
      : html` <a href=${link} target="_blank"
    rel="noopener noreferrer nofollow">${placeOf(link)}</a>`
  }${cited_text ? html`<q>${cited_text}</q>` : nothing}</li>`;
}

customElements.define("tl-text", Text);
