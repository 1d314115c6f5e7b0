/** `<tl-working>`: an open agent that has no output yet, with the seconds since its last one. */

import { html } from "lit";

import { ConsoleElement } from "../ui/base-element.js";

const TICK_MS = 1000;

export class ThinkingIndicator extends ConsoleElement {
  static properties = { session: { attribute: false }, name: { attribute: false }, since: { attribute: false } };
  #timer = null;

  connectedCallback() {
    super.connectedCallback();
    this.#timer = setInterval(() => document.hidden || this.requestUpdate(), TICK_MS);
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    clearInterval(this.#timer);
  }

  render() {
    const seconds = Math.floor(this.session.elapsed(this.since) / TICK_MS);
    return html`<p class="working"><span class="dots" aria-hidden="true"><i></i><i></i><i></i></span>
      ${this.name} is thinking <span class="seconds" aria-hidden="true" data-seconds="· ${seconds} s"></span></p>`;
  }
}

customElements.define("tl-working", ThinkingIndicator);
