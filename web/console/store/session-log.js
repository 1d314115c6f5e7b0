/**
 * The durable events of a session in order, and folds over them.
 *
 * The conversation and the tree are always up to date; any other fold catches up when it is read, so that a long
 * session costs only what is shown. Live events are folded and not stored: a replay may omit them.
 */

import { Names } from "../../client/folds/names.js";
import { Tree } from "../../client/folds/tree.js";
import { Conversation } from "./conversation.js";

const LIVE_TYPES = new Set(["block.delta", "tool.progress"]);

export class SessionLog {
  events = []; // durable, in order
  #isDeclared;
  #folds = new Map(); // fold class -> { fold, at }

  /** `types` are the event types of the application. */
  constructor(types = []) {
    const own = new Set(types);
    this.#isDeclared = (type) => own.has(type);
    this.conversation = new Conversation();
    this.tree = new Tree(this.#isDeclared);
  }

  /** Apply one event; return whether it is durable. */
  apply(event) {
    const lasts = !LIVE_TYPES.has(event.type);
    if (lasts) this.events.push(event);
    this.conversation.apply(event);
    this.tree.apply(event);
    return lasts;
  }

  /** Seq of the last durable event, or -1. */
  get last() {
    return this.events.at(-1)?.seq ?? -1;
  }

  /** Return the name of a principal; null for none. */
  displayName(principal) {
    return principal ? this.fold(Names).displayName(principal) : null;
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
