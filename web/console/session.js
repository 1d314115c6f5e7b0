/**
 * A session that is open in this page: its record, the line it comes over, and what a person does in it.
 *
 * Whoever draws it watches it: told once a frame, however much came. While history comes nothing is drawn but
 * every `PATIENCE_MS`, so that catching up costs the fold and not the drawing.
 */

import { connect } from "../client/connect.js";
import { Record } from "./record.js";

const PATIENCE_MS = 1000;

export class Session {
  connection = "connecting"; // as `connect` says it; "reset" until history has come again
  refusal = null; // why the server does not let us read
  #watchers = new Set();
  #due = false;
  #drawn = performance.now();
  #feed;

  constructor({ id, app, client, me }) {
    Object.assign(this, { id, app, client, me });
    this.record = new Record(app.types);
    this.#feed = connect({
      session: id,
      share: me.name,
      onEvent: (event) => {
        this.record.apply(event);
        this.#changed();
      },
      onReset: () => {
        this.record = new Record(app.types);
        this.#said("reset");
      },
      onState: (state) => this.#said(state),
      onError: (error) => {
        this.refusal = error;
        this.#said("refused");
      },
    });
  }

  close() {
    this.#feed.close();
  }

  /** Be told of changes, at most once a frame; returns how to stop. */
  watch(tell) {
    this.#watchers.add(tell);
    return () => this.#watchers.delete(tell);
  }

  /** Whether anything runs or waits. */
  get isOpen() {
    return this.record.tree.open.size > 0;
  }

  #said(state) {
    if (state === "catching-up" && this.connection === "reset") return;
    this.connection = state;
    this.#changed();
  }

  #changed() {
    if (this.#due) return;
    this.#due = true;
    // A hidden tab has no frames, and must not fall behind by more than a frame when it is shown.
    if (document.hidden) setTimeout(() => this.#tell(), PATIENCE_MS);
    else requestAnimationFrame(() => this.#tell());
  }

  #tell() {
    this.#due = false;
    const now = performance.now();
    const catchingUp = this.connection === "catching-up" || this.connection === "reset";
    if (catchingUp && now - this.#drawn < PATIENCE_MS) return void this.#changed();
    this.#drawn = now;
    for (const tell of [...this.#watchers]) tell();
  }
}
