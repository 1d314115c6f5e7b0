/**
 * An open session: its log, its connection, and the watchers of both.
 *
 * Watchers are called in an animation frame, at most every `NOTIFY_INTERVAL_MS`. While history loads it is
 * `CATCH_UP_INTERVAL_MS`, so that catching up costs the fold and not the drawing.
 */

import { connect } from "../../client/transport/connect.js";
import { SessionLog } from "./session-log.js";

const NOTIFY_INTERVAL_MS = 50; // text still flows, and the rest of the time is free
const CATCH_UP_INTERVAL_MS = 1000;
const CATCHING_UP = new Set(["connecting", "catching-up", "reset"]);

export class Session {
  connection = "connecting"; // the feed's state, or "reset" until the history has come again
  refusal = null; // the HttpError if the server refuses
  hasHistory = false; // all events that the log had at first have come
  #last; // the last seq of the log at first: undefined until it is known, null if the server does not tell it
  #clockAheadMs = Infinity; // how far this machine's clock is ahead of the server's, at most
  #watchers = new Map(); // watcher -> whether it wants live events
  #hasDurableChange = true; // since the last notification
  #resolveAnswer;
  #timer = null;
  #notifiedMs = performance.now();
  #feed;

  /**
   * `readLast` returns the last seq of the log, or null for members who do not see all channels: with that event the
   * history has come. `onReset` is called when the log was replaced.
   */
  constructor({ id, app, client, me, onReset, readLast }) {
    Object.assign(this, { id, app, client, me });
    this.log = new SessionLog(app.types);
    this.firstAnswer = new Promise((resolve) => (this.#resolveAnswer = resolve)); // settled with the first answer of the server
    this.#feed = connect({
      session: id,
      share: me.name,
      principal: me.name,
      onEvent: (event) => {
        this.#hasDurableChange = this.log.apply(event) || this.#hasDurableChange;
        this.#checkHistory();
        if (this.connection === "live")
          this.#clockAheadMs = Math.min(this.#clockAheadMs, Date.now() - Date.parse(event.ts));
        if (event.seq >= this.#last && this.isCatchingUp) this.#setConnection("live");
        else this.#scheduleNotify();
      },
      onReset: () => {
        this.log = new SessionLog(app.types);
        this.hasHistory = false;
        this.#fetchLast(readLast);
        this.#setConnection("reset");
        onReset();
      },
      onState: (state) => {
        this.#setConnection(state);
        this.#checkHistory();
      },
      onError: (error) => {
        this.refusal = error;
        this.#setConnection("refused");
      },
    });
    this.#fetchLast(readLast);
  }

  async #fetchLast(readLast) {
    this.#last = undefined;
    this.#last = await readLast();
    this.#checkHistory();
  }

  /** Set `hasHistory` once the history has come. "live" is not enough: a busy server may have sent nothing yet. */
  #checkHistory() {
    if (this.hasHistory || this.#last === undefined) return;
    const { last } = this.log.tree;
    // every log has events: the first makes its reader a member
    this.hasHistory = this.#last === null ? last >= 0 && !this.isCatchingUp : last >= this.#last;
    if (!this.hasHistory) return;
    this.#hasDurableChange = true;
    this.#scheduleNotify();
  }

  close() {
    this.#feed.close();
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

  get isCatchingUp() {
    return CATCHING_UP.has(this.connection);
  }

  /** Whether an agent is open. */
  get isOpen() {
    return this.log.tree.open.size > 0;
  }

  #setConnection(state) {
    this.#resolveAnswer();
    if (state === "catching-up" && this.connection === "reset") return;
    this.connection = state;
    this.#hasDurableChange = true;
    this.#notifyAfter(this.isCatchingUp && state !== "reset" ? CATCH_UP_INTERVAL_MS : 0);
  }

  #scheduleNotify() {
    if (this.#timer === null) this.#notifyAfter(this.#intervalMs - (performance.now() - this.#notifiedMs));
  }

  /** Milliseconds between notifications; a hidden tab needs few. */
  get #intervalMs() {
    return this.isCatchingUp || document.hidden ? CATCH_UP_INTERVAL_MS : NOTIFY_INTERVAL_MS;
  }

  #notifyAfter(ms) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(
      () => (document.hidden ? this.#notify() : requestAnimationFrame(() => this.#notify())),
      ms,
    );
  }

  #notify() {
    this.#timer = null;
    this.#notifiedMs = performance.now();
    const watchers = [...this.#watchers].filter(([, live]) => live || this.#hasDurableChange);
    this.#hasDurableChange = false;
    for (const [tell] of watchers) tell();
    if (this.connection === "reset") this.#endReset();
  }
  /** Return to "live" after a while: a reset that another tab passed on is not followed by a state. */
  #endReset() {
    setTimeout(() => this.connection === "reset" && this.#setConnection("live"), CATCH_UP_INTERVAL_MS);
  }
}
