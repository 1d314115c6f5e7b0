/**
 * The durable events of a session in order, and the folds of the panels over them.
 *
 * A fold catches up when it is read, so that a long session costs only what is shown. Live events are not stored: a
 * replay may omit them. What the chat shows is in the snapshots of the `SessionStore`.
 */

const LIVE_TYPES = new Set(["block.delta", "tool.progress"]);

export class SessionLog {
  events = []; // durable, in order
  #displayName;
  #folds = new Map(); // fold class -> { fold, at }

  /** `displayName` returns the name of a principal. */
  constructor(displayName = (principal) => principal) {
    this.#displayName = displayName;
  }

  /** Add one event; return whether it is durable. */
  add(event) {
    if (LIVE_TYPES.has(event.type)) return false;
    this.events.push(event);
    return true;
  }

  /** Seq of the last durable event, or -1. */
  get last() {
    return this.events.at(-1)?.seq ?? -1;
  }

  /** Return the name of a principal; null for none. */
  displayName(principal) {
    return this.#displayName(principal);
  }

  /** Return the fold of this class over all durable events, up to date. */
  fold(Fold) {
    if (!this.#folds.has(Fold)) this.#folds.set(Fold, { fold: new Fold(), at: 0 });
    const cached = this.#folds.get(Fold);
    while (cached.at < this.events.length) {
      cached.at += 1; // before apply: an event that makes a fold throw must not stop the next ones
      cached.fold.apply(this.events[cached.at - 1]);
    }
    return cached.fold;
  }

  /** Return the index of a seq in `events`, or of the last one before it, or -1. */
  indexOfSeq(seq) {
    return indexOfSeq(this.events, seq);
  }
}

/** Return the index of the event with a seq, or of the last one before it, or -1. */
export function indexOfSeq(events, seq) {
  let [low, high] = [0, events.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (events[middle].seq <= seq) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
