/**
 * Base classes of the console's elements: Lit elements without a shadow root, so that one stylesheet, labels and the
 * browser's search reach everything. Constructors set the first values of properties: class fields would hide them
 * from Lit.
 */

import { LitElement } from "lit";

export class ConsoleElement extends LitElement {
  createRenderRoot() {
    return this;
  }
}

/** An element that updates when its session changes; with `showsLive` also for live events. */
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

  /** Await `work()` and return its result. An error is dispatched as `error-message`, and the result is undefined. */
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

/** An element that shows elapsed time: it also updates once a second while an agent is open and the session is live. */
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

  /** Now in milliseconds since 1970 by the server's clock; without a connection the time of the last event. */
  get now() {
    const { log, connection } = this.session;
    const ts = log.events.at(-1)?.ts;
    return Date.parse(ts) + (connection === "live" ? this.session.elapsed(ts) : 0);
  }
}

/** An element that also updates when the route changes. */
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
