/**
 * `<tl-events>`: the log of a session as a list: filters, one line for each event, and the event that the address
 * names (`seq`) below it, whole.
 *
 * The end stays in view until somebody scrolls away or looks at an event; then what comes is counted. Filters and
 * the place in the list are kept over a reload. A filter may hide the event that is looked at: that is said.
 */

import { html, nothing } from "lit";

import { SessionElement } from "../ui/base-element.js";
import "./event-detail.js";
import "./event-filters.js";
import { moves } from "../ui/virtual-list.js";
import { EVERYTHING, Facets, Matches } from "../store/event-filter.js";
import { remember, remembered } from "../app/settings.js";
import { go, currentRoute } from "../app/router.js";
import { indexOf } from "../store/session-log.js";
import { family, summary } from "../store/event-summary.js";
import { styled } from "../ui/style-properties.js";
import { clock, zoneOf } from "../ui/time-format.js";
import "./events.css";

const BUDGET_MS = 6; // of a frame, for looking which events pass the filter
const ROW_PX = 44;
const UNTOLD = Infinity; // as what somebody has seen: not known before the whole log is here
const INDENTS = 6; // deeper agents stand no further to the right

export class Events extends SessionElement {
  static properties = { filter: { state: true }, seq: { state: true }, active: { state: true } };
  #record = null;
  #matches = null;
  #done = true; // whether all events were looked at
  #aim = null; // { seq, pixels? }: where the list has to be when the log has come so far
  #left = null; // the last seq when somebody left the end; null: the end is in view
  #named = null; // the session that filter and place are kept for
  #moved = () => this.#arrive();
  #leaving = () => this.#keep();

  constructor() {
    super();
    Object.assign(this, { filter: EVERYTHING, seq: null, active: null });
  }

  connectedCallback() {
    super.connectedCallback();
    addEventListener("popstate", this.#moved);
    addEventListener("pagehide", this.#leaving);
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    removeEventListener("popstate", this.#moved);
    removeEventListener("pagehide", this.#leaving);
    this.#keep();
  }

  willUpdate(changed) {
    super.willUpdate(changed);
    const { id, record } = this.session;
    if (id !== this.#named) this.#begin();
    else if (record !== this.#record && this.#left !== null) this.#left = UNTOLD; // it was of another log
    if (changed.has("filter") || record !== this.#record) this.#matches = new Matches(this.filter);
    this.#record = record;
    if (this.#left === UNTOLD && this.session.connection === "live") this.#left = this.#record.last;
    const until = performance.now() + BUDGET_MS;
    this.#done = this.#matches.advance(this.#record.events, () => performance.now() > until);
    if (!this.#done) requestAnimationFrame(() => this.requestUpdate());
  }

  /** Be where this session was left, or at the event that the address names. */
  #begin() {
    this.#keep();
    this.#named = this.session.id;
    const { filter, seq = null, top = null, pixels, left = null } = this.#kept();
    this.filter = { ...EVERYTHING, ...filter };
    this.seq = this.active = currentRoute().seq;
    this.#left = left ?? (top === null ? null : UNTOLD);
    if (seq === this.seq) this.#aim = top === null ? null : { seq: top, pixels };
    else this.#look(this.seq);
  }

  #kept() {
    return JSON.parse(remembered(`events ${this.#named}`, "{}"));
  }

  #keep() {
    if (this.#named === null) return;
    const { row, pixels } = this.#list?.position ?? {};
    const top = this.#left === null ? null : (this.#aim?.seq ?? this.#matches.events[row]?.seq ?? null);
    const place = { filter: this.filter, seq: this.seq, top, pixels: this.#aim?.pixels ?? pixels, left: this.#left };
    remember(`events ${this.#named}`, JSON.stringify(place));
  }

  /** The address has changed. */
  #arrive() {
    const { seq } = currentRoute();
    if (seq === this.seq) return;
    this.seq = seq;
    if (seq !== null) this.#look(seq);
  }

  #look(seq) {
    this.active = seq;
    this.#aim = seq === null ? null : { seq };
    if (seq !== null) this.#left ??= UNTOLD;
  }

  get #list() {
    return this.querySelector("tl-list");
  }

  updated() {
    const list = this.#list;
    if (!list || !this.#aim || !(this.#record.last >= this.#aim.seq && this.#done)) return;
    const { seq, pixels } = this.#aim;
    const at = indexOf(this.#matches.events, seq);
    this.#aim = null;
    if (pixels !== undefined) list.place(Math.max(0, at), pixels);
    else if (this.#matches.events[at]?.seq === seq) list.reveal(at);
  }

  #pick({ detail }) {
    const { seq } = this.#matches.events[detail];
    this.#left ??= UNTOLD;
    this.active = seq;
    go({ ...currentRoute(), seq }, { replace: true });
  }

  #move({ detail }) {
    const { seq } = this.#matches.events[detail];
    this.#left ??= UNTOLD;
    this.active = seq;
  }

  /** Whoever looks at an event and goes on with the keys sees the one where they stop. */
  #rest({ key }) {
    if (this.seq === null || this.active === this.seq || !moves(key)) return;
    go({ ...currentRoute(), seq: this.active }, { replace: true });
  }

  #scrolled({ detail: atEnd }) {
    this.#left = atEnd ? null : (this.#left ?? UNTOLD);
    this.requestUpdate();
  }

  #choose(piece) {
    this.filter = { ...this.filter, ...piece };
    this.#aim = this.active === null ? null : { seq: this.active };
    this.#keep();
  }

  #only(piece) {
    this.#choose({ ...EVERYTHING, ...piece });
  }

  render() {
    const { events } = this.#matches;
    return html`
      <tl-filters .filter=${this.filter} .facets=${this.#record.fold(Facets)} .version=${this.#record.last}
        .shown=${events.length} .total=${this.#record.events.length} .done=${this.#done}
        @choose=${({ detail }) => this.#choose(detail)}></tl-filters>
      ${events.length ? this.#rows(events) : html`<p class="blank" role="status">${this.#nothing()}</p>`}
      ${this.#detail(events)}`;
  }

  #nothing() {
    if (!this.#done) return "Searching";
    return this.#record.events.length ? "No event passes the filter." : "Nothing has happened yet.";
  }

  #rows(events) {
    const at = this.active === null ? -1 : indexOf(events, this.active);
    const active = events[at]?.seq === this.active ? at : -1;
    const fresh = this.#left === null ? 0 : events.length - 1 - indexOf(events, this.#left);
    const isCalm = fresh <= 0 && this.seq !== null; // who reads one event is told of new ones only
    return html`<div class="listed" @keyup=${this.#rest}>
      <tl-list class="log" label="Events" .count=${events.length} .rowHeight=${ROW_PX} .active=${active}
        .rowAt=${(row) => this.#row(events[row])} .follows=${this.#left === null}
        @pick=${this.#pick} @move=${this.#move} @scrolled=${this.#scrolled}></tl-list>
      ${
        this.#left === null || isCalm
          ? nothing
          : html`<button class="fresh" @click=${this.#follow}>${fresh > 0 ? `${fresh} new` : "Latest"}</button>`
      }
    </div>`;
  }

  #follow() {
    this.#left = null;
    this.#aim = null;
    this.requestUpdate();
  }

  #row(event) {
    const { seq, type, ts, agent_name, depth = 0 } = event;
    const kind = family(event);
    const content = html`<span class="nr">${seq}</span>
      <span class="what" ${styled({ "--depth": Math.min(depth, INDENTS) })}><span class="type">${type}</span>
        <span class="who">${agent_name ?? ""}</span></span>
      <time class="time" datetime=${ts} title=${zoneOf(ts)}>${clock(ts)}</time>
      <span class="brief" ${styled({ "--depth": Math.min(depth, INDENTS) })}>${summary(event)}</span>`;
    return { seq, kind, selected: seq === this.seq, content };
  }

  #detail(events) {
    if (this.seq === null || this.#record.last < this.seq) return nothing;
    const event = this.#record.events[this.#record.indexOf(this.seq)];
    if (event?.seq !== this.seq) return this.#missing();
    const hidden = this.#done && events[indexOf(events, this.seq)]?.seq !== this.seq;
    return html`
      ${
        hidden
          ? html`<p class="hint" role="status">The filter hides event ${this.seq}.
        <button class="plain" @click=${() => this.#only({})}>Clear the filter</button></p>`
          : nothing
      }
      <tl-event .session=${this.session} .event=${event} @only=${({ detail }) => this.#only(detail)}
        @close=${this.#close}></tl-event>`;
  }

  #missing() {
    return html`<p class="hint" role="status">Event ${this.seq} is not in the list: it was live, and is not kept.
      <button class="plain" @click=${this.#close}>Close</button></p>`;
  }

  #close() {
    go({ ...currentRoute(), seq: null }, { replace: true });
    this.#list?.querySelector("[role=listbox]").focus();
  }
}

customElements.define("tl-events", Events);
