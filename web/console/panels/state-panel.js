/**
 * `<tl-state>`: what the application makes of the log, now or as of any event, and what that event changed.
 *
 * The server folds; this asks it, once at a time, for the last place wanted only, and at most every `PAUSE_MS`
 * while things move. "Now" is as of the last durable event that this page has. A moment in the past is part of
 * the address.
 */

import { html, nothing } from "lit";

import { Gone, NotFound } from "../../client/api/errors.js";
import { changes } from "../store/json-diff.js";
import { PlacedElement } from "../ui/base-element.js";
import { Latest } from "../store/latest-request.js";
import { remember, remembered } from "../app/settings.js";
import { go, currentRoute } from "../app/router.js";
import "./scrubber.js";
import "./panels.css";

const PAUSE_MS = 250;
const MOST = 200_000; // characters of JSON on the screen
const BRIEF = 200; // of a value in the list of changes
const PARTS = { state: "State", transcript: "Transcript", meters: "Meters", open: "What is open", roster: "Roster" };

const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export class StateAt extends PlacedElement {
  static properties = { part: { state: true }, told: { state: true }, dragged: { state: true } };
  #asks = new Latest((wanted) => this.#ask(wanted));
  #wanted = "";
  #record = null;

  constructor() {
    super();
    Object.assign(this, { part: remembered("part", "state"), told: null, dragged: null });
  }

  /** Where the person is: a seq, or null for now. */
  get #seq() {
    return this.dragged ?? currentRoute().seq;
  }

  willUpdate(changed) {
    super.willUpdate(changed);
    const { record, id } = this.session;
    if (record !== this.#record) this.#begin(record);
    const at = this.#seq === null ? record.events.length - 1 : record.indexOf(this.#seq);
    this.index = Math.max(at, 0);
    const seq = record.events[this.index]?.seq;
    if (seq === undefined) return;
    const rests = this.#seq !== null && this.dragged === null;
    const before = rests ? (record.events[this.index - 1]?.seq ?? null) : null;
    const wanted = { id, part: this.part, seq, before };
    if (JSON.stringify(wanted) === this.#wanted) return;
    this.#wanted = JSON.stringify(wanted);
    this.#asks.want({ ...wanted, record });
  }

  /** What was told of another log is not true of this one. */
  #begin(record) {
    this.#record = record;
    this.#wanted = "";
    this.told = null;
  }

  async #ask(wanted) {
    const { part, seq, before, record } = wanted;
    try {
      const moments = before === null ? [seq] : [seq, before];
      const [now, then] = await Promise.all(moments.map((moment) => this.#answer(wanted, moment)));
      if (record !== this.session.record) return;
      const changed = before === null ? null : changes(then[part], now[part]);
      this.told = { part, seq, value: now[part], changed, misfits: now.misfits ?? [] };
    } catch (error) {
      if (record !== this.session.record) return;
      const gone = error instanceof Gone || error instanceof NotFound;
      this.told = { part, seq, error: gone ? "The log does not go back this far any more." : error.message };
    }
    if (before === null) await pause(PAUSE_MS);
  }

  #answer({ id, part }, at) {
    return this.session.client.state(id, { at, include: part === "state" ? [] : [part] });
  }

  #move({ detail }) {
    this.dragged = null;
    go({ ...currentRoute(), seq: detail }, { replace: true });
  }

  #choose({ target }) {
    this.part = target.value;
    remember("part", this.part);
  }

  render() {
    const { events } = this.session.record;
    const waits = this.told?.seq !== (events[this.index]?.seq ?? null) || this.told?.part !== this.part;
    return html`<div class="pad state" aria-busy=${events.length > 0 && waits}>
      <div class="row">
        <label>Show <select @change=${this.#choose}>${Object.entries(PARTS).map(
          ([name, words]) => html`
          <option value=${name} ?selected=${name === this.part}>${words}</option>`,
        )}</select></label>
      </div>
      <tl-scrubber .events=${events} .length=${events.length} .index=${this.index} .follows=${this.#seq === null}
        @moving=${({ detail }) => (this.dragged = detail)} @moved=${this.#move}></tl-scrubber>
      ${this.told ? this.#told(this.told) : nothing}
    </div>`;
  }

  #told({ part, seq, value, changed, misfits, error }) {
    if (error) return html`<p class="problem" role="alert">${error}</p>`;
    const text = JSON.stringify(value, null, 2);
    const missing = misfits.map(
      ({ type, count, problem }) => html`<p class="problem">
      ${count === 1 ? "An event" : `${count} events`} of ${type} no longer ${count === 1 ? "fits its class and is" : "fit their class and are"}
      missing from the state: ${problem}</p>`,
    );
    if (part === "state" && text === "{}") {
      return html`${missing}<p class="soft">This application has made no state yet.</p>`;
    }
    return html`${missing}${changed ? this.#changes(changed) : nothing}
      <h2>${PARTS[part]}</h2>
      <pre class="json" tabindex="0" aria-label=${PARTS[part]} data-seq=${seq}>${text.slice(0, MOST)}</pre>
      ${text.length > MOST ? html`<p class="soft">The rest is too long to show.</p>` : nothing}`;
  }

  #changes(changed) {
    return html`<section aria-label="Changed by this event">
      <h2>Changed by this event</h2>
      ${
        changed.length
          ? html`<ul class="changes">${changed.map(
              ({ path, kind, before, after }) => html`
        <li data-kind=${kind}><span class="path">${path}</span>
          ${before === undefined ? nothing : html`<del>${brief(before)}</del>`}
          ${after === undefined ? nothing : html`<ins>${brief(after)}</ins>`}</li>`,
            )}</ul>`
          : html`<p class="soft">Nothing.</p>`
      }
    </section>`;
  }
}

function brief(value) {
  const text = JSON.stringify(value);
  return text.length > BRIEF ? `${text.slice(0, BRIEF)}…` : text;
}

customElements.define("tl-state", StateAt);
