/**
 * Folds events to the open invocations of a session and the queued turns (docs/protocol.md, section 4).
 *
 * The same as `turnlog.state.tree`, without the events that close invocations after a crash: only the server writes
 * those.
 */

import { addCosts, addCounts, addRecords } from "../shared/rounding.js";
import { isPageEvent, noTypes } from "./event-text.js";

const HANDOFF_PREFIX = "handoff_to_"; // tools that hand over

/** A call without a result; `approval` is an undecided approval. */
class OpenCall {
  isMessageComplete = false; // until then the call does not run
  isAwaited = false;
  approval = null;
  isDenied = false;

  constructor(call) {
    this.call = call;
  }

  get executor() {
    return this.call.executor ?? "backend";
  }

  /** Whether a page, a person or another process has to act. */
  get isWaiting() {
    const elsewhere = this.isMessageComplete && this.executor === "remote" && !this.isDenied;
    return this.isAwaited || this.approval !== null || elsewhere;
  }

  /** Whether the call is a hand-off, which runs after the other calls. */
  get isHandoff() {
    return this.isMessageComplete && this.call.tool.startsWith(HANDOFF_PREFIX);
  }
}

/** An open agent; `isStopped` after a stop command, `isPaused` while its runtime holds its calls and its children's. */
class Invocation {
  calls = new Map();
  blocks = new Map(); // block id -> pieces
  steps = 0;
  usage = null;
  cost = null;
  priced = true;
  isStopped = false;
  isPaused = false;

  constructor(start, scope) {
    this.start = start;
    this.scope = scope;
  }

  /** Add a completion. A sum with an unknown price is unknown. */
  addUsage(usage, cost) {
    this.steps += 1;
    this.usage = addRecords(this.usage, usage, addCounts);
    this.priced &&= cost != null;
    this.cost = this.priced ? addRecords(this.cost, cost, addCosts) : null;
  }
}

export class Tree {
  last = -1;
  open = new Map(); // agent id -> invocation, in the order of their starts
  queuedTurns = new Map(); // trace id -> { trigger, channel }; the trigger of an application's event is null
  handoffTargets = new Map(); // agent id -> trace id, of hand-off targets that have not started
  members = new Map();
  #isDeclared;

  /** `isDeclared(type)` tells whether a type is the application's own. */
  constructor(declared = noTypes) {
    this.#isDeclared = declared;
  }

  apply(event) {
    this.last = event.seq;
    const step = REDUCERS.get(event.type);
    if (step) step(this, event);
    else if (isPageEvent(event, this.#isDeclared)) queuePageEvent(this, event);
  }

  /** @internal An open call of an open agent. */
  call(agentId, callId) {
    return this.open.get(agentId)?.calls.get(callId);
  }

  /** Return the open agent that a call started, or null. */
  child(agentId, callId) {
    return this.childLookup()(agentId, callId);
  }

  /** @internal `child` for many calls: it looks at the open agents once. */
  childLookup() {
    const childKey = (agentId, callId) => `${agentId} ${callId}`; // neither has a space
    const found = new Map([...this.open].map(([key, { start }]) => [childKey(start.parent_id, start.call_id), key]));
    return (agentId, callId) => found.get(childKey(agentId, callId)) ?? null;
  }

  /** @internal The agents whose runtime is paused because a call of one of them waits. */
  pausedAgents() {
    const roots = new Map(); // agent id -> the paused agent that started it, or itself
    const waiting = new Set();
    for (const [agentId, { start, calls, isPaused }] of this.open) {
      const root = roots.get(start.parent_id) ?? (isPaused ? agentId : null);
      if (root === null) continue;
      roots.set(agentId, root);
      if ([...calls.values()].some((call) => call.isWaiting)) waiting.add(root);
    }
    return new Set([...roots.keys()].filter((agentId) => waiting.has(roots.get(agentId))));
  }

  /** Return the agents whose open calls all wait, for a person or for waiting agents, and those that are paused. */
  waitingAgents() {
    const findChild = this.childLookup();
    const found = this.pausedAgents();
    for (const [agentId, { calls }] of [...this.open].reverse()) {
      // a child starts after its parent
      const own = [...calls].filter(([, call]) => call.executor !== "provider");
      const waiting = own.map(([callId, call]) => call.isWaiting || found.has(findChild(agentId, callId)));
      if (waiting.includes(true) && own.every(([, call], at) => waiting[at] || call.isHandoff)) found.add(agentId);
    }
    return found;
  }

  /** Whether an agent is one of `waitingAgents`; for several agents call that. */
  isWaiting(agentId) {
    return this.waitingAgents().has(agentId);
  }

  /** Return the waiting agents that wait for a person or another process themselves. */
  agentsAsking() {
    const isAsking = (agentId) => [...this.open.get(agentId).calls.values()].some((call) => call.isWaiting);
    const waiters = this.waitingAgents();
    return [...this.open.keys()].filter((agentId) => waiters.has(agentId) && isAsking(agentId));
  }

  /** Whether an agent of a turn is open. */
  isRunning(trace) {
    return [...this.open.values()].some(({ scope }) => scope.trace_id === trace);
  }

  /** Whether a turn is over, or all its agents wait. */
  isSettled(trace) {
    if (this.queuedTurns.has(trace) || [...this.handoffTargets.values()].includes(trace)) return false;
    const waiters = this.waitingAgents();
    return [...this.open].every(([agentId, { scope }]) => scope.trace_id !== trace || waiters.has(agentId));
  }
}

function queueMessage(tree, event) {
  const trace = event.trace_id;
  if (trace && !tree.isRunning(trace)) tree.queuedTurns.set(trace, { trigger: event, channel: event.channel ?? null });
}

/** Queue the turn of a page's event, unless its turn is queued or runs. */
function queuePageEvent(tree, event) {
  const trace = event.trace_id;
  if (!trace || tree.queuedTurns.has(trace) || tree.isRunning(trace)) return;
  tree.queuedTurns.set(trace, { trigger: null, channel: event.channel ?? null });
}

function startAgent(tree, event) {
  const { agent_id, trace_id, depth, channel, payload } = event;
  if (!agent_id) return;
  tree.queuedTurns.delete(trace_id);
  tree.handoffTargets.delete(agent_id);
  const scope = { agent_id, trace_id: trace_id ?? null, depth: depth ?? 0, channel: channel ?? null };
  tree.open.set(agent_id, new Invocation(payload, scope));
}

function addUsage(tree, { agent_id, payload }) {
  const invocation = tree.open.get(agent_id);
  if (!invocation) return;
  invocation.addUsage(payload.usage, payload.cost);
  for (const call of invocation.calls.values()) call.isMessageComplete = true;
}

function setPaused(tree, { agent_id, payload }) {
  const invocation = tree.open.get(agent_id);
  if (invocation) invocation.isPaused = payload.paused ?? false;
}

function blockDelta(tree, { agent_id, payload }) {
  const blocks = tree.open.get(agent_id)?.blocks;
  if (!blocks) return;
  if (!blocks.has(payload.block_id)) blocks.set(payload.block_id, []);
  blocks.get(payload.block_id).push(payload.text);
}

function retractCalls(tree, { agent_id, payload }) {
  const calls = tree.open.get(agent_id)?.calls ?? new Map();
  for (const [key, { call }] of [...calls]) if (payload.block_ids.includes(call.block_id)) calls.delete(key);
}

function awaitCalls(tree, { agent_id, payload }) {
  for (const { call_id } of payload.calls) {
    const call = tree.call(agent_id, call_id);
    if (call) call.isAwaited = true;
  }
}

function requestApproval(tree, { agent_id, payload }) {
  const call = tree.call(agent_id, payload.call_id);
  if (call) call.approval = payload;
}

function decideApproval(tree, { agent_id, payload }) {
  const call = tree.call(agent_id, payload.call_id);
  if (!call) return;
  call.approval = null;
  call.isDenied = payload.decision !== "approve";
}

/** The input of a call resumes the call. Any other action opens a turn. */
function acceptAction(tree, event) {
  const {
    agent_id,
    payload: { call_id },
  } = event;
  const call = tree.call(agent_id, call_id);
  if (call) call.isAwaited = false;
  else if (call_id == null) queueMessage(tree, event);
}

/**
 * Mark the agents that a stop applies to: those of its channel and of no channel. A stop of a turn or an agent that is
 * not open is ignored.
 */
function stopAgents(
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
  for (const invocation of within) invocation.isStopped = true;
}

const REDUCERS = new Map([
  ["session.member", (tree, { payload }) => tree.members.set(payload.principal, payload.roles ?? [])],
  ["ui.message", queueMessage],
  ["ui.action", acceptAction],
  ["ui.command", stopAgents],
  ["agent.start", startAgent],
  ["agent.end", (tree, { agent_id }) => tree.open.delete(agent_id)],
  ["agent.handoff", (tree, event) => tree.handoffTargets.set(event.payload.to_agent_id, event.trace_id)],
  ["agent.usage", addUsage],
  ["agent.checkpoint", setPaused],
  ["block.start", (tree, { agent_id, payload }) => tree.open.get(agent_id)?.blocks.set(payload.block_id, [])],
  ["block.delta", blockDelta],
  ["block.end", (tree, { agent_id, payload }) => tree.open.get(agent_id)?.blocks.delete(payload.block_id)],
  ["block.retract", retractCalls],
  [
    "tool.call",
    (tree, { agent_id, payload }) => tree.open.get(agent_id)?.calls.set(payload.call_id, new OpenCall(payload)),
  ],
  ["tool.result", (tree, { agent_id, payload }) => tree.open.get(agent_id)?.calls.delete(payload.call_id)],
  ["tool.await", awaitCalls],
  ["approval.request", requestApproval],
  ["approval.decision", decideApproval],
]);
