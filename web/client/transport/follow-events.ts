/**
 * `followEvents`: the events of sessions as an async iterator.
 *
 * A reader that is slower than the stream does not fill the memory: when too many events wait, the stream is closed,
 * and opened again behind the last of them once the reader has taken them all.
 */

import type { HttpError } from "../api/errors.js";
import type { LogEvent } from "../events.js";
import { connect, type EventOptions, type Feed } from "./connect.js";

const MAX_BUFFERED_EVENTS = 1000;

class EventBuffer {
  #options: EventOptions;
  #feed: Feed | null = null;
  #events: LogEvent[] = [];
  #cursor: string | null;
  #error: HttpError | null = null;
  #isOver = false;
  #wake: () => void = () => {};

  constructor(options: EventOptions) {
    this.#options = options;
    this.#cursor = options.after ?? null;
  }

  /** Return the events that have come, at least one; null when the feed has ended. Throws if the server refuses. */
  async take(): Promise<LogEvent[] | null> {
    while (this.#events.length === 0) {
      if (this.#error) throw this.#error;
      if (this.#isOver) return null;
      const change = new Promise<void>((resolve) => (this.#wake = resolve));
      this.#feed ??= this.#open();
      await change;
    }
    return this.#events.splice(0);
  }

  close(): void {
    this.#isOver = true;
    this.#feed?.close();
  }

  #open(): Feed {
    const { onEvent, onState, onError } = this.#options;
    let feed: Feed | null = null;
    const isCurrent = () => this.#feed === feed || feed === null;
    feed = connect({
      ...this.#options,
      after: this.#cursor,
      onEvent: (event, place) => {
        this.#events.push(event);
        onEvent?.(event, place);
        if (this.#events.length >= MAX_BUFFERED_EVENTS) this.#pause();
        this.#wake();
      },
      onState: (state) => {
        // a pause is not the end
        if (!isCurrent()) return;
        if (state === "closed") this.#isOver = true;
        onState?.(state);
        this.#wake();
      },
      onError: (error) => {
        this.#error = error;
        onError?.(error);
        this.#wake();
      },
    });
    return feed;
  }

  #pause(): void {
    const feed = this.#feed;
    this.#feed = null;
    this.#cursor = feed?.cursor ?? this.#cursor;
    feed?.close();
  }
}

/**
 * Yield every event once and in order. The iteration ends when the sessions are closed or `signal` is aborted, and
 * throws an `HttpError` when the server refuses. After `onReset` all events come again.
 */
export async function* followEvents(options: EventOptions): AsyncGenerator<LogEvent, void, void> {
  const buffer = new EventBuffer(options);
  try {
    for (let events = await buffer.take(); events !== null; events = await buffer.take()) yield* events;
  } finally {
    buffer.close();
  }
}
