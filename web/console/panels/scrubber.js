/**
 * `<tl-scrubber>`: a slider over the durable events of a session. Dispatches `moving` while it is dragged and `moved`
 * when it is released, with a seq, or null for now. `events` grows in place, so `length` triggers the update.
 */

import { html } from "lit";

import { eventLink } from "../app/router.js";
import { ConsoleElement } from "../ui/base-element.js";
import { formatCount } from "../ui/format.js";

export class Scrubber extends ConsoleElement {
  static properties = {
    events: { attribute: false },
    index: { attribute: false },
    length: { attribute: false },
    follows: { attribute: false },
  };

  /** Dispatch the seq of an index, which is clamped; null is now. */
  #dispatch(name, index) {
    const seq = index === null ? null : this.events[Math.min(Math.max(index, 0), this.events.length - 1)].seq;
    this.dispatchEvent(new CustomEvent(name, { detail: seq }));
  }

  render() {
    const { index } = this;
    const end = this.events.length - 1;
    const event = this.events[index];
    if (!event) return html`<p class="soft">No events yet.</p>`;
    return html`<div class="scrubber" role="group" aria-label="Moment">
      <button aria-label="First event" title="First event" ?disabled=${index <= 0}
        @click=${() => this.#dispatch("moved", 0)}>«</button>
      <button aria-label="One event back" title="One event back" ?disabled=${index <= 0}
        @click=${() => this.#dispatch("moved", index - 1)}>‹</button>
      <input type="range" min="0" max=${end} aria-label="Event" aria-valuetext="Event ${event.seq}, ${event.type}"
        .value=${String(index)} @input=${({ target }) => this.#dispatch("moving", Number(target.value))}
        @change=${({ target }) => this.#dispatch("moved", Number(target.value))}>
      <button aria-label="One event on" title="One event on" ?disabled=${index >= end}
        @click=${() => this.#dispatch("moved", index + 1)}>›</button>
      <button aria-pressed=${this.follows} @click=${() => this.#dispatch("moved", null)}>Now</button>
      <p class="where">${eventLink(event.seq, `Event ${event.seq}`)} <span class="mono">${event.type}</span>
        <span class="soft">${formatCount(index + 1)} of ${formatCount(end + 1)}, without live pieces</span></p>
    </div>`;
  }
}

customElements.define("tl-scrubber", Scrubber);
