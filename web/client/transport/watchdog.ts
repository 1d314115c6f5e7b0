/**
 * Calls `onTimeout` once when no sign of life came for a while. A sign of life only stores a time, it sets no timer.
 */

export const MAX_TIMER_MS = 2 ** 31 - 1; // a longer timer would fire at once

/** The id of a timer, in a browser and in Node. */
export type Timer = ReturnType<typeof setTimeout>;

export class Watchdog {
  #timeoutMs: number;
  #onTimeout: () => void;
  #lastAliveMs = 0;
  #timer: Timer | undefined;

  constructor(timeoutMs: number, onTimeout: () => void) {
    this.#timeoutMs = timeoutMs;
    this.#onTimeout = onTimeout;
  }

  /** Start, or restart. */
  start(): void {
    this.stop();
    this.alive();
    this.#schedule(this.#timeoutMs);
  }

  stop(): void {
    clearTimeout(this.#timer);
  }

  alive(): void {
    this.#lastAliveMs = performance.now();
  }

  #schedule(leftMs: number): void {
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
