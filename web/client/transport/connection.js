/**
 * A stream of some sessions that does not end: it comes back after every cut, from where it was.
 *
 * What comes is told as records, each of one session, none of them twice:
 *
 *     {session, before, at, data}   a message; who is at `before` has missed nothing
 *     {session, before, at}         events that are not for this reader were passed over
 *     {session, reset}              the cursor could not be continued: everything comes again (protocol 7.3)
 *
 * States: connecting, catching-up, live, reconnecting; and closed when there will be no more, or refused.
 */

import { startOf } from "./cursor.js";
import { LONGEST_MS, Watchdog } from "./watchdog.js";

const WINDOW_MS = 100;
const HISTORY = 32; // more records in a window are history: a fast model makes 25

const SESSION = /"session_id":"([^"]+)"/; // the envelope's comes before anything that a payload says
const isRefusal = (status) => status >= 400 && status < 500 && status !== 408 && status !== 429;

export class Connection {
  #open; // (url, hooks) => close
  #urlOf; // (cursors) => url
  #timing;
  #hooks;
  #close = null;
  #timer = null;
  #settling = null;
  #watchdog;
  #attempts = 0;
  #openedMs = null;
  #count = 0;
  state = "connecting";

  /** `hooks`: onRecords(records), a sign of life if there are none; onState(state); onRefused(status, message). */
  constructor({ open, urlOf, cursors, timing, hooks }) {
    this.#open = open;
    this.#urlOf = urlOf;
    this.#timing = timing;
    this.#hooks = hooks;
    this.cursors = cursors;
    this.#watchdog = new Watchdog(2.5 * timing.heartbeatMs, () => this.#ended({}));
    this.#connect();
  }

  close() {
    this.#stop();
    clearTimeout(this.#timer);
  }

  /** Do not wait any longer to come back. */
  hurry() {
    if (this.state === "reconnecting" && this.#close === null) this.#connect();
  }

  #connect() {
    clearTimeout(this.#timer);
    this.#openedMs = null;
    this.#watchdog.start();
    this.#close = this.#open(this.#urlOf(this.cursors), {
      onOpen: () => this.#opened(),
      onAlive: () => this.#watchdog.alive(),
      onItems: (items) => this.#take(items),
      onEnd: (end) => this.#ended(end),
    });
  }

  #stop() {
    this.#watchdog.stop();
    clearInterval(this.#settling);
    this.#close?.();
    this.#close = null;
  }

  #opened() {
    this.#openedMs = performance.now();
    this.#count = 0;
    this.#settling = setInterval(() => this.#settle(), WINDOW_MS);
    this.#say("catching-up"); // at last: whoever hears it may close
  }

  /** History comes as fast as it can; what comes slowly is happening now. */
  #settle() {
    if (this.#count < HISTORY) {
      clearInterval(this.#settling);
      this.#say("live");
    }
    this.#count = 0;
  }

  #ended({ status = 0, retryAfterMs = 0, message }) {
    this.#stop();
    if (status === 204) return this.#say("closed");
    if (isRefusal(status)) {
      this.state = "refused";
      return this.#hooks.onRefused(status, message);
    }
    const waitMs = Math.max(retryAfterMs, this.#delayMs());
    this.#timer = setTimeout(() => this.#connect(), Math.min(waitMs, LONGEST_MS));
    this.#say("reconnecting"); // at last: whoever hears it may close
  }

  /** Longer each time, never the same for two; a stream that lasted begins anew. */
  #delayMs() {
    const { retryMs, maxRetryMs } = this.#timing;
    if (this.#openedMs !== null && performance.now() - this.#openedMs > retryMs) this.#attempts = 0;
    const most = Math.min(maxRetryMs, retryMs * 2 ** this.#attempts);
    this.#attempts += 1;
    return most * (0.5 + Math.random() / 2);
  }

  #say(state) {
    if (this.state === state) return;
    this.state = state;
    this.#hooks.onState(state);
  }

  #take(items) {
    const records = items.flatMap((item) => this.#records(item));
    this.#count += records.length;
    this.#hooks.onRecords(records);
  }

  #records({ event, data, id }) {
    if (event === "reset") return [this.#reset(JSON.parse(data))];
    const moved = this.cursors.move(id);
    if (event !== "message" || moved.length === 0) return moved;
    const name = moved.length > 1 && SESSION.exec(data)?.[1]; // there are several after ids without data
    const said = moved.find(({ session }) => session === name) ?? moved.at(-1);
    return [...moved.filter((other) => other !== said), { ...said, data }];
  }

  #reset(reset) {
    const session = reset.session_id ?? this.cursors.sessions[0];
    this.cursors.set(session, startOf(reset));
    return { session, reset };
  }
}
