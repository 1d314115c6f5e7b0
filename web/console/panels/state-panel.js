/**
 * `<tl-state>`: the application's state, now or at any event, and what that event changed.
 *
 * The server folds. The panel sends one request at a time, only for the last position, and at most every `PAUSE_MS`
 * while the session runs. "Now" is the last durable event of this page. A position in the past is part of the route.
 */

import { html, nothing } from "lit";

import { Gone, NotFound } from "../../client/api/errors.js";
import { currentRoute, navigate } from "../app/router.js";
import { loadSetting, saveSetting } from "../app/storage.js";
import { diffJson } from "../store/json-diff.js";
import { LatestRequest } from "../store/latest-request.js";
import { RoutedElement } from "../ui/base-element.js";
import "../ui/json-tree.js";
import "./scrubber.js";
import "./panels.css";

const PAUSE_MS = 250;
const MAX_VALUE_CHARS = 200; // in the list of changes
const PART_LABELS = {
  state: "State",
  transcript: "Transcript",
  meters: "Meters",
  open: "Open work",
  roster: "Roster",
};

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, ms));

export class StatePanel extends RoutedElement {
  static properties = { part: { state: true }, answer: { state: true }, dragged: { state: true } };
  #requests = new LatestRequest((wanted) => this.#load(wanted));
  #requestKey = "";
  #log = null;

  constructor() {
    super();
    Object.assign(this, { part: loadSetting("part", "state"), answer: null, dragged: null });
  }

  /** The chosen position: a seq, or null for now. */
  get #seq() {
    return this.dragged ?? currentRoute().seq;
  }

  willUpdate(changed) {
    super.willUpdate(changed);
    const { log, id } = this.session;
    if (log !== this.#log) this.#reset(log);
    const at = this.#seq === null ? log.events.length - 1 : log.indexOfSeq(this.#seq);
    this.index = Math.max(at, 0);
    const seq = log.events[this.index]?.seq;
    if (seq === undefined) return;
    const rests = this.#seq !== null && this.dragged === null;
    const before = rests ? (log.events[this.index - 1]?.seq ?? null) : null;
    const wanted = { id, part: this.part, seq, before };
    if (JSON.stringify(wanted) === this.#requestKey) return;
    this.#requestKey = JSON.stringify(wanted);
    this.#requests.request({ ...wanted, log });
  }

  /** Drop the answer of another log. */
  #reset(log) {
    this.#log = log;
    this.#requestKey = "";
    this.answer = null;
  }

  async #load(wanted) {
    const { part, seq, before, log } = wanted;
    try {
      const moments = before === null ? [seq] : [seq, before];
      const [now, then] = await Promise.all(moments.map((moment) => this.#fetchState(wanted, moment)));
      if (log !== this.session.log) return;
      const changed = before === null ? null : diffJson(then[part], now[part]);
      this.answer = { part, seq, value: now[part], changed, misfits: now.misfits ?? [] };
    } catch (error) {
      if (log !== this.session.log) return;
      const gone = error instanceof Gone || error instanceof NotFound;
      this.answer = { part, seq, error: gone ? "The log no longer goes back this far." : error.message };
    }
    if (before === null) await sleep(PAUSE_MS);
  }

  #fetchState({ id, part }, at) {
    return this.session.client.state(id, { at, include: part === "state" ? [] : [part] });
  }

  #move({ detail }) {
    this.dragged = null;
    navigate({ ...currentRoute(), seq: detail }, { replace: true });
  }

  #choose({ target }) {
    this.part = target.value;
    saveSetting("part", this.part);
  }

  render() {
    const { events } = this.session.log;
    const waits = this.answer?.seq !== (events[this.index]?.seq ?? null) || this.answer?.part !== this.part;
    return html`<div class="pad state" aria-busy=${events.length > 0 && waits}>
      <div class="row">
        <label>Show <select @change=${this.#choose}>${Object.entries(PART_LABELS).map(
          ([name, words]) => html`
          <option value=${name} ?selected=${name === this.part}>${words}</option>`,
        )}</select></label>
      </div>
      <tl-scrubber .events=${events} .length=${events.length} .index=${this.index} .follows=${this.#seq === null}
        @moving=${({ detail }) => (this.dragged = detail)} @moved=${this.#move}></tl-scrubber>
      ${this.answer ? this.#drawAnswer(this.answer) : nothing}
    </div>`;
  }

  #drawAnswer({ part, seq, value, changed, misfits, error }) {
    if (error) return html`<p class="problem" role="alert">${error}</p>`;
    const missing = misfits.map(
      ({ type, count, problem }) => html`<p class="problem">
      ${count === 1 ? "An event" : `${count} events`} of ${type} no longer ${count === 1 ? "fits its class and is" : "fit their class and are"}
      missing from the state: ${problem}</p>`,
    );
    if (part === "state" && JSON.stringify(value) === "{}") {
      return html`${missing}<p class="soft">This application has made no state yet.</p>`;
    }
    return html`${missing}${changed ? this.#drawChanges(changed) : nothing}
      <h2>${PART_LABELS[part]}</h2>
      <div class="json" role="region" tabindex="0" aria-label=${PART_LABELS[part]} data-seq=${seq}>
        <tl-json .value=${value}></tl-json></div>`;
  }

  #drawChanges(changed) {
    return html`<section aria-label="Changed by this event">
      <h2>Changed by this event</h2>
      ${
        changed.length
          ? html`<ul class="changes">${changed.map(
              ({ path, kind, before, after }) => html`
        <li data-kind=${kind}><span class="path">${path}</span>
          ${before === undefined ? nothing : html`<del>${shortJson(before)}</del>`}
          ${after === undefined ? nothing : html`<ins>${shortJson(after)}</ins>`}</li>`,
            )}</ul>`
          : html`<p class="soft">Nothing.</p>`
      }
    </section>`;
  }
}

function shortJson(value) {
  const text = JSON.stringify(value);
  return text.length > MAX_VALUE_CHARS ? `${text.slice(0, MAX_VALUE_CHARS)}…` : text;
}

customElements.define("tl-state", StatePanel);
