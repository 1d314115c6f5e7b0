/** Bites once when nobody has said anything for a while. Signs of life cost nothing but a look at the clock. */

export const MAX_TIMER_MS = 2 ** 31 - 1; // a timer that is to wait longer does not wait at all

export class Watchdog {
  #timeoutMs;
  #onTimeout;
  #lastAliveMs = 0;
  #timer = null;

  constructor(timeoutMs, onTimeout) {
    this.#timeoutMs = timeoutMs;
    this.#onTimeout = onTimeout;
  }

  /** Begin to wait, or begin again. */
  start() {
    this.stop();
    this.alive();
    this.#schedule(this.#timeoutMs);
  }

  stop() {
    clearTimeout(this.#timer);
  }

  alive() {
    this.#lastAliveMs = performance.now();
  }

  #schedule(leftMs) {
    this.#timer = setTimeout(
      () => {
        const nextMs = this.#lastAliveMs + this.#timeoutMs - performance.now();
        if (nextMs > 0) this.#schedule(nextMs);
        else this.#onTimeout();
      },
      Math.min(leftMs, MAX_TIMER_MS),
    );
  }
}
