/**
 * `<tl-sessions>`: the sessions of the signed-in person by application, the last active first. A person who may not
 * create sessions sees no button for new ones, and only the applications of existing sessions. The event `search`
 * asks for the sessions whose titles have a text; `found` are those, or null.
 */

import { html, nothing } from "lit";

import { ConsoleElement } from "../ui/base-element.js";
import { formatShortTime, utcTooltip } from "../ui/time-format.js";
import { currentRoute, navigate, onPlainClick } from "./router.js";

const REFRESH_MS = 15_000; // while the page is visible
const MIN_SEARCHED = 6; // sessions: fewer are read at a glance
const SEARCH_PAUSE_MS = 200; // after the last key
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
    found: { attribute: false },
  };
  #timer = null;
  #searchTimer = null;

  constructor() {
    super();
    this.found = null;
  }

  connectedCallback() {
    super.connectedCallback();
    import("./invitations.js"); // it asks the server first, and most people have none
    this.#timer = setInterval(() => document.hidden || this.#requestRefresh(), REFRESH_MS);
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    clearInterval(this.#timer);
    clearTimeout(this.#searchTimer);
  }

  #onSearch({ target }) {
    clearTimeout(this.#searchTimer);
    const search = () => this.dispatchEvent(new CustomEvent("search", { detail: target.value.trim() }));
    this.#searchTimer = setTimeout(search, SEARCH_PAUSE_MS);
  }

  #drawSearch() {
    if (this.found === null && this.sessions.length < MIN_SEARCHED) return nothing;
    return html`<p class="search"><input type="search" aria-label="Search in titles" placeholder="Search in titles"
      @input=${this.#onSearch}></p>
      <p class="unseen" role="status">${this.found === null ? "" : `${this.found.length} sessions found`}</p>`;
  }

  #requestRefresh() {
    this.dispatchEvent(new CustomEvent("sessions-changed", { bubbles: true }));
  }

  render() {
    const sessions = this.found ?? this.sessions;
    const listed = this.apps.map((app) => [app, sessions.filter((session) => session.app === app.name)]);
    const isShown = ([, mine]) => mine.length > 0 || (this.mayCreate && this.found === null);
    return html`<nav class="sessions" aria-label="Sessions">
      ${this.current ? html`<tl-invitations .client=${this.client}></tl-invitations>` : nothing}
      ${this.#drawSearch()}
      ${listed.filter(isShown).map(([app, mine]) => this.#drawApp(app, mine))}
      ${this.found?.length === 0 ? html`<p class="soft">No title has this text.</p>` : nothing}
      ${
        this.hasMore && this.found === null
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
