/**
 * `<tl-event>`: one event as JSON, with links to its turn, agent and call (`filter`, with a part of a filter), to the
 * chat (`show-in-chat`) and to its neighbours of the same type. `close` closes it.
 */

import { html, nothing } from "lit";

import { currentRoute, navigate } from "../app/router.js";
import { callIds, nextOfType } from "../store/event-filter.js";
import { eventFamily } from "../store/event-summary.js";
import { SessionElement } from "../ui/base-element.js";
import { copyText } from "../ui/clipboard.js";
import "../ui/json-tree.js";
import { formatDateTime, utcTooltip } from "../ui/time-format.js";

export class EventDetail extends SessionElement {
  static properties = { event: { attribute: false }, copied: { state: true } };

  constructor() {
    super();
    Object.assign(this, { event: null, copied: null });
  }

  #dispatch(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail, bubbles: true }));
  }

  async #copy() {
    const { event } = this;
    if (await this.attempt(() => copyText(JSON.stringify(event, null, 2)))) this.copied = event;
  }

  render() {
    const { event } = this;
    const about = [event.origin, event.actor].filter((part) => part !== undefined);
    return html`<section class="event" aria-label="Event ${event.seq}" data-seq=${event.seq}>
      <header>
        <h2 data-kind=${eventFamily(event)}>${event.type}</h2>
        <span class="about">${event.seq} · <time datetime=${event.ts} title=${utcTooltip(event.ts)}>${formatDateTime(event.ts)}</time>
          ${about.map((part) => ` · ${part}`)}</span>
        ${this.#drawNeighbours()}
        <button class="plain" aria-label="Close event" @click=${() => this.#dispatch("close")}>Close</button>
      </header>
      <div class="ways">${this.#drawLinks()}</div>
      <div class="body" tabindex="0" role="region" aria-label="JSON of event ${event.seq}">
        <tl-json .value=${event}></tl-json></div>
    </section>`;
  }

  #drawNeighbours() {
    const { events } = this.session.log;
    const at = this.session.log.indexOfSeq(this.event.seq);
    return NEIGHBOURS.map(([step, sign, words]) => {
      const other = nextOfType(events, at, step);
      const label = `${words} ${this.event.type}`;
      return html`<button class="plain" aria-label=${label} title=${label} ?disabled=${!other}
        @click=${() => navigate({ ...currentRoute(), seq: other.seq }, { replace: true })}>${sign}</button>`;
    });
  }

  #drawLinks() {
    const { trace_id, agent_id, payload, seq } = this.event;
    const only = (words, filter) => html`<button @click=${() => this.#dispatch("filter", filter)}>${words}</button>`;
    return html`
      <button @click=${this.#copy}>${this.copied === this.event ? "Copied" : "Copy"}</button>
      <button @click=${() => this.#dispatch("show-in-chat", seq)}>Show in chat</button>
      ${trace_id ? only("This turn", { turn: trace_id }) : nothing}
      ${agent_id ? only("This agent", { invocation: agent_id }) : nothing}
      ${callIds(payload)
        .slice(0, 1)
        .map((call) => only("This call", { call }))}`;
  }
}

const NEIGHBOURS = [
  [-1, "‹", "Previous"],
  [1, "›", "Next"],
];

customElements.define("tl-event", EventDetail);
