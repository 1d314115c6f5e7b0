/**
 * What all elements of the console are: Lit elements without a shadow, so that one style sheet, labels and the
 * browser's own search reach everything. Properties get their first values in constructors: class fields would
 * hide them from Lit.
 */

import { LitElement } from "lit";

export class ConsoleElement extends LitElement {
  createRenderRoot() {
    return this;
  }
}

/** An element that draws a session, again whenever something came; one that `showsLive`, live events too. */
export class SessionElement extends ConsoleElement {
  showsLive = false;
  static properties = { session: { attribute: false } };
  #stop = null;

  connectedCallback() {
    super.connectedCallback();
    this.#watch();
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    this.#stop?.();
    this.#stop = null;
  }

  willUpdate(changed) {
    if (changed.has("session")) this.#watch();
  }

  #watch() {
    this.#stop?.();
    this.#stop = this.session?.watch(() => this.requestUpdate(), { live: this.showsLive }) ?? null;
  }

  /** Do something that a server may refuse; a refusal is told where everybody sees it. */
  async attempt(work) {
    try {
      return await work();
    } catch (error) {
      this.dispatchEvent(new CustomEvent("error-message", { detail: error, bubbles: true }));
      return undefined;
    }
  }
}

const TICK_MS = 1000;

/** An element that draws how long things take: also once a second, while an agent is open and the line is live. */
export class TickingElement extends SessionElement {
  #timer = null;

  updated(changed) {
    super.updated(changed);
    clearTimeout(this.#timer);
    const { isOpen, connection } = this.session;
    if (this.isConnected && isOpen && connection === "live") {
      this.#timer = setTimeout(() => this.requestUpdate(), TICK_MS);
    }
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    clearTimeout(this.#timer);
  }

  /** Now in milliseconds since 1970, by the clock of the log; the time of the last event while the line is down. */
  get now() {
    const { log, connection } = this.session;
    const ts = log.events.at(-1)?.ts;
    return Date.parse(ts) + (connection === "live" ? this.session.elapsed(ts) : 0);
  }
}

/** An element that draws where a person is in the session too, again whenever they move (`place.js`). */
export class RoutedElement extends SessionElement {
  #onRouteChange = () => this.requestUpdate();

  connectedCallback() {
    super.connectedCallback();
    addEventListener("popstate", this.#onRouteChange);
  }

  disconnectedCallback() {
    super.disconnectedCallback();
    removeEventListener("popstate", this.#onRouteChange);
  }
}
