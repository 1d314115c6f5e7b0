/**
 * `<tl-filters>`: the filter of the events panel: text, type, agent, depth. A filter by turn, agent run or call comes
 * from an event and can only be removed here. Dispatches `choose` with the changed fields.
 */

import { html, nothing } from "lit";

import { NO_AGENT, NO_FILTER } from "../store/event-filter.js";
import { ConsoleElement } from "../ui/base-element.js";

const LABELS_BY_AGENT = { [NO_AGENT]: "No agent" };
const COUNT_TOOLTIP = "Durable events. Live pieces of texts and of a tool's output have numbers too, and are left out.";
const EVENT_FILTERS = [
  ["turn", "One turn"],
  ["invocation", "One agent run"],
  ["call", "One call"],
];

export class EventFilterBar extends ConsoleElement {
  static properties = {
    filter: { attribute: false },
    facets: { attribute: false },
    version: { attribute: false },
    shown: { attribute: false },
    total: { attribute: false },
    done: { attribute: false },
  };

  #choose(piece) {
    this.dispatchEvent(new CustomEvent("choose", { detail: piece }));
  }

  #select(name, label, choices) {
    const wanted = this.filter[name];
    return html`<select aria-label=${label} ?data-set=${wanted !== ""}
        @change=${({ target }) => this.#choose({ [name]: target.value })}>
      ${[["", `Any ${label.toLowerCase()}`], ...choices].map(
        ([value, words]) => html`
        <option value=${value} .selected=${value === wanted}>${words}</option>`,
      )}
    </select>`;
  }

  render() {
    const { filter, facets, shown, total } = this;
    const types = facets.choices.map(([type, count]) => [type, `${type}${type.endsWith(".") ? "*" : ""} (${count})`]);
    const agents = [...facets.agents].map(([name, count]) => [name, `${LABELS_BY_AGENT[name] ?? name} (${count})`]);
    const depths = Array.from({ length: facets.depth }, (_, depth) => [`${depth}`, `Depth at most ${depth}`]);
    return html`<div class="filters" role="search" aria-label="Filter events">
      <input type="search" aria-label="Search in events" placeholder="Search" .value=${filter.text}
        @input=${({ target }) => this.#choose({ text: target.value })}>
      <output class="count" aria-label="Events shown" title=${COUNT_TOOLTIP}>${shown === total ? total : `${shown} of ${total}`}${
        this.done ? nothing : "…"
      } <span class="without">without live pieces</span></output>
      <div class="selects">
        ${this.#select("type", "Type", types)}
        ${this.#select("agent", "Agent", agents)}
        ${facets.depth ? this.#select("depth", "Depth", depths) : nothing}
      </div>
      ${EVENT_FILTERS.map(([name, words]) =>
        filter[name]
          ? html`<button class="chip" aria-label="${words}: show others again"
        @click=${() => this.#choose({ [name]: "" })}>${words} ×</button>`
          : nothing,
      )}
      ${
        JSON.stringify(filter) === JSON.stringify(NO_FILTER)
          ? nothing
          : html`
        <button class="plain" @click=${() => this.#choose(NO_FILTER)}>Clear</button>`
      }
    </div>`;
  }
}

customElements.define("tl-filters", EventFilterBar);
