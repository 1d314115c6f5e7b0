/** `<tl-sessions>`: the sessions of whoever is signed in, those of the open one's application first. */

import { html, nothing } from "lit";

import { Element } from "./element.js";
import { go, here, onPlainClick } from "./place.js";

const FRESH_MS = 15_000; // how often the list is asked for while somebody looks
const STATES = { running: "running", waiting: "waits for you", closed: "closed", idle: "" };

/** An order that stays, so that nothing moves away from somebody who aims at it. */
const newestFirst = (one, other) => (one.created < other.created ? 1 : one.created > other.created ? -1 : 0);

export class Sessions extends Element {
  static properties = {
    apps: { attribute: false }, sessions: { attribute: false }, current: { attribute: false },
  };
  #timer = null;

  connectedCallback() {
    super.connectedCallback();
    this.#timer = setInterval(() => document.hidden || this.#ask(), FRESH_MS);
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    clearInterval(this.#timer);
  }

  #ask() {
    this.dispatchEvent(new CustomEvent("changed", { bubbles: true }));
  }

  render() {
    return html`<nav class="sessions" aria-label="Sessions">
      ${this.apps.map((app) => this.#app(app))}
    </nav>`;
  }

  #app(app) {
    const mine = this.sessions.filter((session) => session.app === app.name).sort(newestFirst);
    const name = app.title || app.name;
    return html`<section>
      <h2>${name}<button class="plain" title="New session of ${name}" aria-label="New session of ${name}"
        @click=${() => this.dispatchEvent(new CustomEvent("start", { detail: app.name }))}>+</button></h2>
      <ul>${mine.map((session) => this.#session(session))}</ul>
    </section>`;
  }

  #session({ session_id, title, state, created }) {
    const open = onPlainClick(() => go({ session: session_id, panel: here().panel }));
    return html`<li><a href="?session=${session_id}" @click=${open}
      aria-current=${session_id === this.current ? "page" : nothing}>
      <span class="title">${title || "New session"}</span>
      <small class="state ${state}">${STATES[state] || created.slice(0, 16).replace("T", " ")}</small>
    </a></li>`;
  }
}

customElements.define("tl-sessions", Sessions);
