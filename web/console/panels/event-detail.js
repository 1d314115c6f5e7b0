/**
 * `<tl-event>`: one event, whole, as JSON, and ways from it to others: of its turn, its agent, its call (told by
 * `only`, with a piece of a filter), and to its neighbours of the same type. `close` ends looking at it.
 */

import { html, nothing } from "lit";

import { SessionElement } from "../ui/base-element.js";
import "../ui/json-tree.js";
import { callsOf, sameType } from "../store/event-filter.js";
import { go, currentRoute } from "../app/router.js";
import { family } from "../store/event-summary.js";
import { momentOf, zoneOf } from "../ui/time-format.js";

export class Event extends SessionElement {
  static properties = { event: { attribute: false }, copied: { state: true } };

  constructor() {
    super();
    Object.assign(this, { event: null, copied: null });
  }

  #tell(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail, bubbles: true }));
  }

  async #copy() {
    const { event } = this;
    const done = await this.attempt(async () => {
      await navigator.clipboard.writeText(JSON.stringify(event, null, 2));
      return true;
    });
    if (done) this.copied = event;
  }

  render() {
    const { event } = this;
    const about = [event.origin, event.actor].filter((part) => part !== undefined);
    return html`<section class="event" aria-label="Event ${event.seq}" data-seq=${event.seq}>
      <header>
        <h2 data-kind=${family(event)}>${event.type}</h2>
        <span class="about">${event.seq} · <time datetime=${event.ts} title=${zoneOf(event.ts)}>${momentOf(event.ts)}</time>
          ${about.map((part) => ` · ${part}`)}</span>
        ${this.#neighbours()}
        <button class="plain" aria-label="Close event" @click=${() => this.#tell("close")}>Close</button>
      </header>
      <div class="ways">${this.#ways()}</div>
      <div class="body" tabindex="0" role="region" aria-label="JSON of event ${event.seq}">
        <tl-json .value=${event}></tl-json></div>
    </section>`;
  }

  #neighbours() {
    const { events } = this.session.record;
    const at = this.session.record.indexOf(this.event.seq);
    return NEIGHBOURS.map(([step, sign, words]) => {
      const other = sameType(events, at, step);
      const label = `${words} ${this.event.type}`;
      return html`<button class="plain" aria-label=${label} title=${label} ?disabled=${!other}
        @click=${() => go({ ...currentRoute(), seq: other.seq }, { replace: true })}>${sign}</button>`;
    });
  }

  #ways() {
    const { trace_id, agent_id, payload, seq } = this.event;
    const only = (words, filter) => html`<button @click=${() => this.#tell("only", filter)}>${words}</button>`;
    return html`
      <button @click=${this.#copy}>${this.copied === this.event ? "Copied" : "Copy"}</button>
      <button @click=${() => this.#tell("show-in-chat", seq)}>Show in chat</button>
      ${trace_id ? only("This turn", { turn: trace_id }) : nothing}
      ${agent_id ? only("This agent", { invocation: agent_id }) : nothing}
      ${callsOf(payload)
        .slice(0, 1)
        .map((call) => only("This call", { call }))}`;
  }
}

const NEIGHBOURS = [
  [-1, "‹", "Previous"],
  [1, "›", "Next"],
];

customElements.define("tl-event", Event);
