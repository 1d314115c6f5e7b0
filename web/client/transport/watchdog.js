/**
 * Calls `onTimeout` once when no sign of life came for a while. A sign of life only stores a time, it sets no timer.
 */

export const MAX_TIMER_MS = 2 ** 31 - 1; // a longer timer would fire at once

export class Watchdog {
  #timeoutMs;
  #onTimeout;
  #lastAliveMs = 0;
  #timer = null;

  constructor(timeoutMs, onTimeout) {
    this.#timeoutMs = timeoutMs;
    this.#onTimeout = onTimeout;
  }

  /** Start, or restart. */
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
