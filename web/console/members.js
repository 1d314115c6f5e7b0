/**
 * `<tl-members>`: who is in the session, and a form that makes a link for one guest. The server says who may
 * make one; a refusal is told at the form.
 */

import { html, nothing } from "lit";

import { SessionElement } from "./element.js";

const GUEST = "guest_"; // guests make no links

export class Members extends SessionElement {
  static properties = { link: { state: true }, refusal: { state: true }, copied: { state: true } };

  constructor() {
    super();
    Object.assign(this, { link: "", refusal: "", copied: false });
  }

  willUpdate(changed) {
    super.willUpdate(changed);
    if (changed.has("session")) Object.assign(this, { link: "", refusal: "", copied: false });
  }

  render() {
    const { app: { channels }, me, record: { tree: { members } } } = this.session;
    const known = [...members].filter(([, roles]) => roles.length > 0);
    return html`<section class="members" aria-labelledby="members-title">
      <h2 id="members-title">Members</h2>
      <ul class="rows">${known.map(([principal, roles]) => html`<li>
        <strong>${principal}</strong>${principal === me.name ? html` <span class="soft">you</span>` : nothing}
        ${roles.map((role) => html` <span class="chip">${role}</span>`)}</li>`)}</ul>
      ${me.name.startsWith(GUEST) ? nothing : this.#form(new Set([...channels, ...[...members.values()].flat()]))}
    </section>`;
  }

  #form(roles) {
    return html`<details><summary>Make a link</summary>
      <form class="row" @submit=${this.#make}>
        <label class="grow">Role of the guest
          <input name="role" list="roles" required maxlength="32" pattern="[a-z][a-z0-9_\\-]*" autocomplete="off"
            title="Small letters, digits, - and _"></label>
        <datalist id="roles">${[...roles].map((role) => html`<option value=${role}></option>`)}</datalist>
        <button>Make a link</button>
      </form>
      <p class="problem" role="alert">${this.refusal}</p>
      ${this.link ? this.#made() : nothing}
    </details>`;
  }

  #made() {
    return html`<p class="row"><input class="grow mono" readonly aria-label="The link" .value=${this.link}
        @focus=${(event) => event.target.select()}>
      <button @click=${this.#copy}>${this.copied ? "Copied" : "Copy"}</button></p>
      <p class="soft" role="status">It works once, within 7 days. Whoever opens it is a member from then on.</p>`;
  }

  async #make(event) {
    event.preventDefault();
    const { session } = this;
    const role = new FormData(event.target).get("role").trim();
    Object.assign(this, { link: "", refusal: "", copied: false });
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
