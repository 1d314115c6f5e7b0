/**
 * Turns the snapshots of a `SessionStore` into the entries of the chat: one per message, text, call, view or note.
 *
 * Input is `snapshot.messages`; output is a `SharedList` of plain objects. A part that did not change gives the same entry
 * again, so an element compares by identity. A call has its questions, approvals and agents in one entry; `inside` has
 * the entries of the agents that it started, at any depth.
 *
 * Of a message that did not change nothing is read: a delta compares the messages by identity, and builds the entry of
 * its part.
 */

import { HolderEntries } from "./holder-entries.js";
import { SharedList } from "./shared-list.js";

const ENDED = new Set(["done", "error", "denied", "aborted"]);
const RUNNING = new Set(["streaming", "writing", "queued", "running", "waiting"]);

export class ChatEntries {
  #messages = [];
  #holders = []; // the entries of each message
  #starts = []; // of each message in `#all`
  #all = new SharedList();

  /** Return the entries of the messages, in order; the same list for the same messages. */
  list(messages) {
    if (messages !== this.#messages) this.#update(messages);
    return this.#all;
  }

  #update(messages) {
    const all = this.#all.copy();
    const at = this.#patch(all, messages);
    if (at < messages.length || at < this.#messages.length) this.#buildFrom(at, all, messages);
    this.#messages = messages;
    this.#all = all;
  }

  /**
   * Put the entries of changed messages in their places. Return the index of the first message whose entries do not
   * fit there: its place or the number of its entries has changed.
   */
  #patch(all, messages) {
    const before = this.#messages;
    const count = Math.min(before.length, messages.length);
    for (let at = findChange(before, messages, 0); at < count; at = findChange(before, messages, at + 1)) {
      const message = messages[at];
      if (message.id !== before[at].id) return at;

      const holder = this.#holders[at];
      const entriesBefore = holder.list;
      const entries = holder.update(message);
      if (entries.length !== entriesBefore.length) return at;
      const start = this.#starts[at];
      for (let index = 0; index < entries.length; index += 1) {
        if (entries[index] !== entriesBefore[index]) all.set(start + index, entries[index]);
      }
    }
    return count;
  }

  /** Put the entries from a message on behind those of the messages before it. */
  #buildFrom(first, all, messages) {
    if (first < this.#starts.length) all.truncate(this.#starts[first]);
    const known = new Map();
    for (let at = first; at < this.#holders.length; at += 1) known.set(this.#messages[at].id, this.#holders[at]);
    this.#holders.length = first;
    this.#starts.length = first;
    for (let at = first; at < messages.length; at += 1) {
      const message = messages[at];
      const holder = known.get(message.id) ?? new HolderEntries();
      known.delete(message.id); // a second message with this id gets entries of its own
      this.#holders.push(holder);
      this.#starts.push(all.length);
      for (const entry of holder.update(message)) all.push(entry);
    }
  }
}

/** Return the index of the first message from `start` on that has changed; the shorter length if none has. */
function findChange(before, messages, start) {
  const count = Math.min(before.length, messages.length);
  let at = start;
  while (at < count && messages[at] === before[at]) at += 1;
  return at;
}

/** Return the agents of some messages or agent parts that run and have no unfinished text or call. */
export const thinkingAgents = (holders) =>
  holders.filter(
    ({ state, parts, agent_id }) =>
      agent_id !== undefined &&
      state === "running" &&
      !parts.some((part) =>
        part.type === "call" ? !ENDED.has(part.state) : RUNNING.has(part.state) && part.type !== "agent",
      ),
  );

const WORK_KINDS = new Set(["call", "thinking", "agent"]);
const MIN_FOLDED = 2; // a single call is one line already

/**
 * Group items of the chat: `{item}` alone, or `{items}` that are finished work, one after the other, of a turn that has
 * ended. `turns` are the meters by turn; null folds nothing.
 */
export function foldWork(items, turns) {
  const isFolded = ({ entries: [{ kind, turn, hasWaiting: waits }] }) => {
    const meter = turns?.get(turn);
    return WORK_KINDS.has(kind) && !waits && meter?.running === 0 && meter.ended !== null;
  };
  const groups = [];
  for (const item of items) {
    const last = groups.at(-1);
    const isNext = isFolded(item) && last?.items?.[0].entries[0].turn === item.entries[0].turn;
    if (isNext) last.items.push(item);
    else groups.push(isFolded(item) ? { items: [item] } : { item });
  }
  return groups.flatMap((group) => (group.items?.length < MIN_FOLDED ? [{ item: group.items[0] }] : [group]));
}

/** Return the entries from the top to the one that shows an event, or to the last one before it; empty if none. */
export function findEntry(entries, event) {
  const { seq, agent_id, trace_id, payload } = event;
  const own = ({ id, call_id, actions, ...entry }) =>
    (call_id !== undefined && call_id === payload.call_id && entry.agent_id === (agent_id ?? null)) ||
    (payload.block_id !== undefined && id === payload.block_id) ||
    (id === event.id && entry.kind !== "end") ||
    (actions ?? []).some((action) => action.id === event.id);
  const isBefore = (entry) => entry.seq <= seq;
  const ofAgent = (entry) => agent_id !== undefined && entry.agent_id === agent_id && isBefore(entry);
  const hasAgent = (entry) => agent_id !== undefined && entry.agents?.some((agent) => agent.agent_id === agent_id);
  for (const matches of [own, ofAgent, hasAgent]) {
    const path = findPath(entries, matches);
    if (path.length > 0) return path;
  }
  const ofTurn = (entry) => trace_id !== undefined && entry.turn === trace_id && isBefore(entry);
  const before = entries.findLast(ofTurn) ?? entries.findLast(isBefore) ?? entries.at(0);
  return before ? [before] : [];
}

/** Return the path to the last entry that matches; an entry is found before what is inside it. */
function findPath(entries, matches) {
  for (let at = entries.length - 1; at >= 0; at -= 1) {
    const entry = entries.at(at);
    const inner = entry.inside ? findPath(entry.inside, matches) : [];
    if (inner.length > 0) return [entry, ...inner];
    if (matches(entry)) return [entry];
  }
  return [];
}
