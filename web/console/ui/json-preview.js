/** `<tl-value>`: a value as text or indented JSON; of a long one the beginning, the rest on demand. */

import { html, nothing } from "lit";

import { ConsoleElement } from "./base-element.js";

const MAX_CHARS = 2000;

export class JsonPreview extends ConsoleElement {
  static properties = { name: { attribute: false }, value: { attribute: false }, whole: { state: true } };

  constructor() {
    super();
    this.whole = false;
  }

  render() {
    const text = typeof this.value === "string" ? this.value : JSON.stringify(this.value, null, 2);
    const isCut = !this.whole && text.length > MAX_CHARS;
    return html`<p class="label">${this.name}</p>
      <pre class="plain" tabindex="0">${isCut ? `${text.slice(0, MAX_CHARS)}…` : text}</pre>
      ${isCut ? html`<button @click=${() => (this.whole = true)}>Show all</button>` : nothing}`;
  }
}

customElements.define("tl-value", JsonPreview);
