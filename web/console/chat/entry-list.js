/**
 * `<tl-flow>`: the entries of a thread, of the session or of one agent inside a call.
 *
 * It shows the last 30 to 44 entries and moves in steps of 15, so that the page does not grow with the session.
 * Entries that a person asked for (`showEarlier`, `reveal`) stay until `attached` is set again.
 */

import { html, nothing, render } from "lit";

import { ConsoleElement } from "../ui/base-element.js";
import { drawEventChips, speakerName } from "./entry-element.js";
import "./thinking-indicator.js";

const MIN_SHOWN = 30;
const STEP = 15;

/** Return the index of the first entry that is shown of `count`. */
const firstShownIndex = (count) => Math.max(0, Math.floor((count - MIN_SHOWN) / STEP) * STEP);

export class EntryListElement extends ConsoleElement {
  static properties = {
    session: { attribute: false },
    thread: { attribute: false },
    version: { attribute: false },
    attached: { attribute: false },
    who: { attribute: false },
  };
  #start = 0;
  #isReadingEarlier = false; // the person has opened earlier entries
  #elements = new Map(); // the first entry of an item -> its element

  constructor() {
    super();
    Object.assign(this, { attached: true, who: null });
  }

  willUpdate(changed) {
    if (changed.has("thread") || (changed.has("attached") && this.attached)) this.#isReadingEarlier = false;
    const start = firstShownIndex(this.thread.entries.length);
    this.#start = this.attached && !this.#isReadingEarlier ? start : Math.min(this.#start, start);
  }

  get hasEarlier() {
    return this.#start > 0;
  }

  async showAll() {
    await this.#showFrom(0);
  }

  async showEarlier() {
    await this.#showFrom(this.#start - STEP);
  }

  /** Draw an entry of this thread if it is not drawn, and return its element. */
  async reveal(entry) {
    const at = this.thread.entries.indexOf(entry);
    if (at < this.#start) await this.#showFrom(at - STEP);
    await this.updateComplete;
    return this.#findChip(entry) ?? this.querySelector(`:scope > .entries > [data-at="${entry.seq}"]`);
  }

  #findChip({ seq }) {
    return this.querySelector(`:scope > .entries > div > .events > [data-seq="${seq}"]`);
  }

  #showFrom(start) {
    this.#isReadingEarlier = true;
    this.#start = Math.max(0, start);
    this.requestUpdate();
    return this.updateComplete;
  }

  render() {
    return html`
      ${this.hasEarlier ? html`<button class="earlier" @click=${() => this.showEarlier()}>Show earlier</button>` : nothing}
      <div class="entries"></div>
      ${this.session.log.conversation.thinkingAgents(this.thread).map(
        ({ name, since }) => html`
        <tl-working .session=${this.session} .name=${name} .since=${since}></tl-working>`,
      )}`;
  }

  /** Reuse the element of each entry, so that what the person unfolded in it stays open. */
  updated() {
    const holder = this.querySelector(":scope > .entries");
    const items = this.#items();
    const firstEntries = new Set(items.map(({ entries: [first] }) => first));
    for (const [first, element] of this.#elements) if (!firstEntries.has(first)) element.remove();
    const before = this.#elements;
    this.#elements = new Map();
    let next = holder.firstElementChild;
    for (const item of items) {
      const element = this.#drawItem(item, before.get(item.entries[0]));
      if (element === next) next = next.nextElementSibling;
      else holder.insertBefore(element, next);
      this.#elements.set(item.entries[0], element);
    }
  }

  /** Return the items to draw: one per entry, with `named` where the speaker changes; adjacent events are one item. */
  #items() {
    const items = [];
    let { who } = this;
    for (const entry of this.thread.entries.slice(this.#start)) {
      const last = items.at(-1)?.entries;
      if (entry.kind === "event" && last?.[0].kind === "event") {
        last.push(entry);
        continue;
      }
      const name = speakerName(entry);
      items.push({ entries: [entry], named: name !== null && name !== who });
      who = entry.kind === "message" ? null : (name ?? who);
    }
    return items;
  }

  #drawItem({ entries, named }, known) {
    const [entry] = entries;
    const isEvent = entry.kind === "event";
    const element = known ?? document.createElement(isEvent ? "div" : "tl-entry");
    if (isEvent) render(drawEventChips(entries), element);
    else Object.assign(element, { session: this.session, entry, version: entry.version, named });
    element.dataset.at = entry.seq;
    return element;
  }
}

customElements.define("tl-flow", EntryListElement);
