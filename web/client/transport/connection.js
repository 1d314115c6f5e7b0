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

import { startPosition } from "./cursor.js";
import { MAX_TIMER_MS, Watchdog } from "./watchdog.js";

const LIVE_WINDOW_MS = 100;
const MAX_LIVE_RECORDS = 32; // per window; more is history: a fast model makes 25

const SESSION_ID = /"session_id":"([^"]+)"/; // the envelope's field comes before the payload
const isRefusal = (status) => status >= 400 && status < 500 && status !== 408 && status !== 429;

export class Connection {
  #open; // (url, hooks) => close
  #buildUrl; // (cursors) => url
  #timing;
  #hooks;
  #close = null;
  #retryTimer = null;
  #liveTimer = null;
  #watchdog;
  #attempts = 0;
  #openedMs = null;
  #count = 0;
  state = "connecting";

  /** `hooks`: onRecords(records), empty as a sign of life; onState(state); onRefused(status, message). */
  constructor({ open, buildUrl, cursors, timing, hooks }) {
    this.#open = open;
    this.#buildUrl = buildUrl;
    this.#timing = timing;
    this.#hooks = hooks;
    this.cursors = cursors;
    this.#watchdog = new Watchdog(2.5 * timing.heartbeatMs, () => this.#onEnd({}));
    this.#connect();
  }

  close() {
    this.#stop();
    clearTimeout(this.#retryTimer);
  }

  /** Reconnect now if a reconnect is due later. */
  reconnectNow() {
    if (this.state === "reconnecting" && this.#close === null) this.#connect();
  }

  #connect() {
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

  #stop() {
    this.#watchdog.stop();
    clearInterval(this.#liveTimer);
    this.#close?.();
    this.#close = null;
  }

  #onOpen() {
    this.#openedMs = performance.now();
    this.#count = 0;
    this.#liveTimer = setInterval(() => this.#checkLive(), LIVE_WINDOW_MS);
    this.#setState("catching-up"); // last: the hook may close this connection
  }

  /** History comes fast: few records in a window mean that the stream is live. */
  #checkLive() {
    if (this.#count < MAX_LIVE_RECORDS) {
      clearInterval(this.#liveTimer);
      this.#setState("live");
    }
    this.#count = 0;
  }

  #onEnd({ status = 0, retryAfterMs = 0, message }) {
    this.#stop();
    if (status === 204) return this.#setState("closed");
    if (isRefusal(status)) {
      this.state = "refused";
      return this.#hooks.onRefused(status, message);
    }
    const waitMs = Math.max(retryAfterMs, this.#delayMs());
    this.#retryTimer = setTimeout(() => this.#connect(), Math.min(waitMs, MAX_TIMER_MS));
    this.#setState("reconnecting"); // last: the hook may close this connection
  }

  /** Return the next delay: exponential backoff with jitter, reset by a stream that lasted. */
  #delayMs() {
    const { retryMs, maxRetryMs } = this.#timing;
    if (this.#openedMs !== null && performance.now() - this.#openedMs > retryMs) this.#attempts = 0;
    const most = Math.min(maxRetryMs, retryMs * 2 ** this.#attempts);
    this.#attempts += 1;
    return most * (0.5 + Math.random() / 2);
  }

  #setState(state) {
    if (this.state === state) return;
    this.state = state;
    this.#hooks.onState(state);
  }

  #accept(items) {
    const records = items.flatMap((item) => this.#toRecords(item));
    this.#count += records.length;
    this.#hooks.onRecords(records);
  }

  #toRecords({ event, data, id }) {
    if (event === "reset") return [this.#reset(JSON.parse(data))];
    const moved = this.cursors.move(id);
    if (event !== "message" || moved.length === 0) return moved;
    const name = moved.length > 1 && SESSION_ID.exec(data)?.[1]; // several sessions moved: ids without data came before
    const message = moved.find(({ session }) => session === name) ?? moved.at(-1);
    return [...moved.filter((other) => other !== message), { ...message, data }];
  }

  #reset(reset) {
    const session = reset.session_id ?? this.cursors.sessions[0];
    this.cursors.set(session, startPosition(reset));
    return { session, reset };
  }
}
