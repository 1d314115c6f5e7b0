/**
 * `<tl-events>`: the log as a list with filters; below it the event of the route (`seq`).
 *
 * The end stays in view until the person scrolls away or opens an event; then new events are counted. Filter and
 * position survive a reload. If the filter hides the open event, the panel tells.
 */

import { html, nothing } from "lit";

import { currentRoute, navigate } from "../app/router.js";
import { loadSetting, saveSetting } from "../app/storage.js";
import { EventFacets, EventFilter, NO_FILTER } from "../store/event-filter.js";
import { eventFamily, summarizeEvent } from "../store/event-summary.js";
import { indexOfSeq } from "../store/session-log.js";
import { SessionElement } from "../ui/base-element.js";
import { agentColourClass } from "../ui/agent-colour.js";
import { setStyles } from "../ui/style-properties.js";
import { formatClock, utcTooltip } from "../ui/time-format.js";
import { isMoveKey } from "../ui/virtual-list.js";
import "./event-detail.js";
import "./event-filters.js";
import "./events.css";

const BUDGET_MS = 6; // of a frame, for filtering
const ROW_PX = 44;
const UNKNOWN_SEQ = Infinity; // the last seen event is unknown until the whole log has come
const MAX_INDENT = 6; // deeper agents are not indented further

export class EventsPanel extends SessionElement {
  static properties = { filter: { state: true }, seq: { state: true }, active: { state: true } };
  #log = null;
  #filter = null;
  #isFilterDone = true; // whether all events were filtered
  #target = null; // { seq, pixels? }: where to scroll when the log has come so far
  #seenSeq = null; // the last seq when the person left the end; null: the end is in view
  #sessionId = null; // the session of the saved filter and position
  #onRouteChange = () => this.#followRoute();
  #onPageHide = () => this.#savePosition();

  constructor() {
    super();
    Object.assign(this, { filter: NO_FILTER, seq: null, active: null });
  }

  connectedCallback() {
    super.connectedCallback();
    addEventListener("popstate", this.#onRouteChange);
    addEventListener("pagehide", this.#onPageHide);
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    removeEventListener("popstate", this.#onRouteChange);
    removeEventListener("pagehide", this.#onPageHide);
    this.#savePosition();
  }

  willUpdate(changed) {
    super.willUpdate(changed);
    const { id, log } = this.session;
    if (id !== this.#sessionId) this.#restorePosition();
    else if (log !== this.#log && this.#seenSeq !== null) this.#seenSeq = UNKNOWN_SEQ; // it was of another log
    if (changed.has("filter") || log !== this.#log) this.#filter = new EventFilter(this.filter);
    this.#log = log;
    if (this.#seenSeq === UNKNOWN_SEQ && this.session.connection === "live") this.#seenSeq = this.#log.last;
    const until = performance.now() + BUDGET_MS;
    this.#isFilterDone = this.#filter.run(this.#log.events, () => performance.now() > until);
    if (!this.#isFilterDone) requestAnimationFrame(() => this.requestUpdate());
  }

  /** Restore the saved filter and position of this session, or show the event of the route. */
  #restorePosition() {
    this.#savePosition();
    this.#sessionId = this.session.id;
    const { filter, seq = null, top = null, pixels, left = null } = this.#loadPosition();
    this.filter = { ...NO_FILTER, ...filter };
    this.seq = this.active = currentRoute().seq;
    this.#seenSeq = left ?? (top === null ? null : UNKNOWN_SEQ);
    if (seq === this.seq) this.#target = top === null ? null : { seq: top, pixels };
    else this.#setTarget(this.seq);
  }

  #loadPosition() {
    return JSON.parse(loadSetting(`events ${this.#sessionId}`, "{}"));
  }

  #savePosition() {
    if (this.#sessionId === null) return;
    const { row, pixels } = this.#list?.position ?? {};
    const top = this.#seenSeq === null ? null : (this.#target?.seq ?? this.#filter.events[row]?.seq ?? null);
    const place = {
      filter: this.filter,
      seq: this.seq,
      top,
      pixels: this.#target?.pixels ?? pixels,
      left: this.#seenSeq,
    };
    saveSetting(`events ${this.#sessionId}`, JSON.stringify(place));
  }

  #followRoute() {
    const { seq } = currentRoute();
    if (seq === this.seq) return;
    this.seq = seq;
    if (seq !== null) this.#setTarget(seq);
  }

  #setTarget(seq) {
    this.active = seq;
    this.#target = seq === null ? null : { seq };
    if (seq !== null) this.#seenSeq ??= UNKNOWN_SEQ;
  }

  get #list() {
    return this.querySelector("tl-list");
  }

  updated() {
    const list = this.#list;
    if (!list || !this.#target || !(this.#log.last >= this.#target.seq && this.#isFilterDone)) return;
    const { seq, pixels } = this.#target;
    const at = indexOfSeq(this.#filter.events, seq);
    this.#target = null;
    if (pixels !== undefined) list.place(Math.max(0, at), pixels);
    else if (this.#filter.events[at]?.seq === seq) list.reveal(at);
  }

  #onPick({ detail }) {
    const { seq } = this.#filter.events[detail];
    this.#seenSeq ??= UNKNOWN_SEQ;
    this.active = seq;
    navigate({ ...currentRoute(), seq }, { replace: true });
  }

  #onMove({ detail }) {
    const { seq } = this.#filter.events[detail];
    this.#seenSeq ??= UNKNOWN_SEQ;
    this.active = seq;
  }

  /** While an event is open, open the one where the keys stop. */
  #onKeyUp({ key }) {
    if (this.seq === null || this.active === this.seq || !isMoveKey(key)) return;
    navigate({ ...currentRoute(), seq: this.active }, { replace: true });
  }

  #onScroll({ detail: atEnd }) {
    this.#seenSeq = atEnd ? null : (this.#seenSeq ?? UNKNOWN_SEQ);
    this.requestUpdate();
  }

  #changeFilter(piece) {
    this.filter = { ...this.filter, ...piece };
    this.#target = this.active === null ? null : { seq: this.active };
    this.#savePosition();
  }

  #replaceFilter(piece) {
    this.#changeFilter({ ...NO_FILTER, ...piece });
  }

  render() {
    const { events } = this.#filter;
    return html`
      <tl-filters .filter=${this.filter} .facets=${this.#log.fold(EventFacets)} .version=${this.#log.last}
        .shown=${events.length} .total=${this.#log.events.length} .done=${this.#isFilterDone}
        @choose=${({ detail }) => this.#changeFilter(detail)}></tl-filters>
      ${events.length ? this.#drawRows(events) : html`<p class="blank" role="status">${this.#emptyText()}</p>`}
      ${this.#drawDetail(events)}`;
  }

  #emptyText() {
    if (!this.#isFilterDone) return "Searching";
    return this.#log.events.length ? "No event matches the filter." : "No events yet.";
  }

  #drawRows(events) {
    const at = this.active === null ? -1 : indexOfSeq(events, this.active);
    const active = events[at]?.seq === this.active ? at : -1;
    const fresh = this.#seenSeq === null ? 0 : events.length - 1 - indexOfSeq(events, this.#seenSeq);
    const isCalm = fresh <= 0 && this.seq !== null; // while an event is open, the button appears for new events only
    return html`<div class="listed" @keyup=${this.#onKeyUp}>
      <tl-list class="log" label="Events" .count=${events.length} .rowHeight=${ROW_PX} .active=${active}
        .rowAt=${(row) => this.#drawRow(events[row])} .follows=${this.#seenSeq === null}
        @pick=${this.#onPick} @move=${this.#onMove} @scrolled=${this.#onScroll}></tl-list>
      ${
        this.#seenSeq === null || isCalm
          ? nothing
          : html`<button class="fresh" @click=${this.#followEnd}>${fresh > 0 ? `${fresh} new` : "Latest"}</button>`
      }
    </div>`;
  }

  #followEnd() {
    this.#seenSeq = null;
    this.#target = null;
    this.requestUpdate();
  }

  #drawRow(event) {
    const { seq, type, ts, agent_name, depth = 0 } = event;
    const kind = eventFamily(event);
    const content = html`<span class="nr">${seq}</span>
      <span class="what" ${setStyles({ "--depth": Math.min(depth, MAX_INDENT) })}><span class="type">${type}</span>
        <span class="who ${agentColourClass(agent_name)}">${agent_name ?? ""}</span></span>
      <time class="time" datetime=${ts} title=${utcTooltip(ts)}>${formatClock(ts)}</time>
      <span class="brief" ${setStyles({ "--depth": Math.min(depth, MAX_INDENT) })}>${summarizeEvent(event)}</span>`;
    return { seq, kind, selected: seq === this.seq, content };
  }

  #drawDetail(events) {
    if (this.seq === null || this.#log.last < this.seq) return nothing;
    const event = this.#log.events[this.#log.indexOfSeq(this.seq)];
    if (event?.seq !== this.seq) return this.#drawMissing();
    const hidden = this.#isFilterDone && events[indexOfSeq(events, this.seq)]?.seq !== this.seq;
    return html`
      ${
        hidden
          ? html`<p class="hint" role="status">The filter hides event ${this.seq}.
        <button class="plain" @click=${() => this.#replaceFilter({})}>Clear the filter</button></p>`
          : nothing
      }
      <tl-event .session=${this.session} .event=${event} @filter=${({ detail }) => this.#replaceFilter(detail)}
        @close=${this.#close}></tl-event>`;
  }

  #drawMissing() {
    return html`<p class="hint" role="status">Event ${this.seq} is not in the list: live events are not stored.
      <button class="plain" @click=${this.#close}>Close</button></p>`;
  }

  #close() {
    navigate({ ...currentRoute(), seq: null }, { replace: true });
    this.#list?.querySelector("[role=listbox]").focus();
  }
}

customElements.define("tl-events", EventsPanel);
