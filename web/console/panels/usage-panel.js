/** `<tl-usage>`: tokens, cost, calls and time of the session, by turn and by agent. An unknown price is a dash. */

import { html, nothing } from "lit";

import { eventLink } from "../app/router.js";
import { callTimes, meterElapsedMs, turnsElapsedMs } from "../store/elapsed-time.js";
import { Invocations } from "../store/invocations.js";
import { TickingElement } from "../ui/base-element.js";
import { UNKNOWN, formatCost, formatCount, formatDuration } from "../ui/format.js";
import { middleEllipsis } from "../ui/middle-ellipsis.js";
import { drawShowEarlier } from "../ui/show-earlier.js";
import "./panels.css";

const PAGE_ROWS = 50; // per page

const COLUMNS = [
  ["In", (meter) => formatCount(meter.input_tokens)],
  ["Out", (meter) => formatCount(meter.output_tokens)],
  ["Cache", (meter) => formatCount(meter.cache_read_tokens + meter.cache_creation_tokens)],
  ["Cost", formatCost],
  ["Calls", (meter) => formatCount(meter.calls)],
  ["Failed", (meter) => formatCount(meter.failed)],
  ["First token", (meter) => formatDuration(meter.first_token_ms)],
  ["Time", (meter, now) => formatDuration(meterElapsedMs(meter, now)) + (meter.running ? ", open" : "")],
];

export class UsagePanel extends TickingElement {
  static properties = { shown: { state: true } };

  constructor() {
    super();
    this.shown = { turns: PAGE_ROWS, agents: PAGE_ROWS };
  }

  render() {
    const { log, snapshot } = this.session;
    const meters = snapshot.usage;
    const { turns, byId } = log.fold(Invocations);
    if (!meters.session?.completions && !meters.turns.size) return html`<p class="pad soft">No usage yet.</p>`;
    return html`<div class="pad usage">
      <h2>Session</h2>
      ${this.#drawTotals(meters)}
      ${this.#drawTable("turns", "Turns", meters.turns, turns, ({ number, words }) => [`${number}`, words])}
      ${this.#drawTable("agents", "Agents", meters.agents, byId, ({ name, subject, model }) => [
        name,
        subject,
        model ?? "",
      ])}
    </div>`;
  }

  #drawTotals(meters) {
    const { session, turns } = meters;
    const { now } = this;
    const { tool_ms, wait_ms } = callTimes(meters, now);
    const rows = [
      ["Tokens in", formatCount(session.input_tokens)],
      ["Tokens out", formatCount(session.output_tokens)],
      ["Read from cache", formatCount(session.cache_read_tokens)],
      ["Written to cache", formatCount(session.cache_creation_tokens)],
      ["Cost", formatCost(session)],
      ["Model requests", formatCount(session.completions)],
      ["Tool calls", `${formatCount(session.calls)}${session.failed ? `, ${formatCount(session.failed)} failed` : ""}`],
      ["Time in tools", session.calls || tool_ms ? formatDuration(tool_ms) : UNKNOWN],
      ["Waiting for people", wait_ms ? formatDuration(wait_ms) : UNKNOWN],
      ["Turns", formatCount(turns.size)],
      ["Time in turns", formatDuration(turnsElapsedMs(meters, now))],
    ];
    return html`<dl class="facts">${rows.map(
      ([name, value]) => html`
      <div><dt>${name}</dt><dd>${value}</dd></div>`,
    )}</dl>`;
  }

  /** Draw the rows, the latest first, without columns that hold only zeros. */
  #drawTable(key, title, meters, known, nameOf) {
    const rows = [...meters].reverse();
    if (!rows.length) return nothing;
    const shown = this.shown[key];
    const more = () => (this.shown = { ...this.shown, [key]: shown + PAGE_ROWS });
    const { now } = this;
    const columns = COLUMNS.filter(([, value]) => rows.some(([, meter]) => value(meter, now) !== "0"));
    return html`<h2 id="usage-${key}">${title}</h2>
      <div class="scroll" role="region" tabindex="0" aria-labelledby="usage-${key}"><table class="meters">
        <thead><tr>${[title.slice(0, -1), ...columns.map(([name]) => name)].map(
          (name) => html`
          <th scope="col">${name}</th>`,
        )}</tr></thead>
        <tbody>${rows.slice(0, shown).map(([id, meter]) => this.#drawRow(known.get(id), nameOf, columns, meter))}</tbody>
      </table></div>
      ${drawShowEarlier(rows.length - shown, "ones", more)}`;
  }

  #drawRow(what, nameOf, columns, meter) {
    const [name, more, model = ""] = nameOf(what);
    const { now } = this;
    return html`<tr><th scope="row" title=${more}>${eventLink(what.seq, name)} <span class="soft">${more}</span>
        ${model ? html`<span class="soft model">${middleEllipsis(model)}</span>` : nothing}</th>
      ${columns.map(([, value]) => html`<td>${value(meter, now)}</td>`)}</tr>`;
  }
}

customElements.define("tl-usage", UsagePanel);
