/**
 * `<tl-roster>`: the team of a process on its nine seats, and the commands a person may send to it. Draws nothing
 * without a team or a process. Names, souls and colours come from a model: they are text, and only a valid colour is
 * painted.
 */

import { html, nothing } from "lit";

import { Roster } from "../../client/team/index.js";
import {
  ProcessStatus,
  endSessionCommand,
  offerWorkCommand,
  safeColor,
  sleepingMembers,
  startSessionCommand,
  summonCommand,
  wakeCommand,
} from "../store/team-commands.js";
import { SessionElement } from "../ui/base-element.js";

const STATE_CLASSES = { alive: "good", hatching: "work", sleeping: "" };

const LEAD_SEAT = 4; // of the nine seats

export class TeamGrid extends SessionElement {
  render() {
    const { app, log } = this.session;
    const teams = log.fold(Roster).report();
    if (!app.process && !teams.length) return nothing;
    const status = log.fold(ProcessStatus);
    return html`<section class="roster" aria-labelledby="team-title">
      <h2 id="team-title">Team</h2>
      ${app.process ? this.#drawProcess(status) : nothing}
      ${teams.map((team) => this.#drawTeam(team, status))}
      ${app.process ? this.#drawOfferForm(teams) : nothing}
    </section>`;
  }

  #sendCommand(command) {
    const { client, id } = this.session;
    return this.attempt(() => client.dispatch(id, [{ type: "ui.command", payload: { command } }]));
  }

  #drawProcess(status) {
    const { process } = status;
    const state = process
      ? html`<span class="chip good">runs</span> ${process.model ?? ""} ${process.demo_mode ? "(demo)" : ""}`
      : html`<span class="chip">not running</span>`;
    return html`<div class="row">
      <p class="grow">Process ${state}</p>
      <div class="row">
        <button @click=${() => this.#sendCommand(summonCommand())}>Summon</button>
        ${
          process
            ? html`<button class="danger" @click=${() => this.#sendCommand(endSessionCommand())}>End session</button>`
            : html`<button class="strong" @click=${() => this.#sendCommand(startSessionCommand(status))}>Start session</button>`
        }
      </div>
    </div>`;
  }

  #drawTeam({ channel, hatching, grid }, status) {
    const asleep = this.session.app.process ? sleepingMembers(grid) : [];
    return html`<div class="team">
      ${channel ? html`<h3>${channel}</h3>` : nothing}
      ${hatching ? html`<p class="soft" role="status">A new member is expected.</p>` : nothing}
      <ol class="seats" start="0">${grid.map((member, seat) => this.#drawSeat(member, seat, status))}</ol>
      ${
        asleep.length > 1
          ? html`<button @click=${() => this.#sendCommand(wakeCommand(asleep, status))}>
        Wake all ${asleep.length}</button>`
          : nothing
      }
    </div>`;
  }

  #drawSeat(member, seat, status) {
    if (member === null) return this.#drawEmptySeat(seat);
    const sleeps = this.session.app.process && member.state === "sleeping";
    return html`<li class="seat" data-state=${member.state}>
      <span class="swatch" data-colour=${safeColor(member.color)} title=${member.color_name}></span>
      <strong>${member.name}</strong>
      <span class="chip ${STATE_CLASSES[member.state]}">${member.state}</span>
      ${member.soul ? html`<p class="soul">${member.soul}</p>` : nothing}
      ${
        sleeps
          ? html`<button @click=${() => this.#sendCommand(wakeCommand([member], status))}>
        Wake<span class="unseen"> ${member.name}, seat ${seat}</span></button>`
          : nothing
      }
    </li>`;
  }

  /** The process itself has the middle seat, and joins no team. */
  #drawEmptySeat(seat) {
    const { process, agents } = this.session.app;
    if (process && seat === LEAD_SEAT)
      return html`<li class="seat" data-state="lead"><strong>${agents[0]}</strong></li>`;
    return html`<li class="seat soft" data-state="free">Seat ${seat}, free</li>`;
  }

  /** Names are not unique: the offer goes to every member of that name. */
  #drawOfferForm(teams) {
    const names = new Set(teams.flatMap(({ grid }) => grid.filter(Boolean).map(({ name }) => name)));
    if (!names.size) return nothing;
    return html`<details class="offer"><summary>Offer work</summary>
      <form @submit=${this.#onOfferSubmit}>
        <label>To <select name="agent">${[...names].map((name) => html`<option>${name}</option>`)}</select></label>
        <label>Jobs, one on each line <textarea name="jobs" rows="3" required></textarea></label>
        <button>Offer</button>
      </form></details>`;
  }

  async #onOfferSubmit(event) {
    event.preventDefault();
    const form = event.target;
    const { agent, jobs } = Object.fromEntries(new FormData(form));
    const command = offerWorkCommand(agent, jobs);
    if (command.jobs.length && (await this.#sendCommand(command))) form.reset();
  }

  /** The content security policy forbids style attributes; a script may set properties. */
  updated() {
    for (const swatch of this.querySelectorAll(".swatch")) swatch.style.backgroundColor = swatch.dataset.colour;
  }
}

customElements.define("tl-roster", TeamGrid);
