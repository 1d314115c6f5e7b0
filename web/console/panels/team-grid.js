/**
 * `<tl-roster>`: the team of a process on its nine seats, and what a person may tell it. Nothing where there is
 * neither. Names, souls and colours are the model's words: they are text, and a colour is painted only if it
 * is one.
 */

import { html, nothing } from "lit";

import { Roster } from "../../client/folds/roster.js";
import { SessionElement } from "../ui/base-element.js";
import { Staff, colour, endSession, offerWork, sleepers, startSession, summon, wake } from "../store/team-commands.js";

const LOOKS = { alive: "good", hatching: "busy", sleeping: "" };

const MIDDLE = 4; // of the nine seats

export class RosterGrid extends SessionElement {
  render() {
    const { app, record } = this.session;
    const teams = record.fold(Roster).report();
    if (!app.process && !teams.length) return nothing;
    const staff = record.fold(Staff);
    return html`<section class="roster" aria-labelledby="team-title">
      <h2 id="team-title">Team</h2>
      ${app.process ? this.#process(staff) : nothing}
      ${teams.map((team) => this.#team(team, staff))}
      ${app.process ? this.#offer(teams) : nothing}
    </section>`;
  }

  #command(command) {
    const { client, id } = this.session;
    return this.attempt(() => client.dispatch(id, [{ type: "ui.command", payload: { command } }]));
  }

  #process(staff) {
    const { process } = staff;
    const state = process
      ? html`<span class="chip good">runs</span> ${process.model ?? ""} ${process.demo_mode ? "(demo)" : ""}`
      : html`<span class="chip">not running</span>`;
    return html`<div class="row">
      <p class="grow">Process ${state}</p>
      <div class="row">
        <button @click=${() => this.#command(summon())}>Summon</button>
        ${
          process
            ? html`<button class="danger" @click=${() => this.#command(endSession())}>End session</button>`
            : html`<button class="strong" @click=${() => this.#command(startSession(staff))}>Start session</button>`
        }
      </div>
    </div>`;
  }

  #team({ channel, hatching, grid }, staff) {
    const asleep = this.session.app.process ? sleepers(grid) : [];
    return html`<div class="team">
      ${channel ? html`<h3>${channel}</h3>` : nothing}
      ${hatching ? html`<p class="soft" role="status">Somebody is expected.</p>` : nothing}
      <ol class="seats" start="0">${grid.map((member, seat) => this.#seat(member, seat, staff))}</ol>
      ${
        asleep.length > 1
          ? html`<button @click=${() => this.#command(wake(asleep, staff))}>
        Wake all ${asleep.length}</button>`
          : nothing
      }
    </div>`;
  }

  #seat(member, seat, staff) {
    if (member === null) return this.#empty(seat);
    const sleeps = this.session.app.process && member.state === "sleeping";
    return html`<li class="seat" data-state=${member.state}>
      <span class="swatch" data-colour=${colour(member.color)} title=${member.color_name}></span>
      <strong>${member.name}</strong>
      <span class="chip ${LOOKS[member.state]}">${member.state}</span>
      ${member.soul ? html`<p class="soul">${member.soul}</p>` : nothing}
      ${
        sleeps
          ? html`<button @click=${() => this.#command(wake([member], staff))}>
        Wake<span class="unseen"> ${member.name}, seat ${seat}</span></button>`
          : nothing
      }
    </li>`;
  }

  /** The middle is where the process itself sits, which joins no team. */
  #empty(seat) {
    const { process, agents } = this.session.app;
    if (process && seat === MIDDLE) return html`<li class="seat" data-state="lead"><strong>${agents[0]}</strong></li>`;
    return html`<li class="seat soft" data-state="free">Seat ${seat}, free</li>`;
  }

  /** Names are not unique: whoever has one is offered the work. */
  #offer(teams) {
    const names = new Set(teams.flatMap(({ grid }) => grid.filter(Boolean).map(({ name }) => name)));
    if (!names.size) return nothing;
    return html`<details class="offer"><summary>Offer work</summary>
      <form @submit=${this.#offered}>
        <label>To <select name="agent">${[...names].map((name) => html`<option>${name}</option>`)}</select></label>
        <label>Jobs, one on each line <textarea name="jobs" rows="3" required></textarea></label>
        <button>Offer</button>
      </form></details>`;
  }

  async #offered(event) {
    event.preventDefault();
    const form = event.target;
    const { agent, jobs } = Object.fromEntries(new FormData(form));
    const command = offerWork(agent, jobs);
    if (command.jobs.length && (await this.#command(command))) form.reset();
  }

  /** Colours are set where the content security policy lets a script set them. */
  updated() {
    for (const swatch of this.querySelectorAll(".swatch")) swatch.style.backgroundColor = swatch.dataset.colour;
  }
}

customElements.define("tl-roster", RosterGrid);
