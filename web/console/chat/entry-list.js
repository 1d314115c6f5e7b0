/**
 * `<tl-flow>`: entries in their order, of the whole session or of one agent inside a call. Of a long one the end is
 * shown: at most 44 entries, in steps of 15, so that a page does not grow with its session. Whoever reads
 * earlier ones (`earlier`, `reveal`) keeps them until `attached` is set again.
 */

import { html, nothing, render } from "lit";

import { ConsoleElement } from "../ui/base-element.js";
import { drawEventChips, speakerName } from "./entry-element.js";
import "./thinking-indicator.js";

const SHOWN = 30;
const STEP = 15;

/** The first entry that is shown of so many. */
export const firstShownIndex = (count) => Math.max(0, Math.floor((count - SHOWN) / STEP) * STEP);

export class EntryListElement extends ConsoleElement {
  static properties = {
    session: { attribute: false },
    thread: { attribute: false },
    version: { attribute: false },
    attached: { attribute: false },
    who: { attribute: false },
  };
  #start = 0;
  #isReadingEarlier = false; // somebody reads what is earlier
  #elements = new Map(); // the first entry of an item -> what shows it

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

  /** Show everything from the beginning. */
  async showAll() {
    await this.#showFrom(0);
  }

  /** Show more of what came before. */
  async showEarlier() {
    await this.#showFrom(this.#start - STEP);
  }

  /** The element that shows an entry of this thread, once it is there. */
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

  /** An element stays with its entry: what somebody has opened in it is open wherever the window moves. */
  updated() {
    const holder = this.querySelector(":scope > .entries");
    const items = this.#items();
    const wanted = new Set(items.map(({ entries: [first] }) => first));
    for (const [first, element] of this.#elements) if (!wanted.has(first)) element.remove();
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

  /** Entries, each with whether it begins what somebody says; events that follow each other are one item. */
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
