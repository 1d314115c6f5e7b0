/** One who reads some sessions: holds its places, and hands on what is news for it. */

import { Cursors, covers, isNews, textOf } from "./cursor.js";

/** Say it as if nobody had caught it. */
const report = (error) => (globalThis.reportError ?? console.error)(error);

const isMessage = ({ data }) => data !== undefined;

export class Reader {
  state = "connecting";
  #read;
  #hooks;

  /** `read` makes an event of the data of a message. Hooks: onEvent, onReset, onState. */
  constructor({ sessions, after, read, hooks }) {
    this.cursors = new Cursors(sessions, after);
    this.#read = read;
    this.#hooks = hooks;
  }

  /** Take a record of a connection: of its own, or one that another tab hands on. */
  take(record) {
    const { session, at, reset } = record;
    const mine = this.cursors.at(session);
    if (mine === undefined) return;
    if (reset !== undefined) {
      this.cursors.set(session, { epoch: reset.epoch, seq: -1, chunk: Infinity });
      this.#tell(() => this.#hooks.onReset?.(reset));
    } else if (isNews(at, mine)) {
      this.cursors.set(session, at);
      const place = { session, cursor: textOf(at) };
      if (isMessage(record)) this.#tell(() => this.#hooks.onEvent?.(this.#read(record.data), place));
    }
  }

  /** Whether the reader has everything that came before a record; what is not its session is no loss. */
  follows({ session, before, reset }) {
    const mine = this.cursors.at(session);
    return mine === undefined || reset !== undefined || covers(mine, before);
  }

  say(state) {
    if (this.state === state) return;
    this.state = state;
    this.#tell(() => this.#hooks.onState?.(state));
  }

  /** What a page does with an event must not stop the next one. */
  #tell(hook) {
    try {
      hook();
    } catch (error) {
      report(error);
    }
  }
}
