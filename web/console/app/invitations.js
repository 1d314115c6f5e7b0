/**
 * `<tl-invitations>`: the open invitations of the signed-in person, with *Accept* and *Decline*. Draws nothing if
 * there are none. Errors are dispatched as `error-message`.
 */

import { html, nothing } from "lit";

import { Unreachable } from "../../client/api/errors.js";
import { ConsoleElement } from "../ui/base-element.js";
import { formatShortTime, utcTooltip } from "../ui/time-format.js";
import { navigate } from "./router.js";

const REFRESH_MS = 15_000; // while the page is visible

export class Invitations extends ConsoleElement {
  static properties = { client: { attribute: false }, invites: { state: true } };
  #timer = null;

  constructor() {
    super();
    this.invites = [];
  }

  connectedCallback() {
    super.connectedCallback();
    this.#timer = setInterval(() => document.hidden || this.#load(), REFRESH_MS);
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    clearInterval(this.#timer);
  }

  willUpdate(changed) {
    if (changed.has("client")) this.#load();
  }

  async #load() {
    try {
      this.invites = (await this.client?.listInvites()) ?? [];
    } catch (error) {
      if (!(error instanceof Unreachable)) this.#reportError(error); // the bar says that already
    }
  }

  #reportError(error) {
    this.dispatchEvent(new CustomEvent("error-message", { detail: error, bubbles: true }));
  }

  render() {
    if (this.invites.length === 0) return nothing;
    return html`<section class="invitations" aria-label="Invitations">
      ${this.invites.map((invite) => this.#drawInvite(invite))}</section>`;
  }

  #drawInvite(invite) {
    const { session_id, title, app, roles, by, expires } = invite;
    const accept = () => this.#answer("acceptInvite", invite, () => navigate({ session: session_id }));
    const decline = () => this.#answer("declineInvite", invite);
    return html`<div class="invitation"><p><strong>${by}</strong> invites you to <strong>${title || app}</strong>
      as ${roles.join(" and ")}. <small title=${utcTooltip(expires)}>Until ${formatShortTime(expires)}</small></p>
      <button class="strong" @click=${accept}>Accept<span class="unseen"> ${title || app}</span></button>
      <button @click=${decline}>Decline<span class="unseen"> ${title || app}</span></button></div>`;
  }

  async #answer(method, { session_id, invite }, then = () => {}) {
    try {
      await this.client[method](session_id, invite);
      then();
    } catch (error) {
      this.#reportError(error);
    }
    this.dispatchEvent(new CustomEvent("sessions-changed", { bubbles: true }));
    await this.#load();
  }
}

customElements.define("tl-invitations", Invitations);
