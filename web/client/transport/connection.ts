/**
 * A stream of some sessions that reconnects after every cut, from its last cursor.
 *
 * `onRecords` receives records of one session each, none of them twice:
 *
 *     {session, before, at, data}   a message; a subscriber at `before` has missed nothing
 *     {session, before, at}         the cursor moved over events that this subscriber does not get
 *     {session, reset}              the cursor cannot be continued: all events come again (protocol 7.3)
 *
 * States: connecting, catching-up, live, reconnecting; finally closed (the stream is over) or refused.
 */

import type { FeedState, Reset, Timing } from "./connect.js";
import { type Cursors, type Move, type Position, startPosition } from "./cursor.js";
import type { OpenStream, StreamEnd, StreamItem } from "./fetch-stream.js";
import { MAX_TIMER_MS, type Timer, Watchdog } from "./watchdog.js";

/** A message, a cursor that moved, or a reset. */
export type StreamRecord =
  | (Move & { readonly data?: string; readonly reset?: undefined })
  | { readonly session: string; readonly reset: Reset; readonly before?: undefined };

export interface ConnectionHooks {
  /** Records of one chunk; none is a sign of life. */
  onRecords(records: StreamRecord[]): void;
  onState(state: FeedState): void;
  onRefused(status: number, message: string | undefined): void;
}

/** Opens a connection at these positions. */
export type MakeConnection = (places: ReadonlyMap<string, Position>, hooks: ConnectionHooks) => Connection;

/** The named events that tell that the history has come; a heartbeat comes after a silence, from every server. */
const LIVE_EVENTS = new Set(["caught-up", "heartbeat"]);

const SESSION_ID = /"session_id":"([^"]+)"/; // the envelope's field comes before the payload

/** Whether the server will refuse the same request again. */
export const isRefusal = (status: number): boolean => status >= 400 && status < 500 && status !== 408 && status !== 429;

export class Connection {
  #open: OpenStream;
  #buildUrl: (cursors: Cursors) => string;
  #timing: Timing;
  #hooks: ConnectionHooks;
  #close: (() => void) | null = null;
  #retryTimer: Timer | undefined;
  #watchdog: Watchdog;
  #attempts = 0;
  #openedMs: number | null = null;
  state: FeedState = "connecting";
  readonly cursors: Cursors;

  constructor({
    open,
    buildUrl,
    cursors,
    timing,
    hooks,
  }: {
    open: OpenStream;
    buildUrl: (cursors: Cursors) => string;
    cursors: Cursors;
    timing: Timing;
    hooks: ConnectionHooks;
  }) {
    this.#open = open;
    this.#buildUrl = buildUrl;
    this.#timing = timing;
    this.#hooks = hooks;
    this.cursors = cursors;
    this.#watchdog = new Watchdog(2.5 * timing.heartbeatMs, () => this.#onEnd({}));
    this.#connect();
  }

  close(): void {
    this.#stop();
    clearTimeout(this.#retryTimer);
  }

  /** Reconnect now if a reconnect is due later. */
  reconnectNow(): void {
    if (this.state === "reconnecting" && this.#close === null) this.#connect();
  }

  /** Give up an open stream, and reconnect after a delay: a stream that loses its network may never end. */
  disconnect(): void {
    if (this.#close !== null) this.#onEnd({});
  }

  #connect(): void {
    clearTimeout(this.#retryTimer);
    this.#openedMs = null;
    this.#watchdog.start();
    this.#close = this.#open(this.#buildUrl(this.cursors), {
      onOpen: () => this.#onOpen(),
      onAlive: () => this.#watchdog.alive(),
      onItems: (items) => this.#accept(items),
      onEnd: (end) => this.#onEnd(end),
    });
  }

  #stop(): void {
    this.#watchdog.stop();
    this.#close?.();
    this.#close = null;
  }

  #onOpen(): void {
    this.#openedMs = performance.now();
    this.#setState("catching-up"); // last: the hook may close this connection
  }

  #onEnd({ status = 0, retryAfterMs = 0, message }: StreamEnd): void {
    this.#stop();
    if (status === 204) {
      this.#setState("closed");
      return;
    }
    if (isRefusal(status)) {
      this.state = "refused";
      this.#hooks.onRefused(status, message);
      return;
    }
    const waitMs = Math.max(retryAfterMs, this.#delayMs());
    this.#retryTimer = setTimeout(() => this.#connect(), Math.min(waitMs, MAX_TIMER_MS));
    this.#setState("reconnecting"); // last: the hook may close this connection
  }

  /** Return the next delay: exponential backoff with jitter, reset by a stream that lasted. */
  #delayMs(): number {
    const { retryMs, maxRetryMs } = this.#timing;
    if (this.#openedMs !== null && performance.now() - this.#openedMs > retryMs) this.#attempts = 0;
    const most = Math.min(maxRetryMs, retryMs * 2 ** this.#attempts);
    this.#attempts += 1;
    return most * (0.5 + Math.random() / 2);
  }

  #setState(state: FeedState): void {
    if (this.state === state) return;
    this.state = state;
    this.#hooks.onState(state);
  }

  /** Pass the records on before the state: a feed is live when its reader has the history. */
  #accept(items: StreamItem[]): void {
    this.#hooks.onRecords(items.flatMap((item) => this.#toRecords(item)));
    const isOpen = this.#close !== null; // the hook may close this connection
    if (isOpen && items.some(({ event }) => LIVE_EVENTS.has(event))) this.#setState("live");
  }

  #toRecords({ event, data, id }: StreamItem): StreamRecord[] {
    if (event === "reset") return [this.#reset(JSON.parse(data))];
    const moved = this.cursors.move(id);
    if (event !== "message" || moved.length === 0) return moved;
    const name = moved.length > 1 && SESSION_ID.exec(data)?.[1]; // several sessions moved: ids without data came before
    const message = moved.find(({ session }) => session === name) ?? (moved.at(-1) as Move);
    return [...moved.filter((other) => other !== message), { ...message, data }];
  }

  #reset(reset: Reset): StreamRecord {
    const session = reset.session_id ?? (this.cursors.sessions[0] as string);
    this.cursors.set(session, startPosition(reset));
    return { session, reset };
  }
}
