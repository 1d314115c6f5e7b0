/**
 * `<tl-sessions>`: the sessions of the signed-in person by application, the last active first. A person who may not
 * create sessions sees no button for new ones, and only the applications of existing sessions.
 */

import { html, nothing } from "lit";

import { ConsoleElement } from "../ui/base-element.js";
import { formatShortTime, utcTooltip } from "../ui/time-format.js";
import "./invitations.js";
import { currentRoute, navigate, onPlainClick } from "./router.js";

const REFRESH_MS = 15_000; // while the page is visible
const STATE_LABELS = { running: "running", waiting: "needs your answer", closed: "closed", idle: "" };

const lastActiveFirst = (one, other) => Date.parse(other.last_activity) - Date.parse(one.last_activity);

export class SessionList extends ConsoleElement {
  static properties = {
    apps: { attribute: false },
    sessions: { attribute: false },
    current: { attribute: false },
    mayCreate: { attribute: false },
    me: { attribute: false },
    client: { attribute: false },
    hasMore: { attribute: false },
  };
  #timer = null;

  connectedCallback() {
    super.connectedCallback();
    this.#timer = setInterval(() => document.hidden || this.#requestRefresh(), REFRESH_MS);
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    clearInterval(this.#timer);
  }

  #requestRefresh() {
    this.dispatchEvent(new CustomEvent("sessions-changed", { bubbles: true }));
  }

  render() {
    const listed = this.apps.map((app) => [app, this.sessions.filter((session) => session.app === app.name)]);
    return html`<nav class="sessions" aria-label="Sessions">
      ${this.current ? html`<tl-invitations .client=${this.client}></tl-invitations>` : nothing}
      ${listed.filter(([, mine]) => this.mayCreate || mine.length > 0).map(([app, mine]) => this.#drawApp(app, mine))}
      ${
        this.hasMore
          ? html`<p><button class="plain" @click=${() => this.dispatchEvent(new CustomEvent("show-more"))}>Show more sessions</button></p>`
          : nothing
      }
      <p class="account"><span class="me">${this.me}</span>
        <button class="plain" @click=${() => this.dispatchEvent(new CustomEvent("sign-out"))}>Sign out</button></p>
    </nav>`;
  }

  #drawApp(app, mine) {
    const name = app.title || app.name;
    const start = () => this.dispatchEvent(new CustomEvent("start", { detail: app.name }));
    return html`<section>
      <h2>${name}${
        this.mayCreate
          ? html`<button class="plain" title="New session of ${name}"
        aria-label="New session of ${name}" @click=${start}>+</button>`
          : nothing
      }</h2>
      <ul>${mine.sort(lastActiveFirst).map((session) => this.#drawSession(session))}</ul>
    </section>`;
  }

  #drawSession({ session_id, title, state, last_activity }) {
    const open = onPlainClick(() => navigate({ session: session_id, panel: currentRoute().panel }));
    return html`<li><a href="?session=${session_id}" @click=${open}
      aria-current=${session_id === this.current ? "page" : nothing}>
      <span class="title">${title || "New session"}</span>
      <small class="state ${state}">${STATE_LABELS[state]}</small>
      <small><time datetime=${last_activity} title=${utcTooltip(last_activity)}>${formatShortTime(last_activity)}</time></small>
    </a></li>`;
  }
}

customElements.define("tl-sessions", SessionList);
