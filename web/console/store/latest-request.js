/**
 * One request at a time, for what was wanted last: whoever drags a slider wants where it stops, not every place
 * on the way. Answers cannot come out of order, for there is never a second question.
 */

export class LatestRequest {
  #send;
  #next = null;
  #busy = false;

  /** `work(wanted)` asks and tells; it does not throw. */
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
