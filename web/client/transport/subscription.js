/** One who reads some sessions: holds its places, and hands on what is news for it. */

import { Cursors, covers, isNews, startOf, textOf } from "./cursor.js";
import { refusal } from "../api/errors.js";

/** Say it as if nobody had caught it. */
const report = (error) => (globalThis.reportError ?? console.error)(error);

export class Reader {
  state = "connecting";
  #read;
  #hooks;
  #left = false;

  /** `read` makes an event of the data of a message. Hooks: onEvent, onReset, onState, onError. */
  constructor({ sessions, after, read, hooks }) {
    this.cursors = new Cursors(sessions, after);
    this.#read = read;
    this.#hooks = hooks;
  }

  /** Take a record of a connection: of its own, or one that another tab hands on. */
  take({ session, at, data, reset }) {
    const mine = this.cursors.at(session);
    if (mine === undefined || this.#left) return;
    if (reset !== undefined) {
      this.cursors.set(session, startOf(reset));
      this.#tell(() => this.#hooks.onReset?.(reset));
    } else if (isNews(at, mine)) {
      this.cursors.set(session, at);
      if (data === undefined) return;
      this.#tell(() => this.#hooks.onEvent?.(this.#read(data), { session, cursor: textOf(at) }));
    }
  }

  /** Whether the reader has everything that came before a record; what is not its session is no loss. */
  follows({ session, before, reset }) {
    const mine = this.cursors.at(session);
    return mine === undefined || reset !== undefined || covers(mine, before);
  }

  say(state) {
    if (this.state === state || this.#left) return;
    this.state = state;
    this.#tell(() => this.#hooks.onState?.(state));
  }

  /** The server does not let it read. */
  refuse(status, message) {
    this.say("refused");
    if (!this.#left) this.#tell(() => this.#hooks.onError?.(refusal(status, message)));
  }

  /** The last thing it says is that it is closed, also when it leaves in the middle of what came together. */
  close() {
    this.say("closed");
    this.#left = true;
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
