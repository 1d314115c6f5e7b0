/**
 * `<tl-list>`: a list box of any number of rows of one height, of which only those in view are in the page.
 *
 * `rowAt(index)` returns `{ seq, kind, state, selected, title, content }`. Keys dispatch `move`, a click or Enter
 * dispatches `pick`, both with an index; the owner sets `active`. `scrolled` tells whether the end is in view.
 * `follows` keeps it there.
 */

import { html, nothing } from "lit";
import { repeat } from "lit/directives/repeat.js";

import { ConsoleElement } from "./base-element.js";
import { VirtualScroll } from "./virtual-scroll.js";

/** By key: the row to move to, from a row, with so many rows per page. */
const KEYS = {
  ArrowDown: (at) => at + 1,
  ArrowUp: (at) => at - 1,
  PageDown: (at, page) => at + page,
  PageUp: (at, page) => at - page,
  Home: () => 0,
  End: () => Infinity,
};
const NEAR_PX = 4; // closer to the end counts as the end

export const isMoveKey = (key) => key in KEYS;

export class VirtualList extends ConsoleElement {
  static properties = {
    count: { type: Number },
    rowHeight: { type: Number },
    rowAt: { attribute: false },
    label: {},
    active: { type: Number },
    follows: { type: Boolean },
  };
  #observer = new ResizeObserver(() => this.#onResize());
  #pendingScroll = null; // (virtual scroll, scrollTop) => scrollTop, for the next update
  #scroll = 0;
  #view = 0;

  constructor() {
    super();
    Object.assign(this, { count: 0, rowHeight: 24, rowAt: () => ({}), label: "", active: -1, follows: false });
  }

  connectedCallback() {
    super.connectedCallback();
    this.#observer.observe(this);
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    this.#observer.disconnect();
  }

  /** Scroll a row into view. */
  reveal(row) {
    this.#pendingScroll = (track, scroll) => track.reveal(row, scroll);
    this.requestUpdate();
  }

  /** Scroll a row to so many pixels below the top. */
  place(row, pixels) {
    this.#pendingScroll = (track) => track.scrollTopFor(row * track.rowHeight - pixels);
    this.requestUpdate();
  }

  /** The first row in view, and its distance from the top. */
  get position() {
    const top = this.#virtualScroll.contentTop(this.#scroll);
    const row = Math.floor(top / this.rowHeight);
    return { row, pixels: row * this.rowHeight - top };
  }

  get #virtualScroll() {
    return new VirtualScroll(this.count, this.rowHeight, this.#view);
  }

  get #box() {
    return this.firstElementChild;
  }

  /** Keep the active row in view when the box shrinks. */
  #onResize() {
    const isActiveInView = this.active >= 0 && this.#virtualScroll.shows(this.active, this.#scroll);
    if (isActiveInView && this.#pendingScroll === null) this.reveal(this.active);
    this.requestUpdate();
  }

  #onScroll() {
    if (this.#box.scrollTop === this.#scroll) return;
    this.#scroll = this.#box.scrollTop;
    // the browser scrolls a box that grew before the next update measures it
    const { scrollHeight, clientHeight } = this.#box;
    this.#dispatch("scrolled", this.#scroll + clientHeight >= scrollHeight - NEAR_PX);
    this.requestUpdate();
  }

  #dispatch(name, detail) {
    this.dispatchEvent(new CustomEvent(name, { detail }));
  }

  #onKeyDown(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if ((event.key === "Enter" || event.key === " ") && this.active >= 0) this.#dispatch("pick", this.active);
    else if (isMoveKey(event.key) && this.count > 0) this.#dispatch("move", this.#moveTo(event.key));
    else return;
    event.preventDefault();
  }

  #moveTo(key) {
    const page = Math.max(1, Math.floor(this.#view / this.rowHeight) - 1);
    const from = this.active >= 0 ? this.active : Math.min(this.position.row, this.count - 1) - 1;
    const to = Math.max(0, Math.min(KEYS[key](from, page), this.count - 1));
    this.reveal(to);
    return to;
  }

  #onClick(event) {
    const row = event.target.closest("[data-row]");
    if (row) this.#dispatch("pick", Number(row.dataset.row));
  }

  /** Set the height of the track before scrolling, and scroll before drawing the rows in view. */
  willUpdate() {
    this.style.setProperty("--row", `${this.rowHeight}px`);
    const box = this.#box;
    if (!box) return;
    this.#view = box.clientHeight;
    const track = this.#virtualScroll;
    box.firstElementChild.style.setProperty("height", `${track.height}px`);
    const aim = this.#pendingScroll ?? (this.follows ? () => track.scrollTopFor(track.total) : null);
    this.#pendingScroll = null;
    if (aim) box.scrollTop = aim(track, box.scrollTop);
    this.#scroll = box.scrollTop;
  }

  /** The first update has no box to measure. */
  firstUpdated() {
    this.requestUpdate();
  }

  updated() {
    const { offset } = this.#virtualScroll.rowsAt(this.#scroll);
    this.#box.firstElementChild.firstElementChild.style.setProperty("transform", `translateY(${offset}px)`);
  }

  render() {
    const { first, end } = this.#virtualScroll.rowsAt(this.#scroll);
    const indexes = Array.from({ length: end - first }, (_, index) => first + index);
    const rows = repeat(
      indexes,
      (index) => index,
      (index) => this.#drawRow(index),
    );
    const isDrawn = this.active >= first && this.active < end;
    return html`<div role="listbox" tabindex="0" aria-label=${this.label}
        aria-activedescendant=${isDrawn ? `row-${this.active}` : nothing}
        @scroll=${this.#onScroll} @keydown=${this.#onKeyDown} @click=${this.#onClick}>
      <div class="track" role="presentation"><div class="window" role="presentation">${rows}</div></div>
    </div>`;
  }

  #drawRow(index) {
    const { seq, kind, state, selected, title, content } = this.rowAt(index);
    return html`<div role="option" id="row-${index}" aria-setsize=${this.count} aria-posinset=${index + 1}
      aria-selected=${selected} ?data-active=${index === this.active} data-row=${index} data-seq=${seq}
      data-kind=${kind} data-state=${state ?? nothing} title=${title ?? nothing}>${content}</div>`;
  }
}

customElements.define("tl-list", VirtualList);
