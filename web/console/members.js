/**
 * `<tl-members>`: the dialog behind *Share*: who is in the session, and a form that makes a link for one guest.
 * `invites` are the roles that this person may make links for, as the server says. Nothing of it outlives its session.
 */

import { html, nothing } from "lit";
import { keyed } from "lit/directives/keyed.js";

import { Names } from "../client/names.js";
import { SessionElement } from "./element.js";
import "./panels.css";

const EMPTY = Object.freeze({ link: "", refusal: "", copied: false });

export class Members extends SessionElement {
  static properties = {
    invites: { attribute: false },
    link: { state: true },
    refusal: { state: true },
    copied: { state: true },
  };

  constructor() {
    super();
    Object.assign(this, { invites: [], ...EMPTY });
  }

  willUpdate(changed) {
    super.willUpdate(changed);
    if (!changed.has("session")) return;
    Object.assign(this, EMPTY);
    this.#dialog?.close();
  }

  get #dialog() {
    return this.querySelector("dialog");
  }

  async show() {
    await this.updateComplete;
    this.#dialog.showModal();
  }

  render() {
    const { id, me, record } = this.session;
    const names = record.fold(Names);
    const known = [...record.tree.members].filter(([, roles]) => roles.length > 0);
    return html`<dialog aria-labelledby="members-title">
      <div class="head"><h2 id="members-title">Members</h2>
        <button class="plain" @click=${() => this.#dialog.close()}>Close</button></div>
      <ul class="rows">${known.map(
        ([principal, roles]) => html`<li>
        <strong title=${principal}>${names.of(principal)}</strong>
        ${principal === me.name ? html`<span class="soft">you</span>` : nothing}
        ${roles.map((role) => html` <span class="chip">${role}</span>`)}</li>`,
      )}</ul>
      ${this.invites.length ? keyed(id, this.#form()) : nothing}
    </dialog>`;
  }

  #form() {
    return html`<h3>Invite a guest</h3>
      <form class="row" @submit=${this.#make}>
        <label class="grow">Role of the guest
          <select name="role" required>${this.invites.map((role) => html`<option>${role}</option>`)}</select></label>
        <button>Make a link</button>
      </form>
      <p class="problem" role="alert">${this.refusal}</p>
      ${this.link ? this.#made() : nothing}`;
  }

  #made() {
    return html`<p class="row"><input class="grow mono" readonly aria-label="The link" .value=${this.link}
        @focus=${(event) => event.target.select()}>
      <button @click=${this.#copy}>${this.copied ? "Copied" : "Copy"}</button></p>
      <p class="soft" role="status">It works once, within 7 days. The guest who redeems it is a member from then on.</p>`;
  }

  async #make(event) {
    event.preventDefault();
    const { session } = this;
    const role = new FormData(event.target).get("role");
    Object.assign(this, EMPTY);
    try {
      const path = await session.client.link(session.id, [role]);
      if (session === this.session) this.link = new URL(path, location.href).href;
    } catch (error) {
      if (session === this.session) this.refusal = error.message;
    }
  }

  async #copy() {
    await this.attempt(async () => {
      await navigator.clipboard.writeText(this.link);
      this.copied = true;
    });
  }
}

customElements.define("tl-members", Members);
