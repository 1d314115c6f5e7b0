/**
 * The chat of a session: a fold over its events, live or replayed, to entries (`entries.js`) in the order of
 * the log. A message that is queued behind a turn waits in `queue`, and enters the flow when its own turn starts.
 *
 * What agents do that somebody called stands inside the call, at any depth; who takes over goes on in the same
 * place. A retracted block is taken away, a replaced view says so. What is shown when everything has ended does
 * not depend on live events: a reload shows the same.
 */

import { Call, Entry, Flow, Text, Worker } from "./entries.js";

const PROGRESS_CHARS = 4000; // of a running tool's output: the end of it is what matters

export class Conversation {
  flow = new Flow();
  calls = new Map(); // agent id, call id -> Call
  waiting = new Set(); // calls that a person has to answer, in order
  queue = []; // messages that are in no flow yet: their turn has not started
  title = null; // the last one that the session was given
  #agents = new Map(); // agent id -> the flow that it writes to
  #workers = new Map(); // open agent -> Worker
  #blocks = new Map(); // block id -> Text, or Call
  #views = new Map(); // channel, view id -> the entry that shows it
  #entries = new Map(); // event id -> the entry that tells of a message, a view or what was done on it
  #unstarted = new Map(); // turn -> messages that no agent has taken
  #stop = null; // the entry of the last stop, until the next turn starts
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
    const own =
      this.calls.get(keyOf(agent_id, payload.call_id)) ??
      this.#blocks.get(payload.block_id) ??
      this.#entries.get(event.id);
    if (own && !this.queue.includes(own)) return own;
    return flow.entries.findLast((entry) => entry.place <= seq) ?? flow.owner;
  }

  /** The agents that write to a flow and are between two things: they have started nothing that is shown. */
  thinking(flow) {
    return [...this.#workers.values()].filter((worker) => worker.flow === flow && worker.unfinished.size === 0);
  }

  /** Where an event of an agent belongs. */
  #flowOf({ agent_id }) {
    return this.#agents.get(agent_id) ?? this.flow;
  }

  /** An entry that says what its event says, at the end of its flow. */
  #note(event, kind, flow = this.#flowOf(event)) {
    return flow.add(this.#entry(event, kind, flow));
  }

  #entry(event, kind, flow) {
    const entry = new Entry(kind, event, flow);
    return Object.assign(entry, { type: event.type, actor: event.actor ?? null, payload: event.payload });
  }

  /** A message that joins a running turn is answered there. One that comes while others work waits in the queue. */
  message(event) {
    const entry = this.#entry(event, "message", this.flow);
    this.#entries.set(event.id, entry);
    const isBusy = this.#workers.size > 0 || this.#unstarted.size > 0;
    const joins = [...this.#workers.values()].some(({ turn }) => turn === event.trace_id);
    if (!joins) this.#unstarted.set(event.trace_id, [...(this.#unstarted.get(event.trace_id) ?? []), entry]);
    if (joins || !isBusy) this.flow.add(entry);
    else this.queue.push(entry);
  }

  start(event, { call_id, parent_id, via, name, model }) {
    this.#take(event);
    this.#stop = null;
    if (event.agent_id === undefined) return;
    const call = this.calls.get(keyOf(parent_id, call_id));
    const flow = call ? call.flow : this.#nested(event, parent_id, via);
    this.#agents.set(event.agent_id, flow);
    this.#workers.set(event.agent_id, new Worker(event, name, flow));
    if (call) Object.assign(call, { child: name, model }).touch();
  }

  /** The messages of a turn stand where it starts, wherever they were. */
  #take({ trace_id, seq }) {
    const taken = this.#unstarted.get(trace_id) ?? [];
    this.#unstarted.delete(trace_id);
    for (const entry of taken) {
      this.queue = this.queue.filter((each) => each !== entry);
      this.flow.remove(entry);
      entry.place = seq;
      this.flow.add(entry);
      entry.touch();
    }
  }

  /** The flow of an agent that no call in the log has started. */
  #nested(event, parent_id, via) {
    const parent = this.#agents.get(parent_id);
    if (via !== "call" || parent === undefined) return parent ?? this.flow;
    const entry = this.#note(event, "agent", parent);
    entry.flow = new Flow(entry);
    return entry.flow;
  }

  /** What ends an agent is told once: by its error, by the card that it works in, or else by a note. */
  end(event, { stop_reason, reason }) {
    const worker = this.#workers.get(event.agent_id) ?? new Worker(event, null, this.#flowOf(event));
    this.#workers.delete(event.agent_id);
    worker.flow.owner?.touch();
    const [isStop, isRestart] = [stop_reason === "cancelled", reason === "interrupted"];
    if (CALM.has(stop_reason) || worker.fault || (isRestart && worker.isCut)) return;
    if (isStop && worker.flow.owner instanceof Call) return;
    const by = isStop ? (this.#stop?.actor ?? null) : null;
    Object.assign(this.#note(event, "end"), { by, isRestart });
    if (isStop && this.#stop) this.flow.remove(this.#stop);
  }

  /** A stop stands alone only if it ended nothing. */
  command(event, { command }) {
    const entry = this.#note(event, "command");
    if (command.kind === "stop") this.#stop = entry;
  }

  error(event) {
    const entry = this.#note(event, "error");
    const worker = this.#workers.get(event.agent_id);
    if (worker) worker.fault = entry;
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
    if (this.#blocks.has(block_id)) this.#workers.get(event.agent_id)?.begin(this.#blocks.get(block_id));
  }

  #call(event, call_id, tool, block_id = null) {
    const key = keyOf(event.agent_id, call_id);
    const known = this.calls.get(key);
    if (known) return known;
    const flow = this.#flowOf(event);
    const call = flow.add(new Call(event, flow, call_id, tool ?? "tool"));
    call.block_id = block_id;
    this.calls.set(key, call);
    this.#workers.get(event.agent_id)?.begin(call);
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

  blockEnd(event, { block_id, status, text, reason }) {
    const block = this.#blocks.get(block_id);
    if (!block || status !== "aborted") return;
    if (block instanceof Call) return void this.#settle(event, block, { aborted: true, written: text ?? "" });
    block.cut = CUTS.get(reason) ?? "error";
    block.close(text ?? "", { aborted: true });
    this.#finish(event, block);
    if (this.#workers.has(event.agent_id)) this.#workers.get(event.agent_id).isCut = true;
  }

  /** An agent is done with something. */
  #finish({ ts }, entry) {
    this.#workers.get(entry.agent_id)?.finish(entry, ts);
  }

  blockRetract(event, { block_ids }) {
    for (const block_id of block_ids) {
      const block = this.#blocks.get(block_id);
      if (!block) continue;
      if (block instanceof Call) this.#void(event, block);
      this.#finish(event, block);
      block.inside.remove(block);
      this.#blocks.delete(block_id);
    }
  }

  /** A call that never was: another one may have its id. */
  #void(event, call) {
    this.#settle(event, call, { aborted: true });
    this.calls.delete(keyOf(call.agent_id, call.call_id));
  }

  /** The twin of a text or a thinking. */
  text(event, { block_id, text, citations, speaker }) {
    const kind = event.type === "assistant.thinking" ? "thinking" : "text";
    const flow = this.#flowOf(event);
    const block = this.#blocks.get(block_id) ?? flow.add(new Text(kind, event, flow));
    block.redacted = Boolean(event.payload.redacted);
    block.close(text, { citations: citations ?? [], speaker: speaker ?? null });
    this.#finish(event, block);
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
    if (!call) return void this.#note(event, "event");
    if (call.result !== null) return;
    if (call.awaited !== null && event.origin === "ui") call.answer = { actor: event.actor ?? null, ts: event.ts };
    const { error } = payload;
    const isStop = this.#stop !== null && error?.code === "CANCELLED";
    const says = ({ kind, payload: inner }) => kind === "error" && error?.message?.includes(inner.message);
    call.isFaultTold = isStop || call.flow.entries.some(says);
    this.#settle(event, call, { result: payload });
  }

  /** A call is over. */
  #settle(event, call, outcome) {
    Object.assign(call, { awaited: null, approval: null, progress: "" }, outcome);
    this.#finish(event, call);
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
      call.question = args;
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
    call.decision ??= { ...payload, actor: event.actor ?? null, ts: event.ts };
    this.#wait(call);
  }

  /** What a person did: the call or the view that it was done on tells it. */
  action(event, { call_id, view_id, shown, action }) {
    const done = { actor: event.actor ?? null, ts: event.ts, action };
    const call = this.calls.get(keyOf(event.agent_id, call_id));
    const view =
      this.#entries.get(shown) ??
      this.#views.get(keyOf(event.channel, view_id)) ??
      this.#views.get(keyOf(null, view_id));
    if (call) {
      Object.assign(call, { awaited: null, input: action.values ?? null, answer: done });
      this.#wait(call);
    } else if (view) {
      this.#entries.set(event.id, view);
      view.actions.push(done);
      view.touch();
    } else this.#note(event, "action");
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

  rename(_, { title }) {
    this.title = title;
  }

  view(event, { view }) {
    const key = keyOf(event.channel, view.view_id);
    const before = this.#views.get(key);
    const gone = Object.keys(view.tree).length === 0;
    if (before) Object.assign(before, { over: gone ? "closed" : "replaced" }).touch();
    this.#views.delete(key);
    if (gone) return;
    const entry = Object.assign(this.#note(event, "view"), { view, over: null, actions: [] });
    this.#views.set(key, entry);
    this.#entries.set(event.id, entry);
  }
}

/** Events that have a look of their own. */
const KINDS = new Map([
  ["agent.handoff", "handoff"],
  ["assistant.files", "files"],
]);

/** Ends that need no word. */
const CALM = new Set(["end_turn", "stop_sequence", "handoff"]);

/** Why a text broke off, by who ended it from outside; without that its own model failed. */
const CUTS = new Map([
  ["stopped", "stop"],
  ["interrupted", "restart"],
  ["timeout", "timeout"],
]);

const keyOf = (one, other) => `${one ?? ""} ${other ?? ""}`;

const { prototype: of } = Conversation;
const nothing = () => undefined;
const STEPS = new Map([
  ["ui.message", of.message],
  ["ui.action", of.action],
  ["ui.command", of.command],
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
  ["session.error", of.error],
  ["session.title", of.rename],
  ["session.member", nothing],
  ["session.invite", nothing],
  ["session.invite_end", nothing],
  ["assistant.block", nothing],
]);
