/** The sessions that a page follows: keeps a cursor for each, and calls the page's hooks for records that are new. */

import { createHttpError, type HttpError } from "../api/errors.js";
import type { EventPosition, FeedState, Reset } from "./connect.js";
import type { StreamRecord } from "./connection.js";
import { Cursors, covers, formatCursor, isUnseen, startPosition } from "./cursor.js";

/** Report an error as uncaught. */
export const reportUncaught = (error: unknown): void => (globalThis.reportError ?? console.error)(error);

export interface SubscriptionHooks {
  onEvent?: ((event: never, place: EventPosition) => void) | undefined;
  onReset?: ((reset: Reset) => void) | undefined;
  onState?: ((state: FeedState) => void) | undefined;
  onError?: ((error: HttpError) => void) | undefined;
}

export class Subscription {
  state: FeedState = "connecting";
  readonly cursors: Cursors;
  #parse: (data: string) => unknown;
  #hooks: SubscriptionHooks;
  #isClosed = false;

  /** `parse` turns the data of a message into an event. */
  constructor({
    sessions,
    after,
    parse,
    hooks,
  }: {
    sessions: readonly string[];
    after: string | null | undefined;
    parse: (data: string) => unknown;
    hooks: SubscriptionHooks;
  }) {
    this.cursors = new Cursors(sessions, after);
    this.#parse = parse;
    this.#hooks = hooks;
  }

  /** Accept a record of a connection, of this tab or of the leader. */
  accept(record: StreamRecord): void {
    const { session, reset } = record;
    const mine = this.cursors.at(session);
    if (mine === undefined || this.#isClosed) return;
    if (reset !== undefined) {
      this.cursors.set(session, startPosition(reset));
      this.#callHook(() => this.#hooks.onReset?.(reset));
      return;
    }
    const { at, data } = record;
    if (isUnseen(at, mine)) {
      this.cursors.set(session, at);
      if (data === undefined) return;
      this.#callHook(() => this.#hooks.onEvent?.(this.#parse(data) as never, { session, cursor: formatCursor(at) }));
    }
  }

  /** Whether nothing is missing before a record; records of other sessions do not matter. */
  follows({ session, before, reset }: StreamRecord): boolean {
    const mine = this.cursors.at(session);
    return mine === undefined || reset !== undefined || covers(mine, before as NonNullable<typeof before>);
  }

  setState(state: FeedState): void {
    if (this.state === state || this.#isClosed) return;
    this.state = state;
    this.#callHook(() => this.#hooks.onState?.(state));
  }

  /** The server refused access. */
  refuse(status: number, message: string | undefined): void {
    this.setState("refused");
    if (!this.#isClosed) this.#callHook(() => this.#hooks.onError?.(createHttpError(status, message)));
  }

  /** Call `onState("closed")` and no hook after it, not even for records of the same chunk. */
  close(): void {
    this.setState("closed");
    this.#isClosed = true;
  }

  /** Call a hook; its error must not stop the next event. */
  #callHook(hook: () => void): void {
    try {
      hook();
    } catch (error) {
      reportUncaught(error);
    }
  }
}
