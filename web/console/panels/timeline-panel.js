/**
 * `<tl-waterfall>`: what took time in a turn, a bar for each agent, completion and call on one axis. All turns stand
 * one below the other, each from its own beginning, on the axis of the longest.
 *
 * A row is text first: name, state, time; the bar only repeats it. Choosing a row shows its first event.
 */

import { html, nothing } from "lit";

import { TickingElement } from "../ui/base-element.js";
import "../ui/virtual-list.js";
import { remember, remembered } from "../app/settings.js";
import { middleCut } from "../ui/middle-ellipsis.js";
import { duration } from "../ui/format.js";
import { goToEvent } from "../app/router.js";
import { Spans, ticks } from "../store/spans.js";
import { styled } from "../ui/style-properties.js";
import "./events.css";

const ROW_PX = 26;
const INDENTS = 8;
const TITLE_CHARS = 60;
const LABELLED = 0.85; // of the axis: a label further on would be cut
/** Words for states that need one. */
const STATES = { open: "running", waiting: "waiting", error: "failed", cancelled: "cancelled" };
const KEY = [
  ["agent", "Agent"],
  ["completion", "Model"],
  ["call", "Tool"],
  ["wait", "Waiting"],
  ["error", "Failed"],
];

export class Waterfall extends TickingElement {
  static properties = { wanted: { state: true }, active: { state: true } };
  #named = null;

  constructor() {
    super();
    Object.assign(this, { wanted: "latest", active: null });
  }

  willUpdate(changed) {
    super.willUpdate(changed);
    if (this.session.id === this.#named) return;
    this.#named = this.session.id;
    this.wanted = remembered(`timeline ${this.#named}`, "latest");
  }

  #choose({ target }) {
    this.wanted = target.value;
    remember(`timeline ${this.#named}`, this.wanted);
  }

  /** The turns to show; one that is not there any more is the latest. */
  #turns(turns) {
    if (this.wanted === "all") return turns;
    const found = turns.filter(([trace]) => trace === this.wanted);
    return found.length ? found : turns.slice(-1);
  }

  render() {
    const spans = this.session.record.fold(Spans);
    const turns = spans.begun;
    if (turns.length === 0) return html`<p class="blank">No agent has run yet.</p>`;
    const shown = this.#turns(turns);
    const { now } = this;
    const total = Math.max(1, ...shown.map(([trace, turn]) => spans.endOf(turn, trace, now) - turn.start));
    const rows = shown.flatMap(([trace, turn]) => spans.rows(trace).map((row) => ({ ...row, turn })));
    const active = rows.findIndex(({ span }) => span === this.active);
    return html`
      <div class="filters">${this.#picker(turns)}${this.#key()}</div>
      ${this.#axis(total)}
      <div class="listed" ${styled({ "--step": percent((ticks(total)[1] ?? total) / total) })}>
        <tl-list class="spans" label="Timeline" .count=${rows.length} .rowHeight=${ROW_PX} .active=${active}
          .rowAt=${(row) => this.#row(spans, rows[row], { total, now })}
          @pick=${({ detail }) => goToEvent(rows[detail].span.seq)}
          @move=${({ detail }) => (this.active = rows[detail].span)}></tl-list>
      </div>`;
  }

  #picker(turns) {
    const title = ([, { name }], index) => `${index + 1}. ${name.slice(0, TITLE_CHARS)}`;
    const named = turns.map((turn, index) => [turn[0], title(turn, index)]).reverse();
    const choices = [["latest", "Latest turn"], ["all", `All ${turns.length} turns`], ...named];
    return html`<select aria-label="Turn" @change=${this.#choose}>${choices.map(
      ([value, words]) => html`
      <option value=${value} .selected=${value === this.wanted}>${words}</option>`,
    )}</select>`;
  }

  #key() {
    return html`<ul class="colours" aria-label="Colours">${KEY.map(
      ([kind, words]) => html`
      <li><span class="span" data-kind=${kind}></span>${words}</li>`,
    )}</ul>`;
  }

  #axis(total) {
    return html`<div class="axis" aria-hidden="true"><span class="name">Time in the turn</span>
      <div class="bars">${ticks(total)
        .filter((tick) => tick <= LABELLED * total)
        .map(
          (tick) => html`
        <span ${styled({ left: percent(tick / total) })}>${duration(tick)}</span>`,
        )}</div></div>`;
  }

  #row(spans, { span, depth, trace, turn }, { total, now }) {
    const end = spans.endOf(span, trace, now);
    const state = span.isResting ? "waiting" : span.state;
    const at = (time) => percent((time - turn.start) / total);
    const bar = (kind, from, to) =>
      html`<span class="span" data-kind=${kind} data-state=${state} ${styled({
        left: at(from),
        width: percent((to - from) / total),
      })}></span>`;
    const content = html`
      <span class="name" ${styled({ "--depth": Math.min(depth, INDENTS) })}>
        ${this.#title(span)}
        ${STATES[state] ? html`<span class="state">${STATES[state]}</span>` : nothing}
        <span class="took">${duration(end - span.start)}</span></span>
      <span class="bars">${bar(span.kind, span.start, end)}
        ${span.waits.map(([from, to]) => bar("wait", from, to ?? end))}</span>`;
    const about = [span.name, span.subject].filter(Boolean).join(", ");
    const title = `${about}: ${duration(end - span.start)}, events ${span.seq} to ${span.last}`;
    return { seq: span.seq, kind: span.kind, state, selected: false, title, content };
  }

  #title({ kind, name, subject }) {
    if (kind === "turn") return html`<span class="title">${name.slice(0, 2 * TITLE_CHARS)}</span>`;
    if (kind === "completion") return html`<span class="title">${middleCut(name)}</span>`;
    return html`<span class="title">${name} <span class="subject">${subject}</span></span>`;
  }
}

const percent = (part) => `${(100 * part).toFixed(3)}%`;

customElements.define("tl-waterfall", Waterfall);
