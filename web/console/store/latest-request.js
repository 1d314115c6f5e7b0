/**
 * Sends one request at a time, and only for the last value: a dragged slider asks for where it stops. Responses cannot
 * arrive out of order, because there is never a second request.
 */

export class LatestRequest {
  #send;
  #next = null;
  #busy = false;

  /** `send(value)` sends one request and handles its response; it must not throw. */
  constructor(work) {
    this.#send = work;
  }

  request(wanted) {
    this.#next = { wanted };
    if (!this.#busy) this.#run();
  }

  async #run() {
    this.#busy = true;
    while (this.#next) {
      const { wanted } = this.#next;
      this.#next = null;
      await this.#send(wanted);
    }
    this.#busy = false;
  }
}
