/** The sessions that a page follows: keeps a cursor for each, and calls the page's hooks for records that are new. */

import { createHttpError } from "../api/errors.js";
import { Cursors, covers, formatCursor, isUnseen, startPosition } from "./cursor.js";

/** Report an error as uncaught. */
const reportUncaught = (error) => (globalThis.reportError ?? console.error)(error);

export class Subscription {
  state = "connecting";
  #parse;
  #hooks;
  #isClosed = false;

  /** `parse` turns the data of a message into an event. Hooks: onEvent, onReset, onState, onError. */
  constructor({ sessions, after, parse, hooks }) {
    this.cursors = new Cursors(sessions, after);
    this.#parse = parse;
    this.#hooks = hooks;
  }

  /** Accept a record of a connection, of this tab or of the leader. */
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

  /** Whether nothing is missing before a record; records of other sessions do not matter. */
  follows({ session, before, reset }) {
    const mine = this.cursors.at(session);
    return mine === undefined || reset !== undefined || covers(mine, before);
  }

  setState(state) {
    if (this.state === state || this.#isClosed) return;
    this.state = state;
    this.#callHook(() => this.#hooks.onState?.(state));
  }

  /** The server refused access. */
  refuse(status, message) {
    this.setState("refused");
    if (!this.#isClosed) this.#callHook(() => this.#hooks.onError?.(createHttpError(status, message)));
  }

  /** Call `onState("closed")` and no hook after it, not even for records of the same chunk. */
  close() {
    this.setState("closed");
    this.#isClosed = true;
  }

  /** Call a hook; its error must not stop the next event. */
  #callHook(hook) {
    try {
      hook();
    } catch (error) {
      reportUncaught(error);
    }
  }
}
