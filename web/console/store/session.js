/**
 * A session that is open in this page: its log, the line it comes over, and what a person does in it.
 *
 * Whoever draws it watches it: told in a frame, `PACE_MS` after the last at the soonest, however much came. While
 * history comes that is `PATIENCE_MS`, so that catching up costs the fold and not the drawing.
 */

import { connect } from "../../client/transport/connect.js";
import { SessionLog } from "./session-log.js";

const NOTIFY_INTERVAL_MS = 50; // between two drawings: text flows, and there is time for everything else
const CATCH_UP_INTERVAL_MS = 1000;
const CATCHING_UP = new Set(["connecting", "catching-up", "reset"]);

export class Session {
  connection = "connecting"; // as `connect` says it; "reset" until history has come again
  refusal = null; // why the server does not let us read
  hasHistory = false; // all that the log had when it was asked for has come
  #last; // the seq that the log had then: undefined until the server says it, null where it does not say it
  #clockAheadMs = Infinity; // milliseconds that this machine's clock is before the server's, at most
  #watchers = new Map(); // who is told -> whether of live events too
  #hasDurableChange = true; // whether something came that is there after a reload
  #resolveAnswer;
  #timer = null;
  #notifiedMs = performance.now();
  #feed;

  /**
   * `readLast` gives the last seq of the log, or null for members who do not see all of it: with that event, history has
   * come. `onReset` is told that it is another log now.
   */
  constructor({ id, app, client, me, onReset, readLast }) {
    Object.assign(this, { id, app, client, me });
    this.log = new SessionLog(app.types);
    this.firstAnswer = new Promise((resolve) => (this.#resolveAnswer = resolve)); // what can wait, waits for the server
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

  /** A line is live when little comes, also while a busy server has sent nothing yet: that is no history. */
  #checkHistory() {
    if (this.hasHistory || this.#last === undefined) return;
    const { last } = this.log.tree;
    // Every log has events, the first of which makes its reader a member.
    this.hasHistory = this.#last === null ? last >= 0 && !this.isCatchingUp : last >= this.#last;
    if (!this.hasHistory) return;
    this.#hasDurableChange = true;
    this.#scheduleNotify();
  }

  close() {
    this.#feed.close();
  }

  /** Be told of changes, in a frame; of live events only if asked for. Returns how to stop. */
  watch(tell, { live = false } = {}) {
    this.#watchers.set(tell, live);
    return () => this.#watchers.delete(tell);
  }

  /** Milliseconds since a time of the log, by the server's clock as far as it is known. */
  elapsed(ts) {
    const ahead = Number.isFinite(this.#clockAheadMs) ? this.#clockAheadMs : 0;
    return Math.max(0, Date.now() - ahead - Date.parse(ts));
  }

  /** Whether history is coming. */
  get isCatchingUp() {
    return CATCHING_UP.has(this.connection);
  }

  /** Whether anything runs or waits. */
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

  /** How long what is shown may stand. A hidden tab has nobody to show it to. */
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
    const told = [...this.#watchers].filter(([, live]) => live || this.#hasDurableChange);
    this.#hasDurableChange = false;
    for (const [tell] of told) tell();
    if (this.connection === "reset") this.#endReset();
  }
  /** Whoever hears of a reset from another tab is not told again that the line is live. */
  #endReset() {
    setTimeout(() => this.connection === "reset" && this.#setConnection("live"), CATCH_UP_INTERVAL_MS);
  }
}
