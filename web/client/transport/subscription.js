/** One who reads some sessions: holds its places, and hands on what is news for it. */

import { createHttpError } from "../api/errors.js";
import { Cursors, covers, formatCursor, isUnseen, startPosition } from "./cursor.js";

/** Say it as if nobody had caught it. */
const reportUncaught = (error) => (globalThis.reportError ?? console.error)(error);

export class Subscription {
  state = "connecting";
  #parse;
  #hooks;
  #isClosed = false;

  /** `read` makes an event of the data of a message. Hooks: onEvent, onReset, onState, onError. */
  constructor({ sessions, after, parse, hooks }) {
    this.cursors = new Cursors(sessions, after);
    this.#parse = parse;
    this.#hooks = hooks;
  }

  /** Take a record of a connection: of its own, or one that another tab hands on. */
  accept({ session, at, data, reset }) {
    const mine = this.cursors.at(session);
    if (mine === undefined || this.#isClosed) return;
    if (reset !== undefined) {
      this.cursors.set(session, startPosition(reset));
      this.#callHook(() => this.#hooks.onReset?.(reset));
    } else if (isUnseen(at, mine)) {
      this.cursors.set(session, at);
      if (data === undefined) return;
      this.#callHook(() => this.#hooks.onEvent?.(this.#parse(data), { session, cursor: formatCursor(at) }));
    }
  }

  /** Whether the reader has everything that came before a record; what is not its session is no loss. */
  follows({ session, before, reset }) {
    const mine = this.cursors.at(session);
    return mine === undefined || reset !== undefined || covers(mine, before);
  }

  setState(state) {
    if (this.state === state || this.#isClosed) return;
    this.state = state;
    this.#callHook(() => this.#hooks.onState?.(state));
  }

  /** The server does not let it read. */
  refuse(status, message) {
    this.setState("refused");
    if (!this.#isClosed) this.#callHook(() => this.#hooks.onError?.(createHttpError(status, message)));
  }

  /** The last thing it says is that it is closed, also when it leaves in the middle of what came together. */
  close() {
    this.setState("closed");
    this.#isClosed = true;
  }

  /** What a page does with an event must not stop the next one. */
  #callHook(hook) {
    try {
      hook();
    } catch (error) {
      reportUncaught(error);
    }
  }
}
