/**
 * `<tl-agents>`: every invocation of the session, ended ones too, by turn (the latest first) and nested by who
 * called whom, below the team of a process, if there is one.
 */

import { html, nothing } from "lit";

import { Meters } from "../../client/folds/meters.js";
import { SessionElement } from "../ui/base-element.js";
import { toEvent } from "../app/event-link.js";
import { Invocations, standing } from "../store/invocations.js";
import { cost, formatCount } from "../ui/format.js";
import "./team-grid.js";
import "./panels.css";

const MORE = 30; // turns that are shown at first, and that come with every step
const VIA = { call: "called", handoff: "took over", prompt: "answers" };

export class Agents extends SessionElement {
  static properties = { shown: { state: true } };

  constructor() {
    super();
    this.shown = MORE;
  }

  render() {
    const { turns } = this.session.record.fold(Invocations);
    const latest = [...turns.values()].reverse().filter(({ agents }) => agents.length > 0);
    return html`<div class="pad">
      <tl-roster .session=${this.session}></tl-roster>
      <section aria-labelledby="agents-title">
        <h2 id="agents-title">Agents</h2>
        ${latest.length ? nothing : html`<p class="soft">No agent has started yet.</p>`}
        ${latest.slice(0, this.shown).map((turn) => this.#turn(turn))}
        ${
          latest.length > this.shown
            ? html`<button @click=${() => (this.shown += MORE)}>
          Show earlier turns (${formatCount(latest.length - this.shown)})</button>`
            : nothing
        }
      </section>
    </div>`;
  }

  #turn({ turn, number, seq, words, agents }) {
    return html`<section class="turn" data-turn=${turn}>
      <h3>${toEvent(seq, `Turn ${number}`)} <span class="soft">${words}</span></h3>
      ${this.#list(agents)}
    </section>`;
  }

  #list(agents) {
    return html`<ul class="agents">${agents.map(
      (agent) => html`<li>
      ${this.#agent(agent)}${agent.agents.length ? this.#list(agent.agents) : nothing}</li>`,
    )}</ul>`;
  }

  #agent(agent) {
    const { record } = this.session;
    const [words, look] = standing(agent, record.tree);
    const meter = record.fold(Meters).agents.get(agent.agent_id);
    return html`<div class="agent" data-state=${words}>
      <strong>${toEvent(agent.seq, agent.name)}</strong>
      ${agent.subject ? html`<span class="subject">${agent.subject}</span>` : nothing}
      <span class="chip ${look}">${words}</span>
      ${agent.channel ? html`<span class="chip">${agent.channel}</span>` : nothing}
      <small class="soft">${VIA[agent.via]}${this.#links(agent)}${agent.model ? `, ${agent.model}` : ""}</small>
      ${
        meter?.completions
          ? html`<small class="numbers">${formatCount(meter.completions)}
        ${meter.completions === 1 ? "step" : "steps"}, ${formatCount(meter.input_tokens + meter.output_tokens)} tokens,
        ${cost(meter)}</small>`
          : nothing
      }
    </div>`;
  }

  /** Whom it goes on for, and who goes on for it. */
  #links({ from, to, resumes }) {
    const { byId } = this.session.record.fold(Invocations);
    const link = (words, id) => {
      const other = byId.get(id);
      return id === null ? nothing : html` ${words} ${other ? toEvent(other.seq, other.name) : id}`;
    };
    return html`${link("from", from)}${link("and handed over to", to)}${link("and goes on with", resumes)}`;
  }
}

customElements.define("tl-agents", Agents);
