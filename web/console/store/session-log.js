/**
 * A session as a page knows it: its durable events in order, and folds over them.
 *
 * What every screen needs (the chat, the open agents) is kept up to date; every other fold catches up when
 * somebody asks for it, so that a long session costs what is looked at. Live events pass through and are not
 * kept: a replay may leave them out, and what is shown must not depend on it.
 */

import { Names } from "../../client/folds/names.js";
import { Tree } from "../../client/folds/tree.js";
import { Conversation } from "./conversation.js";

const LIVE_TYPES = new Set(["block.delta", "tool.progress"]);

export class SessionLog {
  events = []; // durable, in order
  #isDeclared;
  #folds = new Map(); // fold class -> { fold, at }

  /** `types` are the application's own. */
  constructor(types = []) {
    const own = new Set(types);
    this.#isDeclared = (type) => own.has(type);
    this.conversation = new Conversation();
    this.tree = new Tree(this.#isDeclared);
  }

  /** Take one event into account; whether it is kept. */
  apply(event) {
    const lasts = !LIVE_TYPES.has(event.type);
    if (lasts) this.events.push(event);
    this.conversation.apply(event);
    this.tree.apply(event);
    return lasts;
  }

  /** The seq of the last durable event; -1 if there is none. */
  get last() {
    return this.events.at(-1)?.seq ?? -1;
  }

  /** What a principal is called; null if there is none. */
  displayName(principal) {
    return principal ? this.fold(Names).displayName(principal) : null;
  }

  /** A fold of this class over all durable events, caught up. */
  fold(Fold) {
    if (!this.#folds.has(Fold)) this.#folds.set(Fold, { fold: new Fold(), at: 0 });
    const kept = this.#folds.get(Fold);
    while (kept.at < this.events.length) {
      kept.at += 1; // before: an event that a fold cannot take must not stop those after it
      kept.fold.apply(this.events[kept.at - 1]);
    }
    return kept.fold;
  }

  /** Where the event with a seq is in `events`, or the last one before it; -1 if there is none. */
  indexOfSeq(seq) {
    return indexOfSeq(this.events, seq);
  }
}

/** Where the event with a seq is in a list, or the last one before it; -1 if there is none. */
export function indexOfSeq(events, seq) {
  let [low, high] = [0, events.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (events[middle].seq <= seq) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
