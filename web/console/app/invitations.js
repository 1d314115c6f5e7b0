/**
 * `<tl-invitations>`: who invites the person who is signed in to what, with *Accept* and *Decline*. Nothing is drawn
 * while there are none. A problem is told by the console.
 */

import { html, nothing } from "lit";

import { Unreachable } from "../../client/api/errors.js";
import { Element } from "../ui/base-element.js";
import { go } from "./router.js";
import { whenOf, zoneOf } from "../ui/time-format.js";

const FRESH_MS = 15_000; // how often the invitations are asked for while the page is looked at

export class Invitations extends Element {
  static properties = { client: { attribute: false }, invites: { state: true } };
  #timer = null;

  constructor() {
    super();
    this.invites = [];
  }

  connectedCallback() {
    super.connectedCallback();
    this.#timer = setInterval(() => document.hidden || this.#ask(), FRESH_MS);
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    clearInterval(this.#timer);
  }

  willUpdate(changed) {
    if (changed.has("client")) this.#ask();
  }

  async #ask() {
    try {
      this.invites = (await this.client?.listInvites()) ?? [];
    } catch (error) {
      if (!(error instanceof Unreachable)) this.#tell(error); // the bar says that already
    }
  }

  #tell(error) {
    this.dispatchEvent(new CustomEvent("problem", { detail: error, bubbles: true }));
  }

  render() {
    if (this.invites.length === 0) return nothing;
    return html`<section class="invitations" aria-label="Invitations">
      ${this.invites.map((invite) => this.#invite(invite))}</section>`;
  }

  #invite(invite) {
    const { session_id, title, app, roles, by, expires } = invite;
    const accept = () => this.#answer("acceptInvite", invite, () => go({ session: session_id }));
    const decline = () => this.#answer("declineInvite", invite);
    return html`<div class="invitation"><p><strong>${by}</strong> invites you to <strong>${title || app}</strong>
      as ${roles.join(" and ")}. <small title=${zoneOf(expires)}>Until ${whenOf(expires)}</small></p>
      <button class="strong" @click=${accept}>Accept<span class="unseen"> ${title || app}</span></button>
      <button @click=${decline}>Decline<span class="unseen"> ${title || app}</span></button></div>`;
  }

  async #answer(method, { session_id, invite }, then = () => {}) {
    try {
      await this.client[method](session_id, invite);
      then();
    } catch (error) {
      this.#tell(error);
    }
    this.dispatchEvent(new CustomEvent("changed", { bubbles: true }));
    await this.#ask();
  }
}

customElements.define("tl-invitations", Invitations);
