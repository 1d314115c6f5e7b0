/**
 * The entries of one holder: a message, or the part of an agent inside a call.
 *
 * `update` gets the holder after each change and returns its entries. If parts were replaced, or added at the end, it
 * builds the entries of those parts alone. After any other change it looks at all parts, and builds the entries that
 * differ. A list that was returned never changes.
 */

import { buildAgent, buildCall, buildEnd, buildPart, buildUser, isErrorElsewhere } from "./entry-builders.js";

const NOWHERE = -1; // in place of an index
const NO_HOLDER = { parts: [] };
const NO_ENTRIES = [];
const NO_HOLDERS = [];
const NO_INDEXES = new Map();

export class HolderEntries {
  list = NO_ENTRIES;
  #holder = NO_HOLDER;
  #frame = null; // the fields that all entries share
  #slots = []; // for each part: the index of its entry; NOWHERE if a change of the part may change other entries too
  #groups = []; // for each entry: its `CallGroup`, or null

  /** Return the entries of the holder as it is now; `message` is the one around it. */
  update(holder, message = holder) {
    if (holder.role === "user") {
      if (holder !== this.#holder) this.list = [buildUser(holder)];
    } else if (this.#frame === null || !isSameFrame(this.#frame, holder, message)) {
      this.#frame = frameOf(holder, message);
      this.list = NO_ENTRIES; // each entry has the frame: none stays the same
      this.#build(holder);
    } else if (holder !== this.#holder) {
      if (this.#canPatch(holder)) this.#patch(holder.parts);
      else this.#build(holder);
    }
    this.#holder = holder;
    return this.list;
  }

  /** Whether each part that has changed changes one entry, and all new parts are at the end. */
  #canPatch({ parts, ending }) {
    const { parts: before, ending: endingBefore } = this.#holder;
    if (ending !== endingBefore || parts.length < before.length) return false;
    if (parts === before) return true;
    if (ending) return false; // the note of the end depends on all parts
    for (let at = 0; at < before.length; at += 1) {
      if (parts[at] === before[at]) continue;
      if (this.#slots[at] === NOWHERE || !isReplacement(parts[at], before[at])) return false;
    }
    for (let at = before.length; at < parts.length; at += 1) if (!isAlone(parts, at)) return false;
    return true;
  }

  #patch(parts) {
    const before = this.#holder.parts;
    if (parts === before) return;
    const list = this.list.slice();
    for (let at = 0; at < before.length; at += 1) {
      if (parts[at] === before[at]) continue;
      const slot = this.#slots[at];
      const group = this.#groups[slot];
      group?.replace(before[at], parts[at]);
      list[slot] = group ? group.build(this.#frame) : buildPart(parts[at], this.#frame);
    }
    for (let at = before.length; at < parts.length; at += 1) {
      const group = hasGroup(parts[at]) ? new CallGroup(parts[at], [parts[at]]) : null;
      this.#slots.push(list.length);
      this.#groups.push(group);
      list.push(group ? group.build(this.#frame) : buildPart(parts[at], this.#frame));
    }
    this.list = list;
  }

  /** Build the entries of all parts. An entry that was built from the same parts stays the same. */
  #build(holder) {
    const { parts, ending = null } = holder;
    const { parts: partsBefore } = this.#holder;
    const indexes = partsBefore.length > 0 ? indexById(partsBefore) : NO_INDEXES;
    const calls = partsByCall(parts);
    const list = [];
    const slots = [];
    const groups = [];

    for (const part of parts) {
      slots.push(NOWHERE);
      const ofCall = calls.get(part.call_id);
      if (ofCall !== undefined && part.type !== "call") continue; // the entry of its call has it
      if (part.type === "file" && joinFiles(list, part)) continue;

      const before = indexes.get(part.id) ?? NOWHERE;
      const slotBefore = this.#slots[before] ?? NOWHERE;
      let entry = this.list[slotBefore];
      let group = null;
      if (hasGroup(part)) {
        const groupBefore = this.#groups[slotBefore] ?? null;
        group = new CallGroup(part, ofCall ?? [part], ending, groupBefore);
        if (entry === undefined || !group.isSame(groupBefore)) entry = group.build(this.#frame);
      } else if (entry === undefined || part !== partsBefore[before] || entry.files?.length > 1) {
        entry = buildPart(part, this.#frame);
      }
      slots[slots.length - 1] = list.length;
      groups.push(group);
      list.push(entry);
    }

    addSlotsOfCalls(slots, parts, calls);
    const end = buildEnd(holder, this.#frame);
    if (end !== null) list.push(end);
    this.list = list;
    this.#slots = slots;
    this.#groups = groups;
  }
}

/** What the entry of a call is built from: the call with its questions, approvals and agents. An agent can be alone. */
class CallGroup {
  #owner; // the call or the agent
  #parts;
  #holders; // for each part: its `HolderEntries` if it is an agent, else null; empty for a call alone
  #isErrorShown;

  /** `before` is the group of the same owner before a change. It must not be used any more. */
  constructor(owner, parts, ending = null, before = null) {
    this.#owner = owner;
    this.#parts = parts;
    this.#holders = parts.length > 1 || owner.type === "agent" ? this.#createHolders(before) : NO_HOLDERS;
    this.#isErrorShown = this.#isErrorElsewhere(ending);
  }

  #createHolders(before) {
    return this.#parts.map((part) =>
      part.type === "agent" ? (before?.#findHolder(part.id) ?? new HolderEntries()) : null,
    );
  }

  #findHolder(id) {
    return this.#holders[this.#parts.findIndex((part) => part.type === "agent" && part.id === id)];
  }

  #isErrorElsewhere(ending) {
    return this.#owner.type === "call" && isErrorElsewhere(this.#owner, ending, this.#parts);
  }

  /** Whether another group gives the same entry. */
  isSame(other) {
    if (other === null || other.#isErrorShown !== this.#isErrorShown) return false;
    return other.#parts.length === this.#parts.length && other.#parts.every((part, at) => part === this.#parts[at]);
  }

  /** Replace a part while the agent around the call runs. */
  replace(before, part) {
    this.#parts[this.#parts.indexOf(before)] = part;
    if (this.#owner === before) this.#owner = part;
    this.#isErrorShown = this.#isErrorElsewhere(null);
  }

  build(frame) {
    const inside = this.#buildInside(frame);
    if (this.#owner.type === "agent") return buildAgent(this.#owner, frame, inside);
    return buildCall(this.#owner, frame, this.#parts, inside, this.#isErrorShown);
  }

  /** Return the entries of the agents; of a single agent its own list. */
  #buildInside(frame) {
    let inside = NO_ENTRIES;
    for (let at = 0; at < this.#parts.length; at += 1) {
      const entries = this.#holders[at]?.update(this.#parts[at], frame) ?? NO_ENTRIES;
      if (entries.length > 0) inside = inside.length > 0 ? [...inside, ...entries] : entries;
    }
    return inside;
  }
}

const hasGroup = ({ type }) => type === "call" || type === "agent";

/** Whether a part is another state of the same part. */
const isReplacement = (part, before) =>
  part.id === before.id && part.type === before.type && part.call_id === before.call_id && part.type !== "file";

/** Whether no part before this one changes its entry: files with the same seq and the parts of a call share one. */
function isAlone(parts, at) {
  const { type, call_id } = parts[at];
  if (type === "file") return false;
  if (call_id == null) return true;
  return type === "call" && parts.findIndex((part) => part.call_id === call_id) === at;
}

const indexById = (parts) => new Map(parts.map(({ id }, at) => [id, at]));

/** Return the parts of each call: the call itself and what belongs to it, by the id of the call. */
function partsByCall(parts) {
  const calls = new Map();
  for (const { type, call_id } of parts) if (type === "call") calls.set(call_id, []);
  if (calls.size > 0) for (const part of parts) if (part.call_id != null) calls.get(part.call_id)?.push(part);
  return calls;
}

/** Set the slots of the parts of calls, which is the one of their call. Two calls with the same id have none. */
function addSlotsOfCalls(slots, parts, calls) {
  let isEachAlone = true;
  for (const ofCall of calls.values()) isEachAlone &&= ofCall.length < 2;
  if (isEachAlone) return;
  const slotsOfCalls = new Map();
  parts.forEach(({ type, call_id }, at) => {
    if (type === "call") slotsOfCalls.set(call_id, slotsOfCalls.has(call_id) ? NOWHERE : slots[at]);
  });
  parts.forEach(({ call_id }, at) => {
    slots[at] = slotsOfCalls.get(call_id) ?? slots[at];
  });
}

/** Add a file to the last entry if that has the files of the same event. */
function joinFiles(list, part) {
  const last = list.at(-1);
  if (last?.kind !== "files" || last.seq !== part.seq) return false;
  list[list.length - 1] = { ...last, files: [...last.files, part] };
  return true;
}

const frameOf = ({ id, agent_id = null, agent_name = null }, { turn, channel }) => ({
  holder_id: id,
  turn,
  channel,
  agent_id,
  agent_name,
});

const isSameFrame = (frame, { id, agent_id = null, agent_name = null }, { turn, channel }) =>
  frame.holder_id === id &&
  frame.turn === turn &&
  frame.channel === channel &&
  frame.agent_id === agent_id &&
  frame.agent_name === agent_name;
