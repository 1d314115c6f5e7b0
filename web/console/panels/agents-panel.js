/**
 * `<tl-agents>`: every invocation of the session by turn, the latest first, nested by caller; above them the team of a
 * process, if there is one.
 */

import { html, nothing } from "lit";

import { eventLink } from "../app/router.js";
import { Invocations, invocationStatus } from "../store/invocations.js";
import { SessionElement } from "../ui/base-element.js";
import { costLabel, formatCount } from "../ui/format.js";
import { drawShowEarlier } from "../ui/show-earlier.js";
import "./team-grid.js";
import "./panels.css";

const PAGE_TURNS = 30; // per page
const VIA_LABELS = { call: "called", handoff: "took over", prompt: "answers" };

export class AgentsPanel extends SessionElement {
  static properties = { shown: { state: true } };

  constructor() {
    super();
    this.shown = PAGE_TURNS;
  }

  render() {
    const { turns } = this.session.log.fold(Invocations);
    const latest = [...turns.values()].reverse().filter(({ agents }) => agents.length > 0);
    return html`<div class="pad">
      <tl-roster .session=${this.session}></tl-roster>
      <section aria-labelledby="agents-title">
        <h2 id="agents-title">Agents</h2>
        ${latest.length ? nothing : html`<p class="soft">No agent has started yet.</p>`}
        ${latest.slice(0, this.shown).map((turn) => this.#drawTurn(turn))}
        ${drawShowEarlier(latest.length - this.shown, "turns", () => (this.shown += PAGE_TURNS))}
      </section>
    </div>`;
  }

  #drawTurn({ turn, number, seq, words, agents }) {
    return html`<section class="turn" data-turn=${turn}>
      <h3>${eventLink(seq, `Turn ${number}`)} <span class="soft">${words}</span></h3>
      ${this.#drawAgents(agents)}
    </section>`;
  }

  #drawAgents(agents) {
    return html`<ul class="agents">${agents.map(
      (agent) => html`<li>
      ${this.#drawAgent(agent)}${agent.agents.length ? this.#drawAgents(agent.agents) : nothing}</li>`,
    )}</ul>`;
  }

  #drawAgent(agent) {
    const { agents, usage } = this.session.snapshot;
    const [words, look] = invocationStatus(agent, agents);
    const meter = usage.agents.get(agent.agent_id);
    return html`<div class="agent" data-state=${words}>
      <strong>${eventLink(agent.seq, agent.name)}</strong>
      ${agent.subject ? html`<span class="subject">${agent.subject}</span>` : nothing}
      <span class="chip ${look}">${words}</span>
      ${agent.channel ? html`<span class="chip">${agent.channel}</span>` : nothing}
      <small class="soft">${VIA_LABELS[agent.via]}${this.#drawHandoffs(agent)}${agent.model ? `, ${agent.model}` : ""}</small>
      ${
        meter?.completions
          ? html`<small class="numbers">${formatCount(meter.completions)}
        ${meter.completions === 1 ? "step" : "steps"}, ${formatCount(meter.input_tokens + meter.output_tokens)} tokens,
        ${costLabel(meter)}</small>`
          : nothing
      }
    </div>`;
  }

  #drawHandoffs({ from, to, resumes }) {
    const { byId } = this.session.log.fold(Invocations);
    const link = (words, id) => {
      const other = byId.get(id);
      return id === null ? nothing : html` ${words} ${other ? eventLink(other.seq, other.name) : id}`;
    };
    return html`${link("from", from)}${link("and handed over to", to)}${link("and goes on with", resumes)}`;
  }
}

customElements.define("tl-agents", AgentsPanel);
