/**
 * Folds events, live or replayed, to the entries of the chat (`entries.js`), in the order of the log.
 *
 * A message that is queued behind a turn stays in `queue` and joins the thread when its own turn starts. The entries
 * of a called agent are inside the call, at any depth; the target of a hand-off continues in the same thread. A
 * retracted block is removed, a replaced view is marked. When all agents have ended the entries do not depend on live
 * events: a reload shows the same.
 */

import { CallEntry, Entry, OpenAgent, TextEntry, Thread } from "./entries.js";

const PROGRESS_CHARS = 4000; // of a running tool's output: the end

export class Conversation {
  thread = new Thread();
  calls = new Map(); // agent id, call id -> CallEntry
  waiting = new Set(); // the calls that need a person's answer, in order
  queue = []; // messages whose turn has not started
  title = null; // of the last session.title
  #threads = new Map();
  #openAgents = new Map(); // open agent -> Worker
  #blocks = new Map(); // block id -> TextEntry or CallEntry
  #views = new Map(); // channel, view id -> entry
  #entries = new Map(); // event id of a message, a view or an action -> entry
  #unstartedMessages = new Map(); // turn -> messages that started no agent yet
  #lastStop = null; // the last stop, until the next turn starts
  #isServerDown = false;
  #incompleteCalls = new Map(); // agent id -> calls whose message is not complete

  apply(event) {
    const step = REDUCERS.get(event.type);
    if (step) step.call(this, event, event.payload);
    else this.#addEntry(event, ENTRY_KINDS.get(event.type) ?? "event");
  }

  /** Return the entry that shows an event, or the last one before it. */
  find(event) {
    const { seq, agent_id, payload } = event;
    const thread = this.#threadFor(event);
    const own =
      this.calls.get(pairKey(agent_id, payload.call_id)) ??
      this.#blocks.get(payload.block_id) ??
      this.#entries.get(event.id);
    if (own && !this.queue.includes(own)) return own;
    return thread.entries.findLast((entry) => entry.place <= seq) ?? thread.owner;
  }

  /** Return the open agents of a thread that have no unfinished text or call. */
  thinkingAgents(thread) {
    return [...this.#openAgents.values()].filter((agent) => agent.thread === thread && agent.unfinished.size === 0);
  }

  #threadFor({ agent_id }) {
    return this.#threads.get(agent_id) ?? this.thread;
  }

  /** Append an entry of an event to its thread. */
  #addEntry(event, kind, thread = this.#threadFor(event)) {
    return thread.add(this.#buildEntry(event, kind, thread));
  }

  #buildEntry(event, kind, thread) {
    const entry = new Entry(kind, event, thread);
    return Object.assign(entry, { type: event.type, actor: event.actor ?? null, payload: event.payload });
  }

  /** A message of a running turn joins the thread at once. While other turns run it is queued. */
  message(event) {
    const entry = this.#buildEntry(event, "message", this.thread);
    this.#entries.set(event.id, entry);
    const isBusy = this.#openAgents.size > 0 || this.#unstartedMessages.size > 0;
    const joins = [...this.#openAgents.values()].some(({ turn }) => turn === event.trace_id);
    if (!joins)
      this.#unstartedMessages.set(event.trace_id, [...(this.#unstartedMessages.get(event.trace_id) ?? []), entry]);
    if (joins || !isBusy) this.thread.add(entry);
    else this.queue.push(entry);
  }

  start(event, { call_id, parent_id, via, name, model }) {
    this.#placeTurnMessages(event);
    this.#lastStop = null;
    if (event.agent_id === undefined) return;
    const call = this.calls.get(pairKey(parent_id, call_id));
    const thread = call ? call.thread : this.#threadWithoutCall(event, parent_id, via);
    this.#threads.set(event.agent_id, thread);
    this.#openAgents.set(event.agent_id, new OpenAgent(event, name, thread));
    if (call) Object.assign(call, { child: name, model }).touch();
  }

  /** Move the messages of a turn to where the turn starts. */
  #placeTurnMessages({ trace_id, seq }) {
    const messages = this.#unstartedMessages.get(trace_id) ?? [];
    this.#unstartedMessages.delete(trace_id);
    for (const entry of messages) {
      this.queue = this.queue.filter((each) => each !== entry);
      this.thread.remove(entry);
      entry.place = seq;
      this.thread.add(entry);
      entry.touch();
    }
  }

  /** Return the thread of an agent that was not started by a call in the log. */
  #threadWithoutCall(event, parent_id, via) {
    const parent = this.#threads.get(parent_id);
    if (via !== "call" || parent === undefined) return parent ?? this.thread;
    const entry = this.#addEntry(event, "agent", parent);
    entry.thread = new Thread(entry);
    return entry.thread;
  }

  /** Show the end of an agent once: by its error, by the card of its call, or else by a note. */
  end(event, { stop_reason, reason }) {
    const agent = this.#openAgents.get(event.agent_id) ?? new OpenAgent(event, null, this.#threadFor(event));
    this.#openAgents.delete(event.agent_id);
    agent.thread.owner?.touch();
    const isStop = stop_reason === "cancelled";
    const isRestart = reason === "interrupted";
    if (QUIET_ENDS.has(stop_reason) || agent.fault || (isRestart && agent.hasAbortedText)) return;
    if (isStop && agent.thread.owner instanceof CallEntry) return;
    const by = isStop ? (this.#lastStop?.actor ?? null) : null;
    Object.assign(this.#addEntry(event, "end"), { by, isRestart });
    if (isStop && this.#lastStop) this.thread.remove(this.#lastStop);
  }

  /** A stop keeps its own entry only if it ended nothing. */
  command(event, { command }) {
    const entry = this.#addEntry(event, "command");
    if (command.kind === "stop") this.#lastStop = entry;
  }

  error(event) {
    const entry = this.#addEntry(event, "error");
    const agent = this.#openAgents.get(event.agent_id);
    if (agent) agent.fault = entry;
  }

  /** The usage ends a message: its calls start to run. */
  usage({ agent_id }) {
    for (const call of this.#incompleteCalls.get(agent_id) ?? []) {
      call.isMessageComplete = true;
      call.touch();
    }
    this.#incompleteCalls.delete(agent_id);
  }

  blockStart(event, { block_id, kind, call_id, tool }) {
    const thread = this.#threadFor(event);
    if (kind === "tool_call")
      this.#blocks.set(block_id, this.#getOrAddCall(event, call_id ?? block_id, tool, block_id));
    else if (kind !== "other") this.#blocks.set(block_id, thread.add(new TextEntry(kind, event, thread)));
    if (this.#blocks.has(block_id)) this.#openAgents.get(event.agent_id)?.begin(this.#blocks.get(block_id));
  }

  #getOrAddCall(event, call_id, tool, block_id = null) {
    const key = pairKey(event.agent_id, call_id);
    const known = this.calls.get(key);
    if (known) return known;
    const thread = this.#threadFor(event);
    const call = thread.add(new CallEntry(event, thread, call_id, tool ?? "tool"));
    call.block_id = block_id;
    this.calls.set(key, call);
    this.#openAgents.get(event.agent_id)?.begin(call);
    this.#incompleteCalls.set(event.agent_id, [...(this.#incompleteCalls.get(event.agent_id) ?? []), call]);
    return call;
  }

  blockDelta(_, { block_id, text }) {
    const block = this.#blocks.get(block_id);
    if (block instanceof TextEntry) block.add(text);
    else if (block) {
      block.written += text;
      block.touch();
    }
  }

  blockEnd(event, { block_id, status, text, reason }) {
    const block = this.#blocks.get(block_id);
    if (!block || status !== "aborted") return;
    if (block instanceof CallEntry) return void this.#closeCall(event, block, { aborted: true, written: text ?? "" });
    block.abortReason = ABORT_REASONS.get(reason) ?? "error";
    block.close(text ?? "", { aborted: true });
    this.#finish(event, block);
    if (this.#openAgents.has(event.agent_id)) this.#openAgents.get(event.agent_id).hasAbortedText = true;
  }

  #finish({ ts }, entry) {
    this.#openAgents.get(entry.agent_id)?.finish(entry, ts);
  }

  blockRetract(event, { block_ids }) {
    for (const block_id of block_ids) {
      const block = this.#blocks.get(block_id);
      if (!block) continue;
      if (block instanceof CallEntry) this.#discardCall(event, block);
      this.#finish(event, block);
      block.inside.remove(block);
      this.#blocks.delete(block_id);
    }
  }

  /** Remove a retracted call: another call may reuse its id. */
  #discardCall(event, call) {
    this.#closeCall(event, call, { aborted: true });
    this.calls.delete(pairKey(call.agent_id, call.call_id));
  }

  /** The complete text of a block; live deltas before it are replaced. */
  text(event, { block_id, text, citations, speaker }) {
    const kind = event.type === "assistant.thinking" ? "thinking" : "text";
    const thread = this.#threadFor(event);
    const block = this.#blocks.get(block_id) ?? thread.add(new TextEntry(kind, event, thread));
    block.redacted = Boolean(event.payload.redacted);
    block.close(text, { citations: citations ?? [], speaker: speaker ?? null });
    this.#finish(event, block);
  }

  call(event, { call_id, tool, args, executor, incomplete, block_id }) {
    this.#renameCall(this.#blocks.get(block_id), call_id);
    const call = this.#getOrAddCall(event, call_id, tool, block_id);
    if (block_id) this.#blocks.set(block_id, call);
    Object.assign(call, { tool, args, executor: executor ?? "backend", incomplete: incomplete ?? null, written: "" });
    call.touch();
  }

  /** Set the id of a call whose block started without one. */
  #renameCall(call, call_id) {
    if (!call || call.call_id === call_id) return;
    this.calls.delete(pairKey(call.agent_id, call.call_id));
    call.call_id = call_id;
    this.calls.set(pairKey(call.agent_id, call_id), call);
  }

  progress(event, { call_id, text }) {
    const call = this.calls.get(pairKey(event.agent_id, call_id));
    if (!call || call.result !== null) return;
    call.progress = (call.progress + text).slice(-PROGRESS_CHARS);
    call.touch();
  }

  result(event, payload) {
    const call = this.calls.get(pairKey(event.agent_id, payload.call_id));
    if (!call) return void this.#addEntry(event, "event");
    if (call.result !== null) return;
    if (call.awaited !== null && event.origin === "ui") call.answer = { actor: event.actor ?? null, ts: event.ts };
    const { error } = payload;
    const isStop = this.#lastStop !== null && error?.code === "CANCELLED";
    const says = ({ kind, payload: inner }) => kind === "error" && error?.message?.includes(inner.message);
    call.isErrorShown = isStop || call.thread.entries.some(says);
    this.#closeCall(event, call, { result: payload });
  }

  #closeCall(event, call, outcome) {
    Object.assign(call, { awaited: null, approval: null, progress: "" }, outcome);
    this.#finish(event, call);
    this.#updateWaiting(call);
  }

  /** Update `waiting`, and the counts of all entries around the call. */
  #updateWaiting(call) {
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
      const call = this.#getOrAddCall(event, call_id, tool);
      if (call.result !== null) continue;
      call.awaited = { args, seq: event.seq };
      call.question = args;
      this.#updateWaiting(call);
    }
  }

  approvalRequest(event, payload) {
    const call = this.#getOrAddCall(event, payload.call_id, payload.tool);
    if (call.result !== null) return;
    call.approval = payload;
    this.#updateWaiting(call);
  }

  approvalDecision(event, payload) {
    const call = this.calls.get(pairKey(event.agent_id, payload.call_id));
    if (!call) return;
    call.approval = null;
    call.decision ??= { ...payload, actor: event.actor ?? null, ts: event.ts };
    this.#updateWaiting(call);
  }

  /** Record an action on its call or its view; without either it is an entry. */
  action(event, { call_id, view_id, shown, action }) {
    const record = { actor: event.actor ?? null, ts: event.ts, action };
    const call = this.calls.get(pairKey(event.agent_id, call_id));
    const view =
      this.#entries.get(shown) ??
      this.#views.get(pairKey(event.channel, view_id)) ??
      this.#views.get(pairKey(null, view_id));
    if (call) {
      Object.assign(call, { awaited: null, input: action.values ?? null, answer: record });
      this.#updateWaiting(call);
    } else if (view) {
      this.#entries.set(event.id, view);
      view.actions.push(record);
      view.touch();
    } else this.#addEntry(event, "action");
  }

  /** Show a start of the server only after its end. */
  processStart(event, { process }) {
    if (process !== "server") this.#addEntry(event, "event");
    else if (this.#isServerDown) this.#addEntry(event, "restart");
    if (process === "server") this.#isServerDown = false;
  }

  processEnd(event, { process }) {
    if (process === "server") this.#isServerDown = true;
    else this.#addEntry(event, "event");
  }

  rename(_, { title }) {
    this.title = title;
  }

  view(event, { view }) {
    const key = pairKey(event.channel, view.view_id);
    const before = this.#views.get(key);
    if (isSurfaceUpdate(view)) {
      if (before?.view.kind === view.kind) Object.assign(before, { updates: [...before.updates, view.tree] }).touch();
      return;
    }
    const gone = isClosing(view);
    if (before) Object.assign(before, { over: gone ? "closed" : "replaced" }).touch();
    this.#views.delete(key);
    if (gone) return;
    const entry = Object.assign(this.#addEntry(event, "view"), { view, updates: [], over: null, actions: [] });
    this.#views.set(key, entry);
    this.#entries.set(event.id, entry);
  }
}

/** The kinds of entries by event type; any other type is an "event". */
const ENTRY_KINDS = new Map([
  ["agent.handoff", "handoff"],
  ["assistant.files", "files"],
]);

/** Stop reasons that get no note. */
const QUIET_ENDS = new Set(["end_turn", "stop_sequence", "handoff"]);

/** By reason of `block.end`; without one the model failed. */
const ABORT_REASONS = new Map([
  ["stopped", "stop"],
  ["interrupted", "restart"],
  ["timeout", "timeout"],
]);

const SURFACE_KIND = "a2ui.v0.9";

/** Whether a view has messages of A2UI that change an open surface. */
const isSurfaceUpdate = (view) =>
  view.kind === SURFACE_KIND && !isClosing(view) && view.tree.messages?.[0]?.createSurface === undefined;

/** Whether an event closes its view: its tree is empty, or the last message of A2UI deletes the surface. */
const isClosing = ({ kind, tree }) =>
  Object.keys(tree).length === 0 || (kind === SURFACE_KIND && tree.messages?.at?.(-1)?.deleteSurface !== undefined);

const pairKey = (one, other) => `${one ?? ""} ${other ?? ""}`;

const { prototype: of } = Conversation;
const ignore = () => undefined;
const REDUCERS = new Map([
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
  ["session.member", ignore],
  ["session.invite", ignore],
  ["session.invite_end", ignore],
  ["assistant.block", ignore],
]);
