/**
 * The chat of a session: a fold over its events, live or replayed, to entries (`entries.js`) in the order of
 * the log. A message that is queued behind a turn waits in `queue`, and enters the thread when its own turn starts.
 *
 * What agents do that somebody called stands inside the call, at any depth; who takes over goes on in the same
 * place. A retracted block is taken away, a replaced view says so. What is shown when everything has ended does
 * not depend on live events: a reload shows the same.
 */

import { CallEntry, Entry, OpenAgent, TextEntry, Thread } from "./entries.js";

const PROGRESS_CHARS = 4000; // of a running tool's output: the end of it is what matters

export class Conversation {
  thread = new Thread();
  calls = new Map(); // agent id, call id -> Call
  waiting = new Set(); // calls that a person has to answer, in order
  queue = []; // messages that are in no thread yet: their turn has not started
  title = null; // the last one that the session was given
  #threads = new Map(); // agent id -> the thread that it writes to
  #openAgents = new Map(); // open agent -> Worker
  #blocks = new Map(); // block id -> Text, or Call
  #views = new Map(); // channel, view id -> the entry that shows it
  #entries = new Map(); // event id -> the entry that tells of a message, a view or what was done on it
  #unstartedMessages = new Map(); // turn -> messages that no agent has taken
  #lastStop = null; // the entry of the last stop, until the next turn starts
  #isServerDown = false; // the server has gone, and has not come back
  #incompleteCalls = new Map(); // agent id -> calls of a message that is not complete

  /** Take one event into account. */
  apply(event) {
    const step = REDUCERS.get(event.type);
    if (step) step.call(this, event, event.payload);
    else this.#addEntry(event, ENTRY_KINDS.get(event.type) ?? "event");
  }

  /** The entry that tells of an event, or the one that stands before it. */
  find(event) {
    const { seq, agent_id, payload } = event;
    const thread = this.#threadOf(event);
    const own =
      this.calls.get(pairKey(agent_id, payload.call_id)) ??
      this.#blocks.get(payload.block_id) ??
      this.#entries.get(event.id);
    if (own && !this.queue.includes(own)) return own;
    return thread.entries.findLast((entry) => entry.place <= seq) ?? thread.owner;
  }

  /** The agents that write to a thread and are between two things: they have started nothing that is shown. */
  thinkingAgents(thread) {
    return [...this.#openAgents.values()].filter((agent) => agent.thread === thread && agent.unfinished.size === 0);
  }

  /** Where an event of an agent belongs. */
  #threadOf({ agent_id }) {
    return this.#threads.get(agent_id) ?? this.thread;
  }

  /** An entry that says what its event says, at the end of its thread. */
  #addEntry(event, kind, thread = this.#threadOf(event)) {
    return thread.add(this.#buildEntry(event, kind, thread));
  }

  #buildEntry(event, kind, thread) {
    const entry = new Entry(kind, event, thread);
    return Object.assign(entry, { type: event.type, actor: event.actor ?? null, payload: event.payload });
  }

  /** A message that joins a running turn is answered there. One that comes while others work waits in the queue. */
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

  /** The messages of a turn stand where it starts, wherever they were. */
  #placeTurnMessages({ trace_id, seq }) {
    const taken = this.#unstartedMessages.get(trace_id) ?? [];
    this.#unstartedMessages.delete(trace_id);
    for (const entry of taken) {
      this.queue = this.queue.filter((each) => each !== entry);
      this.thread.remove(entry);
      entry.place = seq;
      this.thread.add(entry);
      entry.touch();
    }
  }

  /** The thread of an agent that no call in the log has started. */
  #threadWithoutCall(event, parent_id, via) {
    const parent = this.#threads.get(parent_id);
    if (via !== "call" || parent === undefined) return parent ?? this.thread;
    const entry = this.#addEntry(event, "agent", parent);
    entry.thread = new Thread(entry);
    return entry.thread;
  }

  /** What ends an agent is told once: by its error, by the card that it works in, or else by a note. */
  end(event, { stop_reason, reason }) {
    const agent = this.#openAgents.get(event.agent_id) ?? new OpenAgent(event, null, this.#threadOf(event));
    this.#openAgents.delete(event.agent_id);
    agent.thread.owner?.touch();
    const [isStop, isRestart] = [stop_reason === "cancelled", reason === "interrupted"];
    if (QUIET_ENDS.has(stop_reason) || agent.fault || (isRestart && agent.hasAbortedText)) return;
    if (isStop && agent.thread.owner instanceof CallEntry) return;
    const by = isStop ? (this.#lastStop?.actor ?? null) : null;
    Object.assign(this.#addEntry(event, "end"), { by, isRestart });
    if (isStop && this.#lastStop) this.thread.remove(this.#lastStop);
  }

  /** A stop stands alone only if it ended nothing. */
  command(event, { command }) {
    const entry = this.#addEntry(event, "command");
    if (command.kind === "stop") this.#lastStop = entry;
  }

  error(event) {
    const entry = this.#addEntry(event, "error");
    const agent = this.#openAgents.get(event.agent_id);
    if (agent) agent.fault = entry;
  }

  /** The calls of this message are complete, and begin. */
  usage({ agent_id }) {
    for (const call of this.#incompleteCalls.get(agent_id) ?? []) {
      call.isMessageComplete = true;
      call.touch();
    }
    this.#incompleteCalls.delete(agent_id);
  }

  blockStart(event, { block_id, kind, call_id, tool }) {
    const thread = this.#threadOf(event);
    if (kind === "tool_call")
      this.#blocks.set(block_id, this.#getOrAddCall(event, call_id ?? block_id, tool, block_id));
    else if (kind !== "other") this.#blocks.set(block_id, thread.add(new TextEntry(kind, event, thread)));
    if (this.#blocks.has(block_id)) this.#openAgents.get(event.agent_id)?.begin(this.#blocks.get(block_id));
  }

  #getOrAddCall(event, call_id, tool, block_id = null) {
    const key = pairKey(event.agent_id, call_id);
    const known = this.calls.get(key);
    if (known) return known;
    const thread = this.#threadOf(event);
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

  /** An agent is done with something. */
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

  /** A call that never was: another one may have its id. */
  #discardCall(event, call) {
    this.#closeCall(event, call, { aborted: true });
    this.calls.delete(pairKey(call.agent_id, call.call_id));
  }

  /** The twin of a text or a thinking. */
  text(event, { block_id, text, citations, speaker }) {
    const kind = event.type === "assistant.thinking" ? "thinking" : "text";
    const thread = this.#threadOf(event);
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

  /** The id of a call whose block began without one. */
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

  /** A call is over. */
  #closeCall(event, call, outcome) {
    Object.assign(call, { awaited: null, approval: null, progress: "" }, outcome);
    this.#finish(event, call);
    this.#updateWaiting(call);
  }

  /** Keep count of what waits for a person, inside everything around it too. */
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

  /** What a person did: the call or the view that it was done on tells it. */
  action(event, { call_id, view_id, shown, action }) {
    const done = { actor: event.actor ?? null, ts: event.ts, action };
    const call = this.calls.get(pairKey(event.agent_id, call_id));
    const view =
      this.#entries.get(shown) ??
      this.#views.get(pairKey(event.channel, view_id)) ??
      this.#views.get(pairKey(null, view_id));
    if (call) {
      Object.assign(call, { awaited: null, input: action.values ?? null, answer: done });
      this.#updateWaiting(call);
    } else if (view) {
      this.#entries.set(event.id, view);
      view.actions.push(done);
      view.touch();
    } else this.#addEntry(event, "action");
  }

  /** The server is there: worth a word only where it was away. */
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
    const gone = Object.keys(view.tree).length === 0;
    if (before) Object.assign(before, { over: gone ? "closed" : "replaced" }).touch();
    this.#views.delete(key);
    if (gone) return;
    const entry = Object.assign(this.#addEntry(event, "view"), { view, over: null, actions: [] });
    this.#views.set(key, entry);
    this.#entries.set(event.id, entry);
  }
}

/** Events that have a look of their own. */
const ENTRY_KINDS = new Map([
  ["agent.handoff", "handoff"],
  ["assistant.files", "files"],
]);

/** Ends that need no word. */
const QUIET_ENDS = new Set(["end_turn", "stop_sequence", "handoff"]);

/** Why a text broke off, by who ended it from outside; without that its own model failed. */
const ABORT_REASONS = new Map([
  ["stopped", "stop"],
  ["interrupted", "restart"],
  ["timeout", "timeout"],
]);

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
