/**
 * `<tl-waterfall>`: how long each agent, completion and call of a turn took, as bars on one axis. With all turns, each
 * starts at 0 on the axis of the longest.
 *
 * A row is text first (name, state, time); the bar repeats it. Choosing a row opens its first event.
 */

import { html, nothing } from "lit";

import { showEvent } from "../app/router.js";
import { loadSetting, saveSetting } from "../app/storage.js";
import { Spans, axisTicks } from "../store/spans.js";
import { TickingElement } from "../ui/base-element.js";
import { agentColourClass } from "../ui/agent-colour.js";
import { formatDuration } from "../ui/format.js";
import { middleEllipsis } from "../ui/middle-ellipsis.js";
import { setStyles } from "../ui/style-properties.js";
import "../ui/virtual-list.js";
import "./events.css";

const ROW_PX = 26;
const MAX_INDENT = 8;
const MAX_TITLE_CHARS = 60;
const MAX_LABEL_POSITION = 0.85; // of the axis: a later label would be cut
const STATE_LABELS = { open: "running", waiting: "waiting", error: "failed", cancelled: "cancelled" };
const LEGEND = [
  ["agent", "Agent"],
  ["completion", "Model"],
  ["call", "Tool"],
  ["wait", "Waiting"],
  ["error", "Failed"],
];

export class TimelinePanel extends TickingElement {
  static properties = { wanted: { state: true }, active: { state: true } };
  #sessionId = null;

  constructor() {
    super();
    Object.assign(this, { wanted: "latest", active: null });
  }

  willUpdate(changed) {
    super.willUpdate(changed);
    if (this.session.id === this.#sessionId) return;
    this.#sessionId = this.session.id;
    this.wanted = loadSetting(`timeline ${this.#sessionId}`, "latest");
  }

  #choose({ target }) {
    this.wanted = target.value;
    saveSetting(`timeline ${this.#sessionId}`, this.wanted);
  }

  /** Return the chosen turns; the latest if the chosen one is gone. */
  #chosenTurns(turns) {
    if (this.wanted === "all") return turns;
    const found = turns.filter(([trace]) => trace === this.wanted);
    return found.length ? found : turns.slice(-1);
  }

  render() {
    const spans = this.session.log.fold(Spans);
    const turns = spans.startedTurns;
    if (turns.length === 0) return html`<p class="blank">No agent has run yet.</p>`;
    const shown = this.#chosenTurns(turns);
    const { now } = this;
    const total = Math.max(1, ...shown.map(([trace, turn]) => spans.spanEnd(turn, trace, now) - turn.start));
    const rows = shown.flatMap(([trace, turn]) => spans.rows(trace).map((row) => ({ ...row, turn })));
    const active = rows.findIndex(({ span }) => span === this.active);
    return html`
      <div class="filters">${this.#drawTurnSelect(turns)}${this.#drawLegend()}</div>
      ${this.#drawAxis(total)}
      <div class="listed" ${setStyles({ "--step": percent((axisTicks(total)[1] ?? total) / total) })}>
        <tl-list class="spans" label="Timeline" .count=${rows.length} .rowHeight=${ROW_PX} .active=${active}
          .rowAt=${(row) => this.#drawRow(spans, rows[row], { total, now })}
          @pick=${({ detail }) => showEvent(rows[detail].span.seq)}
          @move=${({ detail }) => (this.active = rows[detail].span)}></tl-list>
      </div>`;
  }

  #drawTurnSelect(turns) {
    const title = ([, { name }], index) => `${index + 1}. ${name.slice(0, MAX_TITLE_CHARS)}`;
    const named = turns.map((turn, index) => [turn[0], title(turn, index)]).reverse();
    const choices = [["latest", "Latest turn"], ["all", `All ${turns.length} turns`], ...named];
    return html`<select aria-label="Turn" @change=${this.#choose}>${choices.map(
      ([value, words]) => html`
      <option value=${value} .selected=${value === this.wanted}>${words}</option>`,
    )}</select>`;
  }

  #drawLegend() {
    return html`<ul class="colours" aria-label="Colours">${LEGEND.map(
      ([kind, words]) => html`
      <li><span class="span" data-kind=${kind}></span>${words}</li>`,
    )}</ul>`;
  }

  #drawAxis(total) {
    return html`<div class="axis" aria-hidden="true"><span class="name">Time in the turn</span>
      <div class="bars">${axisTicks(total)
        .filter((tick) => tick <= MAX_LABEL_POSITION * total)
        .map(
          (tick) => html`
        <span ${setStyles({ left: percent(tick / total) })}>${formatDuration(tick)}</span>`,
        )}</div></div>`;
  }

  #drawRow(spans, { span, depth, trace, turn }, { total, now }) {
    const end = spans.spanEnd(span, trace, now);
    const state = span.isResting ? "waiting" : span.state;
    const colour = span.kind === "agent" ? agentColourClass(span.name) : "";
    const at = (time) => percent((time - turn.start) / total);
    const bar = (kind, from, to) =>
      html`<span class="span ${colour}" data-kind=${kind} data-state=${state} ${setStyles({
        left: at(from),
        width: percent((to - from) / total),
      })}></span>`;
    const content = html`
      <span class="name" ${setStyles({ "--depth": Math.min(depth, MAX_INDENT) })}>
        ${this.#drawTitle(span)}
        ${STATE_LABELS[state] ? html`<span class="state">${STATE_LABELS[state]}</span>` : nothing}
        <span class="took">${formatDuration(end - span.start)}</span></span>
      <span class="bars">${bar(span.kind, span.start, end)}
        ${span.waits.map(([from, to]) => bar("wait", from, to ?? end))}</span>`;
    const about = [span.name, span.subject].filter(Boolean).join(", ");
    const title = `${about}: ${formatDuration(end - span.start)}, events ${span.seq} to ${span.last}`;
    return { seq: span.seq, kind: span.kind, state, selected: false, title, content };
  }

  #drawTitle({ kind, name, subject }) {
    if (kind === "turn") return html`<span class="title">${name.slice(0, 2 * MAX_TITLE_CHARS)}</span>`;
    if (kind === "completion") return html`<span class="title">${middleEllipsis(name)}</span>`;
    return html`<span class="title ${kind === "agent" ? agentColourClass(name) : ""}">${name} <span class="subject">${subject}</span></span>`;
  }
}

const percent = (part) => `${(100 * part).toFixed(3)}%`;

customElements.define("tl-waterfall", TimelinePanel);
