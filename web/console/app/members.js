/**
 * `<tl-members>`: the dialog behind *Share*: the members of the session, its open links and invitations, and a form
 * that creates a link for one guest. `invites` are the roles that this person may invite. Another session resets the
 * dialog.
 */

import { html, nothing } from "lit";
import { keyed } from "lit/directives/keyed.js";

import { SessionElement } from "../ui/base-element.js";
import { copyText } from "../ui/clipboard.js";
import { formatShortTime, utcTooltip } from "../ui/time-format.js";
import "../panels/panels.css";

const EMPTY = Object.freeze({ link: "", refusal: "", copied: false, open: [] });

export class MembersDialog extends SessionElement {
  static properties = {
    invites: { attribute: false },
    link: { state: true },
    refusal: { state: true },
    copied: { state: true },
    open: { state: true },
  };
  #lastMembers = ""; // the members when the invites were loaded

  constructor() {
    super();
    Object.assign(this, { invites: [], ...EMPTY });
  }

  willUpdate(changed) {
    super.willUpdate(changed);
    if (changed.has("session")) {
      Object.assign(this, EMPTY);
      this.#dialog?.close();
    } else if (this.#dialog?.open && this.#lastMembers !== this.#membersText()) {
      this.#loadInvites(); // a new member may have used one of the links
    }
  }

  #membersText() {
    return JSON.stringify(this.session.snapshot.members);
  }

  async #loadInvites() {
    const { session } = this;
    this.#lastMembers = this.#membersText();
    if (this.invites.length === 0) return;
    await this.attempt(async () => {
      const open = await session.client.listInvites({ session: session.id });
      if (session === this.session) this.open = open;
    });
  }

  get #dialog() {
    return this.querySelector("dialog");
  }

  async show() {
    await this.updateComplete;
    this.#dialog.showModal();
    await this.#loadInvites();
  }

  render() {
    const { id, me, snapshot } = this.session;
    const known = snapshot.members.filter(({ roles }) => roles.length > 0);
    return html`<dialog aria-labelledby="members-title">
      <div class="head"><h2 id="members-title">Members</h2>
        <button class="plain" @click=${() => this.#dialog.close()}>Close</button></div>
      <ul class="rows">${known.map(
        ({ principal, name, roles }) => html`<li>
        <strong title=${principal}>${name ?? principal}</strong>
        ${principal === me.name ? html`<span class="soft">you</span>` : nothing}
        ${roles.map((role) => html` <span class="chip">${role}</span>`)}</li>`,
      )}</ul>
      ${this.open.length ? this.#drawInvites() : nothing}
      ${this.invites.length ? keyed(id, this.#drawForm()) : nothing}
    </dialog>`;
  }

  #drawInvites() {
    return html`<h3>Open links and invitations</h3>
      <ul class="rows" aria-label="Open links and invitations">${this.open.map(
        ({ invite, principal, name, roles, by, expires }) => html`<li class="row">
        <span class="grow">${principal ? html`<strong>${this.session.displayName(principal)}</strong>` : html`<strong>${name ?? "A link"}</strong>`}
          ${roles.map((role) => html`<span class="chip">${role}</span> `)}
          <span class="soft" title=${utcTooltip(expires)}>by ${this.session.displayName(by)}, until ${formatShortTime(expires)}</span></span>
        <button @click=${() => this.#revoke(invite)}>Revoke<span class="unseen"> ${name ?? ""} ${roles.join(", ")} by ${by}</span></button>
      </li>`,
      )}</ul>`;
  }

  async #revoke(invite) {
    const { session } = this;
    Object.assign(this, { link: "", copied: false }); // the shown link may be of this invite
    await this.attempt(() => session.client.revokeInvite(session.id, invite));
    if (session === this.session) await this.#loadInvites();
  }

  #drawForm() {
    return html`<h3>Invite a guest</h3>
      <form class="row" @submit=${this.#createLink}>
        <label class="grow">For whom
          <input name="name" maxlength="100" autocomplete="off" placeholder="e.g. Sarah"></label>
        <label>Role of the guest
          <select name="role" required>${this.invites.map((role) => html`<option>${role}</option>`)}</select></label>
        <button>Make a link</button>
      </form>
      <p class="problem" role="alert">${this.refusal}</p>
      ${this.link ? this.#drawLink() : nothing}`;
  }

  #drawLink() {
    return html`<p class="row"><input class="grow mono" readonly aria-label="The link" .value=${this.link}
        @focus=${(event) => event.target.select()}>
      <button @click=${this.#copy}>${this.copied ? "Copied" : "Copy"}</button></p>
      <p class="soft" role="status">It works once, within 7 days, until you revoke it. The person who redeems it is a
        member from then on.</p>`;
  }

  async #createLink(event) {
    event.preventDefault();
    const { session } = this;
    const fields = new FormData(event.target);
    const name = fields.get("name").trim() || undefined;
    Object.assign(this, { link: "", refusal: "", copied: false });
    try {
      const path = await session.client.link(session.id, [fields.get("role")], { name });
      if (session === this.session) this.link = new URL(path, location.href).href;
    } catch (error) {
      if (session === this.session) this.refusal = error.message;
    }
    if (session === this.session) await this.#loadInvites();
  }

  async #copy() {
    if (await this.attempt(() => copyText(this.link))) this.copied = true;
  }
}

customElements.define("tl-members", MembersDialog);
