/**
 * An open session of the console: its `SessionStore`, the log for the panels, and the watchers of both.
 *
 * Watchers are called in an animation frame after the store has changed; those without `live` only for durable
 * events. A hidden tab is told less often.
 */

import { SessionStore } from "../../client/store/session-store.js";
import { ChatEntries } from "./chat-entries.js";
import { SessionLog } from "./session-log.js";

const SLOW_INTERVAL_MS = 1000; // of a hidden tab, and how long a reset is shown
const CATCHING_UP = new Set(["connecting", "catching-up", "reset"]);

export class Session {
  #clockAheadMs = Infinity; // how far this machine's clock is ahead of the server's, at most
  #watchers = new Map(); // watcher -> whether it wants live events
  #hasDurableChange = true; // since the last notification
  #isResetting = false;
  #isScheduled = false;
  #lastState = ""; // of the connection
  #entries = new ChatEntries();
  #queueEntries = new ChatEntries();
  #resolveAnswer;
  #unsubscribe;

  /** `onReset` is called when the log was replaced. */
  constructor({ id, app, client, me, onReset }) {
    Object.assign(this, { id, app, client, me });
    this.#createLog();
    this.firstAnswer = new Promise((resolve) => (this.#resolveAnswer = resolve)); // settled with the first answer of the server
    this.store = new SessionStore({
      session: id,
      client,
      share: me.name,
      principal: me.name,
      types: app.types,
      onEvents: (events) => this.#addEvents(events),
      onReset: () => {
        this.#createLog();
        this.#isResetting = true;
        onReset();
      },
    });
    this.#unsubscribe = this.store.subscribe(() => this.#onChange());
  }

  #createLog() {
    this.log = new SessionLog((principal) => this.displayName(principal));
  }

  /** The current snapshot of the store; it never changes. */
  get snapshot() {
    return this.store.getSnapshot();
  }

  /** The entries of the chat. */
  get entries() {
    return this.#entries.list(this.snapshot.messages);
  }

  /** The entries of the messages that wait for their turn. */
  get queue() {
    return this.#queueEntries.list(this.snapshot.queue);
  }

  /** The state of the connection, or "reset" while a replaced log is read again. */
  get connection() {
    return this.#isResetting ? "reset" : this.snapshot.connection;
  }

  /** The HttpError if the server refuses. */
  get refusal() {
    return this.snapshot.error;
  }

  get hasHistory() {
    return this.snapshot.hasHistory;
  }

  get isCatchingUp() {
    return CATCHING_UP.has(this.connection);
  }

  /** Whether an agent is open. */
  get isOpen() {
    return this.snapshot.agents.length > 0;
  }

  /** Whether an agent is open that waits for nobody. */
  get isWorking() {
    return this.isOpen && this.snapshot.status === "running";
  }

  /** Whether the session is closed: nobody can act in it. */
  get hasEnded() {
    return this.snapshot.status === "closed";
  }

  /** Return in one sentence that the session is closed, by whom and why. */
  get closedText() {
    const { ending } = this.snapshot;
    if (ending === null) return "This session is closed.";
    const name = ending.actor === this.me.name ? "You" : this.displayName(ending.actor);
    return `${name} closed this session${ending.reason ? `: “${ending.reason}”` : ""}.`;
  }

  /** Return the name of a principal, or else the principal itself; null for none. */
  displayName(principal) {
    if (!principal) return null;
    return this.snapshot.members.find((member) => member.principal === principal)?.name ?? principal;
  }

  /** Ask for the stream again, also of a closed session: the server refuses it when the session was deleted. */
  reconnect() {
    this.store.close();
    this.store.open();
  }

  close() {
    this.#unsubscribe();
    this.store.close();
  }

  /**
   * Call `tell` after changes, in an animation frame; for live events only with `live`. Return a function that stops
   * it.
   */
  watch(tell, { live = false } = {}) {
    this.#watchers.set(tell, live);
    return () => this.#watchers.delete(tell);
  }

  /** Return the milliseconds since a time of the log, by the server's clock as far as it is known. */
  elapsed(ts) {
    const ahead = Number.isFinite(this.#clockAheadMs) ? this.#clockAheadMs : 0;
    return Math.max(0, Date.now() - ahead - Date.parse(ts));
  }

  #addEvents(events) {
    for (const event of events) this.#hasDurableChange = this.log.add(event) || this.#hasDurableChange;
    if (this.connection !== "live") return;
    this.#clockAheadMs = Math.min(this.#clockAheadMs, Date.now() - Date.parse(events.at(-1).ts));
  }

  #endReset() {
    setTimeout(() => {
      this.#isResetting = false;
      this.#hasDurableChange = true;
      this.#scheduleNotify();
    }, SLOW_INTERVAL_MS);
  }

  #onChange() {
    const state = `${this.connection} ${this.hasHistory}`;
    if (state !== this.#lastState) this.#hasDurableChange = true;
    this.#lastState = state;
    if (this.connection !== "connecting") this.#resolveAnswer();
    this.#scheduleNotify();
  }

  #scheduleNotify() {
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    if (document.hidden) setTimeout(() => this.#notify(), SLOW_INTERVAL_MS);
    else requestAnimationFrame(() => this.#notify());
  }

  #notify() {
    this.#isScheduled = false;
    const watchers = [...this.#watchers].filter(([, live]) => live || this.#hasDurableChange);
    this.#hasDurableChange = false;
    for (const [tell] of watchers) tell();
    if (this.#isResetting) this.#endReset();
  }
}
