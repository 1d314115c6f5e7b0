/**
 * `<tl-flow>`: entries in order, of the session or of the agents inside a call. `holders` are the messages or agent
 * parts that the entries are of: those that think are shown at the end. `turns` are the meters by turn, for footers.
 *
 * It shows the last 30 to 44 entries and moves in steps of 15, so that the page does not grow with the session.
 * Entries that a person asked for (`showEarlier`, `reveal`) stay until `attached` is set again.
 */

import { html, nothing, render } from "lit";

import { ConsoleElement } from "../ui/base-element.js";
import { foldWork, thinkingAgents } from "../store/chat-entries.js";
import { workLabel } from "../store/labels.js";
import { agentColourClass } from "../ui/agent-colour.js";
import { drawEventChips, speakerName } from "./entry-element.js";
import "./thinking-indicator.js";

const MIN_SHOWN = 30;
const STEP = 15;

/** Return the index of the first entry that is shown of `count`. */
const firstShownIndex = (count) => Math.max(0, Math.floor((count - MIN_SHOWN) / STEP) * STEP);

export class EntryListElement extends ConsoleElement {
  static properties = {
    session: { attribute: false },
    entries: { attribute: false },
    holders: { attribute: false },
    attached: { attribute: false },
    who: { attribute: false },
    turns: { attribute: false },
  };
  #start = 0;
  #isReadingEarlier = false; // the person has opened earlier entries
  #folds = new Map(); // key of the first entry of finished work -> its element
  #elements = new Map(); // key of the first entry of an item -> its element

  constructor() {
    super();
    Object.assign(this, { entries: [], holders: [], attached: true, who: null, turns: null });
  }

  willUpdate(changed) {
    if (changed.has("session") || (changed.has("attached") && this.attached)) this.#isReadingEarlier = false;
    const start = firstShownIndex(this.entries.length);
    this.#start = this.attached && !this.#isReadingEarlier ? start : Math.min(this.#start, start);
  }

  get hasEarlier() {
    return this.#start > 0;
  }

  /** Draw everything, unfolded. */
  async showAll() {
    await this.#showFrom(0);
    for (const fold of this.#folds.values()) fold.open = true;
  }

  async showEarlier() {
    await this.#showFrom(this.#start - STEP);
  }

  /** Draw an entry if it is not drawn, and return its element. */
  async reveal({ key }) {
    const at = this.entries.findIndex((entry) => entry.key === key);
    if (at < this.#start) await this.#showFrom(at - STEP);
    await this.updateComplete;
    const element = this.#elements.get(key);
    const fold = element?.closest(".work");
    if (fold && this.contains(fold)) fold.open = true;
    const chip = this.querySelector(`:scope > .entries > div > .events > [data-key="${CSS.escape(key)}"]`);
    return chip ?? element;
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
      ${thinkingAgents(this.holders).map(
        ({ agent_id, agent_name }) => html`
        <tl-working .session=${this.session} .name=${agent_name} .since=${this.#lastOutputTs(agent_id)}></tl-working>`,
      )}`;
  }

  /** Return the time of the last event of an agent. */
  #lastOutputTs(agentId) {
    const { events } = this.session.log;
    return (events.findLast(({ agent_id }) => agent_id === agentId) ?? events.at(-1))?.ts;
  }

  /** Reuse the element of each entry and fold, so that what the person unfolded stays open. */
  updated() {
    const [elements, folds] = [this.#elements, this.#folds];
    this.#elements = new Map();
    this.#folds = new Map();
    const draw = (item) => {
      const { key } = item.entries[0];
      const element = this.#drawItem(item, elements.get(key));
      this.#elements.set(key, element);
      return element;
    };
    const children = foldWork(this.#items(), this.turns).map(({ item, items }) =>
      items ? this.#drawFold(items, folds, draw) : draw(item),
    );
    placeChildren(this.querySelector(":scope > .entries"), children);
  }

  #drawFold(items, folds, draw) {
    const { key } = items[0].entries[0];
    const fold = folds.get(key) ?? createFold();
    this.#folds.set(key, fold);
    const entries = items.map((item) => item.entries[0]);
    const name = items.some(({ named }) => named) ? speakerName(entries[0]) : null;
    render(drawWorkSummary(entries, name), fold.firstElementChild);
    placeChildren(fold.lastElementChild, items.map(draw));
    return fold;
  }

  /** Return the items to draw: one per entry, with `named` where the speaker changes; adjacent events are one item. */
  #items() {
    const items = [];
    let { who } = this;
    for (const entry of this.entries.slice(this.#start)) {
      const last = items.at(-1)?.entries;
      if (entry.kind === "event" && last?.[0].kind === "event") {
        last.push(entry);
        continue;
      }
      const name = speakerName(entry);
      items.push({ entries: [entry], named: name !== null && name !== who });
      who = entry.kind === "message" ? null : (name ?? who);
    }
    this.#addMeters(items);
    return items;
  }

  /** Give the last item of each turn that has ended the numbers of its turn. */
  #addMeters(items) {
    for (const [at, item] of items.entries()) {
      const { turn } = item.entries[0];
      const meter = items[at + 1]?.entries[0].turn === turn ? undefined : this.turns?.get(turn);
      item.meter = meter?.ended && meter.running === 0 && meter.completions > 0 ? meter : null;
    }
  }

  #drawItem({ entries, named, meter }, known) {
    const [entry] = entries;
    const isEvent = entry.kind === "event";
    const element = known ?? document.createElement(isEvent ? "div" : "tl-entry");
    if (isEvent) render(drawEventChips(entries), element);
    else Object.assign(element, { session: this.session, entry, named, meter });
    element.dataset.at = entry.seq;
    return element;
  }
}

/** Put exactly these elements into a holder, in order, and move only those that are elsewhere. */
function placeChildren(holder, elements) {
  const wanted = new Set(elements);
  for (const child of [...holder.children]) if (!wanted.has(child)) child.remove();
  let next = holder.firstElementChild;
  for (const element of elements) {
    if (element === next) next = next.nextElementSibling;
    else holder.insertBefore(element, next);
  }
}

function createFold() {
  const fold = document.createElement("details");
  fold.className = "work";
  fold.append(document.createElement("summary"), document.createElement("div"));
  fold.lastElementChild.className = "entries";
  return fold;
}

const drawWorkSummary = (entries, name) =>
  html`${
    name ? html`<b class="name ${agentColourClass(name)}">${name}</b> ` : nothing
  }<span class="gist">${workLabel(entries)}</span>`;

customElements.define("tl-flow", EntryListElement);
