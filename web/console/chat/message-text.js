/**
 * `<tl-text>`: a text in markdown with its sources, while it streams and afterwards.
 *
 * Drawing takes at most a quarter of the time, so that a huge table that grows by a word does not block the page.
 */

import { html, nothing } from "lit";

import { MarkdownView } from "../markdown/render.js";
import { allowedLink, linkHost } from "../markdown/url-policy.js";
import { ABORT_LABELS } from "../store/labels.js";
import { ConsoleElement } from "../ui/base-element.js";

const REST_FACTOR = 3; // times as long as drawing took
const FRAME_MS = 16; // a shorter rest is over when the next frame comes
const LAYOUT_MS = 1 / 250; // per character: the browser's layout after the update

export class MessageText extends ConsoleElement {
  // not `part`, which every element has: an element that is not defined yet would lose it
  static properties = { textPart: { attribute: false } };
  #markdown = null;
  #isDone = true;
  #nextDrawMs = 0;

  async scheduleUpdate() {
    const wait = this.#nextDrawMs - performance.now();
    const isEarly = wait > FRAME_MS && this.textPart.state === "streaming"; // an upgraded element gets its part after the first update
    if (isEarly || !this.#isDone) await new Promise((resolve) => setTimeout(resolve, isEarly ? wait : 0));
    const began = performance.now();
    super.scheduleUpdate();
    const now = performance.now();
    this.#nextDrawMs = now + REST_FACTOR * (now - began) + LAYOUT_MS * this.textPart.text.length;
  }

  updated() {
    const element = this.querySelector(".prose");
    this.#markdown ??= new MarkdownView(element);
    this.#isDone = this.#markdown.update(this.textPart.text, { open: this.textPart.state === "streaming" });
    if (!this.#isDone) this.requestUpdate();
  }

  render() {
    const { citations, aborted } = this.textPart;
    const why = aborted === null ? null : ABORT_LABELS[aborted];
    return html`<div class="prose"></div>
      ${why ? html`<p class="note"><span class="chip">${why}</span></p>` : nothing}
      ${citations.length ? html`<ol class="sources" aria-label="Sources">${citations.map(drawSource)}</ol>` : nothing}`;
  }
}

function drawSource({ title, document_title, source, url, cited_text }) {
  const link = allowedLink(url ?? source);
  const name = title ?? document_title ?? (link === null ? (url ?? source) : null) ?? "Source";
  return html`<li>${name}${
    link === null
      ? nothing
      : html` <a href=${link} target="_blank"
    rel="noopener noreferrer nofollow">${linkHost(link)}</a>`
  }${cited_text ? html`<q>${cited_text}</q>` : nothing}</li>`;
}

customElements.define("tl-text", MessageText);
