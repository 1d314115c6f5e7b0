/**
 * The chat of a session: a fold over its events, live or replayed, to entries (`entries.js`) in the order of
 * the log.
 *
 * What agents do that somebody called stands inside the call, at any depth; who takes over goes on in the same
 * place. A retracted block is taken away, a replaced view says so. What is shown when everything has ended does
 * not depend on live events: a reload shows the same.
 */

import { Call, Entry, Flow, Text } from "./entries.js";

const PROGRESS_CHARS = 4000; // of a running tool's output: the end of it is what matters

export class Conversation {
  flow = new Flow();
  calls = new Map(); // agent id, call id -> Call
  waiting = new Set(); // calls that a person has to answer, in order
  #agents = new Map(); // agent id -> the flow that it writes to
  #blocks = new Map(); // block id -> Text, or Call
  #views = new Map(); // channel, view id -> the entry that shows it
  #queued = new Map(); // turn -> messages that wait for it
  #turns = new Map(); // open agent -> its turn
  #away = false; // the server has gone, and has not come back
  #untold = new Map(); // agent id -> calls of a message that is not complete

  /** Take one event into account. */
  apply(event) {
    const step = STEPS.get(event.type);
    if (step) step.call(this, event, event.payload);
    else this.#note(event, KINDS.get(event.type) ?? "event");
  }

  /** The entry that tells of an event, or the one that stands before it. */
  find(event) {
    const { seq, agent_id, payload } = event;
    const flow = this.#flowOf(event);
    return this.calls.get(keyOf(agent_id, payload.call_id)) ?? this.#blocks.get(payload.block_id)
      ?? flow.entries.findLast((entry) => entry.seq <= seq) ?? flow.owner;
  }

  /** Where an event of an agent belongs. */
  #flowOf({ agent_id }) {
    return this.#agents.get(agent_id) ?? this.flow;
  }

  /** An entry that says what its event says. */
  #note(event, kind, flow = this.#flowOf(event)) {
    const entry = new Entry(kind, event, flow);
    return flow.add(Object.assign(entry, { type: event.type, actor: event.actor ?? null, payload: event.payload }));
  }

  message(event) {
    const entry = this.#note(event, "message", this.flow);
    entry.queued = !this.#runs(event.trace_id);
    if (!entry.queued) return;
    const others = this.#queued.get(event.trace_id) ?? [];
    this.#queued.set(event.trace_id, [...others, entry]);
  }

  #runs(turn) {
    return [...this.#turns.values()].includes(turn);
  }

  start(event, { call_id, parent_id, via, name, model }) {
    for (const entry of this.#queued.get(event.trace_id) ?? []) {
      entry.queued = false;
      entry.touch();
    }
    this.#queued.delete(event.trace_id);
    if (event.agent_id === undefined) return;
    this.#turns.set(event.agent_id, event.trace_id);
    const call = this.calls.get(keyOf(parent_id, call_id));
    this.#agents.set(event.agent_id, call ? call.flow : this.#nested(event, parent_id, via));
    if (call) Object.assign(call, { child: name, model }).touch();
  }

  /** The flow of an agent that no call in the log has started. */
  #nested(event, parent_id, via) {
    const parent = this.#agents.get(parent_id);
    if (via !== "call" || parent === undefined) return parent ?? this.flow;
    const entry = this.#note(event, "agent", parent);
    entry.flow = new Flow(entry);
    return entry.flow;
  }

  end(event, { stop_reason }) {
    this.#turns.delete(event.agent_id);
    if (!CALM.has(stop_reason)) this.#note(event, "end");
  }

  /** The calls of this message are complete, and begin. */
  usage({ agent_id }) {
    for (const call of this.#untold.get(agent_id) ?? []) {
      call.told = true;
      call.touch();
    }
    this.#untold.delete(agent_id);
  }

  blockStart(event, { block_id, kind, call_id, tool }) {
    const flow = this.#flowOf(event);
    if (kind === "tool_call") this.#blocks.set(block_id, this.#call(event, call_id ?? block_id, tool, block_id));
    else if (kind !== "other") this.#blocks.set(block_id, flow.add(new Text(kind, event, flow)));
  }

  #call(event, call_id, tool, block_id = null) {
    const key = keyOf(event.agent_id, call_id);
    const known = this.calls.get(key);
    if (known) return known;
    const flow = this.#flowOf(event);
    const call = flow.add(new Call(event, flow, call_id, tool ?? "tool"));
    call.block_id = block_id;
    this.calls.set(key, call);
    this.#untold.set(event.agent_id, [...(this.#untold.get(event.agent_id) ?? []), call]);
    return call;
  }

  blockDelta(_, { block_id, text }) {
    const block = this.#blocks.get(block_id);
    if (block instanceof Text) block.add(text);
    else if (block) {
      block.written += text;
      block.touch();
    }
  }

  blockEnd(_, { block_id, status, text }) {
    const block = this.#blocks.get(block_id);
    if (!block || status !== "aborted") return;
    if (block instanceof Text) block.close(text ?? "", { aborted: true });
    else this.#settle(block, { aborted: true, written: text ?? "" });
  }

  blockRetract(_, { block_ids }) {
    for (const block_id of block_ids) {
      const block = this.#blocks.get(block_id);
      if (!block) continue;
      if (block instanceof Call) this.#void(block);
      block.inside.remove(block);
      this.#blocks.delete(block_id);
    }
  }

  /** A call that never was: another one may have its id. */
  #void(call) {
    this.#settle(call, { aborted: true });
    this.calls.delete(keyOf(call.agent_id, call.call_id));
  }

  /** The twin of a text or a thinking. */
  text(event, { block_id, text, citations, speaker }) {
    const kind = event.type === "assistant.thinking" ? "thinking" : "text";
    const flow = this.#flowOf(event);
    const block = this.#blocks.get(block_id) ?? flow.add(new Text(kind, event, flow));
    block.redacted = Boolean(event.payload.redacted);
    block.close(text, { citations: citations ?? [], speaker: speaker ?? null });
  }

  call(event, { call_id, tool, args, executor, incomplete, block_id }) {
    this.#name(this.#blocks.get(block_id), call_id);
    const call = this.#call(event, call_id, tool, block_id);
    if (block_id) this.#blocks.set(block_id, call);
    Object.assign(call, { tool, args, executor: executor ?? "backend", incomplete: incomplete ?? null, written: "" });
    call.touch();
  }

  /** The id of a call whose block began without one. */
  #name(call, call_id) {
    if (!call || call.call_id === call_id) return;
    this.calls.delete(keyOf(call.agent_id, call.call_id));
    call.call_id = call_id;
    this.calls.set(keyOf(call.agent_id, call_id), call);
  }

  progress(event, { call_id, text }) {
    const call = this.calls.get(keyOf(event.agent_id, call_id));
    if (!call || call.result !== null) return;
    call.progress = (call.progress + text).slice(-PROGRESS_CHARS);
    call.touch();
  }

  result(event, payload) {
    const call = this.calls.get(keyOf(event.agent_id, payload.call_id));
    if (!call) this.#note(event, "event");
    else if (call.result === null) this.#settle(call, { result: payload });
  }

  /** A call is over. */
  #settle(call, outcome) {
    Object.assign(call, { awaited: null, approval: null, progress: "" }, outcome);
    this.#wait(call);
  }

  /** Keep count of what waits for a person, inside everything around it too. */
  #wait(call) {
    const waits = call.state === "waiting";
    if (waits !== this.waiting.has(call)) {
      this.waiting[waits ? "add" : "delete"](call);
      for (let entry = call.inside.owner; entry; entry = entry.inside?.owner) {
        entry.waiting = (entry.waiting ?? 0) + (waits ? 1 : -1);
      }
    }
    call.touch();
  }

  awaits(event, { calls }) {
    for (const { call_id, tool, args } of calls) {
      const call = this.#call(event, call_id, tool);
      if (call.result !== null) continue;
      call.awaited = { args, seq: event.seq };
      this.#wait(call);
    }
  }

  approvalRequest(event, payload) {
    const call = this.#call(event, payload.call_id, payload.tool);
    if (call.result !== null) return;
    call.approval = payload;
    this.#wait(call);
  }

  approvalDecision(event, payload) {
    const call = this.calls.get(keyOf(event.agent_id, payload.call_id));
    if (!call) return;
    call.approval = null;
    call.decision ??= { ...payload, actor: event.actor ?? null };
    this.#wait(call);
  }

  action(event, { call_id, action }) {
    const call = this.calls.get(keyOf(event.agent_id, call_id));
    if (!call) return void this.#note(event, "action");
    call.awaited = null;
    call.input = action.values ?? null;
    this.#wait(call);
  }

  /** The server is there: worth a word only where it was away. */
  processStart(event, { process }) {
    if (process !== "server") this.#note(event, "event");
    else if (this.#away) this.#note(event, "restart");
    if (process === "server") this.#away = false;
  }

  processEnd(event, { process }) {
    if (process === "server") this.#away = true;
    else this.#note(event, "event");
  }

  view(event, { view }) {
    const key = keyOf(event.channel, view.view_id);
    const before = this.#views.get(key);
    const gone = Object.keys(view.tree).length === 0;
    if (before) Object.assign(before, { over: gone ? "closed" : "replaced" }).touch();
    this.#views.delete(key);
    if (gone) return;
    this.#views.set(key, Object.assign(this.#note(event, "view"), { view, over: null }));
  }
}

/** Events that have a look of their own. */
const KINDS = new Map([["agent.handoff", "handoff"], ["session.error", "error"], ["ui.command", "command"], ["assistant.files", "files"]]);

/** Ends that need no word. */
const CALM = new Set(["end_turn", "stop_sequence", "handoff"]);

const keyOf = (one, other) => `${one ?? ""} ${other ?? ""}`;

const { prototype: of } = Conversation;
const nothing = () => undefined;
const STEPS = new Map([
  ["ui.message", of.message],
  ["ui.action", of.action],
  ["agent.start", of.start],
  ["agent.end", of.end],
  ["agent.usage", of.usage],
  ["block.start", of.blockStart],
  ["block.delta", of.blockDelta],
  ["block.end", of.blockEnd],
  ["block.retract", of.blockRetract],
  ["assistant.message", of.text],
  ["assistant.thinking", of.text],
  ["assistant.view", of.view],
  ["tool.call", of.call],
  ["tool.progress", of.progress],
  ["tool.result", of.result],
  ["tool.await", of.awaits],
  ["approval.request", of.approvalRequest],
  ["approval.decision", of.approvalDecision],
  ["process.start", of.processStart],
  ["process.end", of.processEnd],
  ["session.member", nothing],
  ["assistant.block", nothing],
]);
