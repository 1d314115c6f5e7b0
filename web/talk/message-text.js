/**
 * `<tl-talk-text>`: a text in markdown, while it streams and afterwards. This module is the largest chunk: a page loads
 * it with the first text. Drawing takes at most a quarter of the time, so that a long table does not block the page.
 */

import { html, nothing } from "lit";

import { MarkdownView } from "../console/markdown/render.js";
import { allowedLink, linkHost } from "../console/markdown/url-policy.js";
import { ConsoleElement } from "../console/ui/base-element.js";
import "./prose.css";

const REST_FACTOR = 3; // times as long as drawing took
const FRAME_MS = 16; // a shorter rest is over when the next frame comes

export class TalkText extends ConsoleElement {
  static properties = { talk: { attribute: false }, part: { attribute: false }, texts: { attribute: false } };
  #markdown = null;
  #isDone = true;
  #nextDrawMs = 0;

  async scheduleUpdate() {
    const wait = this.#nextDrawMs - performance.now();
    const isEarly = wait > FRAME_MS && this.part?.state === "streaming";
    if (isEarly || !this.#isDone) await new Promise((resolve) => setTimeout(resolve, isEarly ? wait : 0));
    const began = performance.now();
    super.scheduleUpdate();
    const now = performance.now();
    this.#nextDrawMs = now + REST_FACTOR * (now - began);
  }

  updated() {
    const { text, state } = this.part;
    const imageAddress = (address) => this.talk.imageAddress(address);
    this.#markdown ??= new MarkdownView(this.querySelector(".prose"), this.texts, imageAddress);
    this.#isDone = this.#markdown.update(text, { open: state === "streaming" });
    if (!this.#isDone) this.requestUpdate();
  }

  render() {
    const { citations } = this.part;
    return html`<div class="prose" dir="auto"></div>
      ${citations.length > 0 ? html`<ol class="sources" aria-label=${this.texts.sources}>${citations.map((one) => this.#drawSource(one))}</ol>` : nothing}`;
  }

  #drawSource({ title, document_title, source, url, cited_text }) {
    const link = allowedLink(url ?? source);
    const name = title ?? document_title ?? (link === null ? (url ?? source) : null) ?? this.texts.source;
    const anchor =
      link === null
        ? nothing
        : html` <a href=${link} target="_blank" rel="noopener noreferrer nofollow">${linkHost(link)}</a>`;
    return html`<li>${name}${anchor}${cited_text ? html`<q>${cited_text}</q>` : nothing}</li>`;
  }
}

customElements.define("tl-talk-text", TalkText);
