/**
 * Folds durable events to timed spans: turns, and in them agents, completions and tool calls, nested as they happened.
 *
 * A call that starts an agent is that agent's span. A completion starts where its agent had nothing else to wait for,
 * or `duration_ms` before its end if the model reports it. Inside a turn time never goes back, whatever the clocks
 * did. An open span ends at the caller's `now`, but not before the last event.
 */

import { promptSubject } from "./invocations.js";

/** A timed span; `seq` and `last` are its first and its last event. */
class Span {
  end = null; // null: open
  state = "open"; // open, ok, error or cancelled
  waits = []; // [start, end or null] of each wait for an answer
  children = [];
  subject = ""; // of an agent: its prompt

  constructor(kind, name, seq, start) {
    Object.assign(this, { kind, name, seq, start, last: seq });
  }

  add(span) {
    this.children.push(span);
    return span;
  }

  close(event, at, state) {
    this.resume(at);
    Object.assign(this, { end: Math.max(this.start, at), state, last: event.seq });
  }

  wait(at) {
    if (!this.isWaiting) this.waits.push([at, null]);
  }

  resume(at) {
    if (this.isWaiting) this.waits.at(-1)[1] = at;
  }

  get isWaiting() {
    return this.waits.length > 0 && this.waits.at(-1)[1] === null;
  }

  /** Whether the span, or every open span inside it, waits for an answer. */
  get isResting() {
    if (this.isWaiting) return true;
    const open = this.children.filter(({ end }) => end === null);
    return this.end === null && open.length > 0 && open.every(({ isResting }) => isResting);
  }
}

/** An open agent: since when it waits for its model, and the running completion. */
class RunningAgent {
  completion = null;

  constructor(span, since) {
    Object.assign(this, { span, since });
  }

  /** Return the running completion, or start one. */
  startCompletion(event) {
    this.completion ??= this.span.add(new Span("completion", "model", event.seq, this.since));
    return this.completion;
  }

  endCompletion(event, at, state) {
    this.completion?.close(event, at, state);
    this.completion = null;
    this.since = at;
  }
}

export class Spans {
  turns = new Map(); // trace id -> Span, in order
  #now = 0; // when the last event was
  #clocks = new Map(); // trace id -> its latest time
  #open = new Map(); // trace id -> number of open agents
  #agents = new Map(); // agent id -> Running
  #spans = new Map(); // agent id -> Span, also after its end: its children may come later
  #calls = new Map(); // agent id, call id -> Span

  apply(event) {
    const time = Date.parse(event.ts);
    if (!Number.isNaN(time)) this.#now = time;
    if (event.trace_id === undefined) return;
    const at = this.#clock(event.trace_id);
    const turn = this.#turn(event, at);
    REDUCERS[event.type]?.call(this, event, at, turn);
  }

  #clock(trace) {
    const at = Math.max(this.#clocks.get(trace) ?? 0, this.#now);
    this.#clocks.set(trace, at);
    return at;
  }

  #turn(event, at) {
    const known = this.turns.get(event.trace_id);
    if (known) return known;
    const turn = new Span("turn", event.payload.text ?? event.type, event.seq, at);
    this.turns.set(event.trace_id, turn);
    return turn;
  }

  start(event, at, turn) {
    const { name, parent_id, call_id } = event.payload;
    const call = this.#calls.get(callKey(parent_id, call_id));
    const own = call?.kind === "call" ? Object.assign(call, { kind: "agent", name }) : null;
    const span = own ?? (this.#spans.get(parent_id) ?? turn).add(new Span("agent", name, event.seq, at));
    span.subject = promptSubject(event.payload);
    this.#agents.set(event.agent_id, new RunningAgent(span, at));
    this.#spans.set(event.agent_id, span);
    this.#open.set(event.trace_id, (this.#open.get(event.trace_id) ?? 0) + 1);
    Object.assign(turn, { end: null, state: "open" });
  }

  stop(event, at, turn) {
    const agent = this.#agents.get(event.agent_id);
    if (!agent) return;
    const state = END_STATES[event.payload.stop_reason] ?? "ok";
    agent.endCompletion(event, at, state);
    agent.span.close(event, at, state);
    this.#agents.delete(event.agent_id);
    const left = this.#open.get(event.trace_id) - 1;
    this.#open.set(event.trace_id, left);
    if (left === 0) turn.close(event, at, state);
  }

  speak(event) {
    this.#agents.get(event.agent_id)?.startCompletion(event);
  }

  usage(event, at) {
    const agent = this.#agents.get(event.agent_id);
    if (!agent) return;
    const { model, duration_ms } = event.payload;
    const completion = agent.startCompletion(event);
    completion.name = model;
    if (duration_ms !== undefined) completion.start = Math.max(agent.span.start, at - duration_ms);
    agent.endCompletion(event, at, "ok");
  }

  /** The output was retracted: the model is asked again. */
  retract(event, at) {
    const agent = this.#agents.get(event.agent_id);
    if (agent?.completion) agent.endCompletion(event, at, "error");
  }

  call(event, at) {
    const agent = this.#agents.get(event.agent_id);
    if (!agent) return;
    agent.startCompletion(event);
    const { call_id, tool, executor } = event.payload;
    const span = agent.span.add(new Span("call", tool, event.seq, at));
    span.within = executor === "provider";
    this.#calls.set(callKey(event.agent_id, call_id), span);
  }

  result(event, at) {
    const { call_id, ok, error } = event.payload;
    const span = this.#calls.get(callKey(event.agent_id, call_id));
    const agent = this.#agents.get(event.agent_id);
    if (!span || !agent) return;
    if (span.end === null) span.close(event, at, ok ? "ok" : (ERROR_STATES[error?.code] ?? "error"));
    if (span.within) return;
    // tools run when the message is complete, with or without agent.usage
    agent.completion?.close(event, span.start, "ok");
    Object.assign(agent, { completion: null, since: at });
  }

  ask(event, at) {
    for (const { call_id } of event.payload.calls ?? [event.payload]) {
      const span = this.#calls.get(callKey(event.agent_id, call_id));
      if (span?.end === null) span.wait(at);
    }
  }

  answer(event, at) {
    this.#calls.get(callKey(event.agent_id, event.payload.call_id))?.resume(at);
  }

  /** The turns with at least one agent, in order: `[trace, span]`. */
  get startedTurns() {
    return [...this.turns].filter(([, turn]) => turn.children.length > 0);
  }

  /** Return the end of a span, or of an open one the time so far, in milliseconds since 1970. */
  spanEnd(span, trace, now = 0) {
    return span.end ?? Math.max(this.#clocks.get(trace), this.#now, now);
  }

  /** Return the spans of a turn, parents first: `{ span, depth, trace }`. */
  rows(trace) {
    const found = [];
    const walk = (span, depth) => {
      found.push({ span, depth, trace });
      for (const child of span.children) walk(child, depth + 1);
    };
    walk(this.turns.get(trace), 0);
    return found;
  }
}

const callKey = (agent, call) => `${agent ?? ""} ${call ?? ""}`;

const END_STATES = { cancelled: "cancelled", error: "error", timeout: "error" };
const ERROR_STATES = { __proto__: null, CANCELLED: "cancelled" };

const { prototype: of } = Spans;
const REDUCERS = {
  __proto__: null, // a type may be named like a member of Object.prototype
  "agent.start": of.start,
  "agent.end": of.stop,
  "agent.usage": of.usage,
  "block.start": of.speak,
  "block.retract": of.retract,
  "assistant.message": of.speak,
  "assistant.thinking": of.speak,
  "assistant.block": of.speak,
  "tool.call": of.call,
  "tool.result": of.result,
  "tool.await": of.ask,
  "approval.request": of.ask,
  "approval.decision": of.answer,
  "ui.action": of.answer,
};

const SECOND = 1000;
const MINUTE = 60 * SECOND;
const HOUR = 60 * MINUTE;
const DAY = 24 * HOUR;
/** Round steps for an axis, in milliseconds. */
const TICK_STEPS = [
  1,
  2,
  5,
  10,
  20,
  50,
  100,
  200,
  500,
  ...[1, 2, 5, 10, 20, 30].map((many) => many * SECOND),
  ...[1, 2, 5, 10, 20, 30].map((many) => many * MINUTE),
  ...[1, 2, 6, 12].map((many) => many * HOUR),
];

/** Return at most six round times from 0 to `total` milliseconds. */
export function axisTicks(total) {
  const least = total / 5;
  const step = TICK_STEPS.find((one) => one >= least) ?? Math.ceil(least / DAY) * DAY;
  return Array.from({ length: Math.floor(total / step) + 1 }, (_, index) => index * step);
}
