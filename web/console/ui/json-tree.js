/**
 * `<tl-json>`: a value as a JSON tree. Folded parts are not in the page; long texts and lists show their beginning,
 * the rest on demand. A text that is the whole value is shown as it is. Everything is text: nothing in a value becomes
 * markup.
 */

import { html, nothing } from "lit";

import { isContainer } from "../store/labels.js";
import { ConsoleElement } from "./base-element.js";
import "./json-tree.css";

const MAX_TEXT_CHARS = 2000;
const PAGE_ITEMS = 100;
const MAX_OPEN_ITEMS = 12; // a container of so many items is open, down to
const MAX_OPEN_DEPTH = 4; // this depth

export class JsonTree extends ConsoleElement {
  static properties = {
    value: { attribute: false },
    name: { attribute: false },
    depth: { attribute: false },
    open: { state: true },
    items: { state: true },
    whole: { state: true },
  };

  constructor() {
    super();
    Object.assign(this, { value: null, name: null, depth: 0, open: true, items: PAGE_ITEMS, whole: false });
  }

  willUpdate(changed) {
    if (!changed.has("value")) return;
    const small = isContainer(this.value) && Object.keys(this.value).length <= MAX_OPEN_ITEMS;
    Object.assign(this, {
      open: this.depth < 2 || (small && this.depth < MAX_OPEN_DEPTH),
      items: PAGE_ITEMS,
      whole: false,
    });
  }

  render() {
    const key = this.name === null ? nothing : html`<span class="key">${this.name}</span>: `;
    if (isContainer(this.value)) return this.#box(key);
    if (typeof this.value === "string" && this.depth === 0) return this.#text();
    return html`<div>${key}${this.#leaf()}</div>`;
  }

  #text() {
    const isCut = !this.whole && this.value.length > MAX_TEXT_CHARS;
    return html`<pre tabindex="0">${isCut ? `${this.value.slice(0, MAX_TEXT_CHARS)}…` : this.value}</pre>
      ${isCut ? html`<button class="plain" @click=${() => (this.whole = true)}>Show all</button>` : nothing}`;
  }

  #leaf() {
    const { value, whole } = this;
    if (typeof value !== "string") return html`<span class="scalar">${String(value)}</span>`;
    if (whole || value.length <= MAX_TEXT_CHARS) return html`<span class="string">${JSON.stringify(value)}</span>`;
    const more = () => (this.whole = true);
    return html`<span class="string">${JSON.stringify(value.slice(0, MAX_TEXT_CHARS))}</span>
      <button class="plain" @click=${more}>Show all ${value.length} characters</button>`;
  }

  #box(key) {
    const keys = Object.keys(this.value);
    const [left, right] = Array.isArray(this.value) ? "[]" : "{}";
    if (keys.length === 0) return html`<div>${key}${left}${right}</div>`;
    return html`<details ?open=${this.open} @toggle=${this.#toggled}>
      <summary>${key}${left}${this.open ? nothing : html`<span class="much">${keys.length}</span>${right}`}</summary>
      ${this.open ? this.#inside(keys) : nothing}
    </details>${this.open ? html`<div>${right}</div>` : nothing}`;
  }

  #toggled(event) {
    this.open = event.currentTarget.open;
  }

  #inside(keys) {
    const left = keys.length - this.items;
    const more = () => (this.items += 10 * PAGE_ITEMS);
    return html`${keys.slice(0, this.items).map(
      (key) => html`<tl-json .name=${key} .value=${this.value[key]}
      .depth=${this.depth + 1}></tl-json>`,
    )}
      ${left > 0 ? html`<button class="plain" @click=${more}>Show more of ${left} others</button>` : nothing}`;
  }
}

customElements.define("tl-json", JsonTree);
