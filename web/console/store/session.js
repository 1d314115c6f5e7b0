/**
 * A session that is open in this page: its record, the line it comes over, and what a person does in it.
 *
 * Whoever draws it watches it: told in a frame, `PACE_MS` after the last at the soonest, however much came. While
 * history comes that is `PATIENCE_MS`, so that catching up costs the fold and not the drawing.
 */

import { connect } from "../../client/transport/connect.js";
import { Record } from "./session-log.js";

const PACE_MS = 50; // between two drawings: text flows, and there is time for everything else
const PATIENCE_MS = 1000;
const COMING = new Set(["connecting", "catching-up", "reset"]);

export class Session {
  connection = "connecting"; // as `connect` says it; "reset" until history has come again
  refusal = null; // why the server does not let us read
  hasHistory = false; // all that the log had when it was asked for has come
  #last; // the seq that the log had then: undefined until the server says it, null where it does not say it
  #ahead = Infinity; // milliseconds that this machine's clock is before the server's, at most
  #watchers = new Map(); // who is told -> whether of live events too
  #lasts = true; // whether something came that is there after a reload
  #answer;
  #timer = null;
  #drawn = performance.now();
  #feed;

  /**
   * `readLast` gives the last seq of the log, or null for members who do not see all of it: with that event, history has
   * come. `onReset` is told that it is another log now.
   */
  constructor({ id, app, client, me, onReset, readLast }) {
    Object.assign(this, { id, app, client, me });
    this.record = new Record(app.types);
    this.answered = new Promise((resolve) => (this.#answer = resolve)); // what can wait, waits for the server
    this.#feed = connect({
      session: id,
      share: me.name,
      principal: me.name,
      onEvent: (event) => {
        this.#lasts = this.record.apply(event) || this.#lasts;
        this.#noteHistory();
        if (this.connection === "live") this.#ahead = Math.min(this.#ahead, Date.now() - Date.parse(event.ts));
        if (event.seq >= this.#last && this.isCatchingUp) this.#said("live");
        else this.#changed();
      },
      onReset: () => {
        this.record = new Record(app.types);
        this.hasHistory = false;
        this.#ask(readLast);
        this.#said("reset");
        onReset();
      },
      onState: (state) => {
        this.#said(state);
        this.#noteHistory();
      },
      onError: (error) => {
        this.refusal = error;
        this.#said("refused");
      },
    });
    this.#ask(readLast);
  }

  async #ask(readLast) {
    this.#last = undefined;
    this.#last = await readLast();
    this.#noteHistory();
  }

  /** A line is live when little comes, also while a busy server has sent nothing yet: that is no history. */
  #noteHistory() {
    if (this.hasHistory || this.#last === undefined) return;
    const { last } = this.record.tree;
    // Every log has events, the first of which makes its reader a member.
    this.hasHistory = this.#last === null ? last >= 0 && !this.isCatchingUp : last >= this.#last;
    if (!this.hasHistory) return;
    this.#lasts = true;
    this.#changed();
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
    const ahead = Number.isFinite(this.#ahead) ? this.#ahead : 0;
    return Math.max(0, Date.now() - ahead - Date.parse(ts));
  }

  /** Whether history is coming. */
  get isCatchingUp() {
    return COMING.has(this.connection);
  }

  /** Whether anything runs or waits. */
  get isOpen() {
    return this.record.tree.open.size > 0;
  }

  #said(state) {
    this.#answer();
    if (state === "catching-up" && this.connection === "reset") return;
    this.connection = state;
    this.#lasts = true;
    this.#wait(this.isCatchingUp && state !== "reset" ? PATIENCE_MS : 0);
  }

  #changed() {
    if (this.#timer === null) this.#wait(this.#pace - (performance.now() - this.#drawn));
  }

  /** How long what is shown may stand. A hidden tab has nobody to show it to. */
  get #pace() {
    return this.isCatchingUp || document.hidden ? PATIENCE_MS : PACE_MS;
  }

  #wait(ms) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => (document.hidden ? this.#tell() : requestAnimationFrame(() => this.#tell())), ms);
  }

  #tell() {
    this.#timer = null;
    this.#drawn = performance.now();
    const told = [...this.#watchers].filter(([, live]) => live || this.#lasts);
    this.#lasts = false;
    for (const [tell] of told) tell();
    if (this.connection === "reset") this.#settle();
  }
  /** Whoever hears of a reset from another tab is not told again that the line is live. */
  #settle() {
    setTimeout(() => this.connection === "reset" && this.#said("live"), PATIENCE_MS);
  }
}
