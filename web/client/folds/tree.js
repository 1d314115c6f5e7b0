/**
 * The invocations of a session that are open, and the messages that wait for one (docs/protocol.md, section 4).
 *
 * A fold over the log: which agents run, which wait, what is open inside them, which message is next. The same
 * as `turnlog.state.tree`, but for the events that close what died: those are the server's to write.
 */

import { isDirect, nothing } from "./event-text.js";
import { addCosts, addCounts, total } from "../shared/rounding.js";

const HANDOFF = "handoff_to_"; // how a call begins that passes an agent's work on

/** A call without a result; `asked` is an approval that nobody has given yet. */
class OpenCall {
  told = false; // its message is complete: until then nobody waits for it alone
  awaited = false;
  asked = null;
  refused = false;

  constructor(call) {
    this.call = call;
  }

  get executor() {
    return this.call.executor ?? "backend";
  }

  /** Whether somebody outside has to act: the page, a person, another process. */
  get waits() {
    const elsewhere = this.told && this.executor === "remote" && !this.refused;
    return this.awaited || this.asked !== null || elsewhere;
  }

  /** Whether it takes place when the others are answered: a hand-off. */
  get held() {
    return this.told && this.call.tool.startsWith(HANDOFF);
  }
}

/** An agent that has started and not ended; `stopped` says that somebody wants it to. */
class Invocation {
  calls = new Map();
  blocks = new Map(); // by id: what kind of block, and its pieces
  steps = 0;
  usage = null;
  cost = null;
  priced = true;
  stopped = false;

  constructor(start, scope) {
    this.start = start;
    this.scope = scope;
  }

  /** One completion more; a sum with an unknown price in it is unknown. */
  spend(usage, cost) {
    this.steps += 1;
    this.usage = total(this.usage, usage, addCounts);
    this.priced &&= cost != null;
    this.cost = this.priced ? total(this.cost, cost, addCosts) : null;
  }
}

export class Tree {
  last = -1;
  open = new Map(); // agent id -> invocation, in the order of their starts
  queue = new Map(); // trace id -> the event that waits for its turn; null: events of a page alone
  coming = new Map(); // agents that a hand-off named and that have not started, with their traces
  members = new Map();
  #declared;

  /** `declared` says which types are the application's own. */
  constructor(declared = nothing) {
    this.#declared = declared;
  }

  /** Take one event into account. */
  apply(event) {
    this.last = event.seq;
    const step = STEPS.get(event.type);
    if (step) step(this, event);
    else if (isDirect(event, this.#declared)) direct(this, event);
  }

  /** @internal An open call of an open agent. */
  call(agentId, callId) {
    return this.open.get(agentId)?.calls.get(callId);
  }

  /** The agent that this call of this agent started, if it is open. */
  child(agentId, callId) {
    return this.children()(agentId, callId);
  }

  /** @internal `child` for many calls: it looks at the open agents once. */
  children() {
    const nameOf = (agentId, callId) => `${agentId} ${callId}`; // neither has a space
    const found = new Map([...this.open].map(([key, { start }]) => [nameOf(start.parent_id, start.call_id), key]));
    return (agentId, callId) => found.get(nameOf(agentId, callId)) ?? null;
  }

  /** The agents that can do nothing but wait for the page, themselves or through their children. */
  waiters() {
    const childOf = this.children();
    const found = new Set();
    for (const [agentId, { calls }] of [...this.open].reverse()) {
      // a child starts after its parent
      const own = [...calls].filter(([, call]) => call.executor !== "provider");
      const waiting = own.map(([callId, call]) => call.waits || found.has(childOf(agentId, callId)));
      if (waiting.includes(true) && own.every(([, call], at) => waiting[at] || call.held)) found.add(agentId);
    }
    return found;
  }

  /** Whether this agent is one of them. Who asks for several takes `waiters`. */
  waits(agentId) {
    return this.waiters().has(agentId);
  }

  /** The agents that have asked the page something. */
  waiting() {
    const asked = (agentId) => [...this.open.get(agentId).calls.values()].some((call) => call.waits);
    const waiters = this.waiters();
    return [...this.open.keys()].filter((agentId) => waiters.has(agentId) && asked(agentId));
  }

  /** Whether an agent of a turn is open. */
  runs(trace) {
    return [...this.open.values()].some(({ scope }) => scope.trace_id === trace);
  }

  /** Whether a turn is over, or everyone in it waits. */
  rests(trace) {
    if (this.queue.has(trace) || [...this.coming.values()].includes(trace)) return false;
    const waiters = this.waiters();
    return [...this.open].every(([agentId, { scope }]) => scope.trace_id !== trace || waiters.has(agentId));
  }
}

function message(tree, event) {
  const trace = event.trace_id;
  if (trace && !tree.runs(trace)) tree.queue.set(trace, { what: event, channel: event.channel ?? null });
}

/** An event that a page sent with a trace asks for a turn, unless something else with it does. */
function direct(tree, event) {
  const trace = event.trace_id;
  if (!trace || tree.queue.has(trace) || tree.runs(trace)) return;
  tree.queue.set(trace, { what: null, channel: event.channel ?? null });
}

function start(tree, event) {
  const { agent_id, trace_id, depth, channel, payload } = event;
  if (!agent_id) return;
  tree.queue.delete(trace_id);
  tree.coming.delete(agent_id);
  const scope = { agent_id, trace_id: trace_id ?? null, depth: depth ?? 0, channel: channel ?? null };
  tree.open.set(agent_id, new Invocation(payload, scope));
}

function usage(tree, { agent_id, payload }) {
  const invocation = tree.open.get(agent_id);
  if (!invocation) return;
  invocation.spend(payload.usage, payload.cost);
  for (const call of invocation.calls.values()) call.told = true;
}

function blockDelta(tree, { agent_id, payload }) {
  const blocks = tree.open.get(agent_id)?.blocks;
  if (!blocks) return;
  if (!blocks.has(payload.block_id)) blocks.set(payload.block_id, []);
  blocks.get(payload.block_id).push(payload.text);
}

function retract(tree, { agent_id, payload }) {
  const calls = tree.open.get(agent_id)?.calls ?? new Map();
  for (const [key, { call }] of [...calls]) if (payload.block_ids.includes(call.block_id)) calls.delete(key);
}

function awaited(tree, { agent_id, payload }) {
  for (const { call_id } of payload.calls) {
    const call = tree.call(agent_id, call_id);
    if (call) call.awaited = true;
  }
}

function request(tree, { agent_id, payload }) {
  const call = tree.call(agent_id, payload.call_id);
  if (call) call.asked = payload;
}

function decision(tree, { agent_id, payload }) {
  const call = tree.call(agent_id, payload.call_id);
  if (!call) return;
  call.asked = null;
  call.refused = payload.decision !== "approve";
}

/** An input that a call asked for: the call goes on, if it has no answer yet. Any other opens a turn. */
function action(tree, event) {
  const {
    agent_id,
    payload: { call_id },
  } = event;
  const call = tree.call(agent_id, call_id);
  if (call) call.awaited = false;
  else if (call_id == null) message(tree, event);
}

/** A stop in a channel is for what is open there and in none; one that names a turn or an agent may come too late. */
function command(
  tree,
  {
    channel = null,
    payload: {
      command: { kind, turn, agent_id },
    },
  },
) {
  const reached = ({ scope }) => channel === null || scope.channel === null || scope.channel === channel;
  const within = [...tree.open.values()].filter(reached);
  const has = (key, name) => name == null || within.some(({ scope }) => scope[key] === name);
  if (kind !== "stop" || !has("trace_id", turn) || !has("agent_id", agent_id)) return;
  for (const invocation of within) invocation.stopped = true;
}

const STEPS = new Map([
  ["session.member", (tree, { payload }) => tree.members.set(payload.principal, payload.roles ?? [])],
  ["ui.message", message],
  ["ui.action", action],
  ["ui.command", command],
  ["agent.start", start],
  ["agent.end", (tree, { agent_id }) => tree.open.delete(agent_id)],
  ["agent.handoff", (tree, event) => tree.coming.set(event.payload.to_agent_id, event.trace_id)],
  ["agent.usage", usage],
  ["block.start", (tree, { agent_id, payload }) => tree.open.get(agent_id)?.blocks.set(payload.block_id, [])],
  ["block.delta", blockDelta],
  ["block.end", (tree, { agent_id, payload }) => tree.open.get(agent_id)?.blocks.delete(payload.block_id)],
  ["block.retract", retract],
  [
    "tool.call",
    (tree, { agent_id, payload }) => tree.open.get(agent_id)?.calls.set(payload.call_id, new OpenCall(payload)),
  ],
  ["tool.result", (tree, { agent_id, payload }) => tree.open.get(agent_id)?.calls.delete(payload.call_id)],
  ["tool.await", awaited],
  ["approval.request", request],
  ["approval.decision", decision],
]);
