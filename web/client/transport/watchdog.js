/** Bites once when nobody has said anything for a while. Signs of life cost nothing but a look at the clock. */

export const LONGEST_MS = 2 ** 31 - 1; // a timer that is to wait longer does not wait at all

export class Watchdog {
  #patienceMs;
  #bite;
  #heard = 0;
  #timer = null;

  constructor(patienceMs, bite) {
    this.#patienceMs = patienceMs;
    this.#bite = bite;
  }

  /** Begin to wait, or begin again. */
  start() {
    this.stop();
    this.alive();
    this.#wait(this.#patienceMs);
  }

  stop() {
    clearTimeout(this.#timer);
  }

  alive() {
    this.#heard = performance.now();
  }

  #wait(leftMs) {
    this.#timer = setTimeout(
      () => {
        const nextMs = this.#heard + this.#patienceMs - performance.now();
        if (nextMs > 0) this.#wait(nextMs);
        else this.#bite();
      },
      Math.min(leftMs, LONGEST_MS),
    );
  }
}
