/**
 * Folds events to the open invocations of a session and the queued turns (docs/protocol.md, section 4).
 *
 * The same as `turnlog.state.tree`, without the events that close invocations after a crash: only the server writes
 * those. `reduceTree` changes objects through an `Ownership`, so one fold serves `Tree`, which changes in place, and
 * the snapshots of `SessionStore`, which never change.
 */

import type { AgentStart, ApprovalRequest, Cost, Envelope, Payloads, ToolCall, UiMessage, Usage } from "../events.js";
import { IN_PLACE, type Owned, type Ownership, ownEntry, ownField } from "../shared/ownership.js";
import { addCosts, addCounts, addRecords } from "../shared/rounding.js";
import { type AnyEvent, type IsDeclared, isPageEvent, noTypes } from "./event-text.js";

const HANDOFF_PREFIX = "handoff_to_"; // tools that hand over

/** A call without a result. */
export interface OpenCall {
  readonly call: ToolCall;
  /** Until its message is complete a call does not run. */
  readonly isMessageComplete: boolean;
  readonly isAwaited: boolean;
  /** The undecided approval, if there is one. */
  readonly approval: ApprovalRequest | null;
  readonly isDenied: boolean;
}

/** An agent that has started and not ended. */
export interface Invocation {
  readonly start: AgentStart;
  readonly scope: {
    readonly agent_id: string;
    readonly trace_id: string | null;
    readonly depth: number;
    readonly channel: string | null;
  };
  readonly calls: ReadonlyMap<string, OpenCall>;
  /** The text of each open block. */
  readonly blocks: ReadonlyMap<string, string>;
  readonly steps: number;
  readonly usage: Usage | null;
  readonly cost: Cost | null;
  /** Whether the price of every completion is known. */
  readonly priced: boolean;
  /** After a stop command. */
  readonly isStopped: boolean;
  /** While its runtime holds its calls and those of its children. */
  readonly isPaused: boolean;
}

/** A turn that no agent has started; the trigger of an application's event is null. */
export interface QueuedTurn {
  readonly trigger: AnyEvent | null;
  readonly channel: string | null;
}

export interface TreeState {
  readonly last: number;
  /** By agent id, in the order of their starts. */
  readonly open: ReadonlyMap<string, Invocation>;
  /** By turn. */
  readonly queuedTurns: ReadonlyMap<string, QueuedTurn>;
  /** The turn of each target of a hand-off that has not started. */
  readonly handoffTargets: ReadonlyMap<string, string | undefined>;
  /** The roles of each principal. */
  readonly members: ReadonlyMap<string, readonly string[]>;
}

export const emptyTree = (): TreeState => ({
  last: -1,
  open: new Map(),
  queuedTurns: new Map(),
  handoffTargets: new Map(),
  members: new Map(),
});

const executorOf = ({ call }: OpenCall): string => call.executor ?? "backend";

/** Whether a page, a person or another process has to act on a call. */
export function isCallWaiting(call: OpenCall): boolean {
  const elsewhere = call.isMessageComplete && executorOf(call) === "remote" && !call.isDenied;
  return call.isAwaited || call.approval !== null || elsewhere;
}

/** Whether a call is a hand-off, which runs after the other calls. */
const isHandoff = (call: OpenCall): boolean => call.isMessageComplete && call.call.tool.startsWith(HANDOFF_PREFIX);

const childKey = (agentId: string | undefined, callId: string | undefined) => `${agentId} ${callId}`; // neither has a space

/** Finds the open agent that a call started. */
export type FindChild = (agentId: string, callId: string) => string | null;

/** Return the function that finds the open agent that a call started; it looks at the open agents once. */
export function childLookup({ open }: TreeState): FindChild {
  const children = new Map<string, string>();
  for (const [agentId, { start }] of open) {
    if (start.call_id !== undefined) children.set(childKey(start.parent_id, start.call_id), agentId);
  }
  if (children.size === 0) return () => null;
  return (agentId, callId) => children.get(childKey(agentId, callId)) ?? null;
}

function hasWaitingCall(calls: ReadonlyMap<string, OpenCall>): boolean {
  for (const call of calls.values()) if (isCallWaiting(call)) return true;
  return false;
}

function hasPausedAgent(open: TreeState["open"]): boolean {
  for (const { isPaused } of open.values()) if (isPaused) return true;
  return false;
}

/** Return the agents whose runtime is paused because a call of one of them waits. */
function pausedAgents({ open }: TreeState): Set<string> {
  const paused = new Set<string>();
  if (!hasPausedAgent(open)) return paused;
  const roots = new Map<string, string>(); // agent id -> the paused agent that started it, or itself
  const waiting = new Set<string>();
  for (const [agentId, { start, calls, isPaused }] of open) {
    const root = roots.get(start.parent_id ?? "") ?? (isPaused ? agentId : null);
    if (root === null) continue;
    roots.set(agentId, root);
    if (hasWaitingCall(calls)) waiting.add(root);
  }
  for (const [agentId, root] of roots) if (waiting.has(root)) paused.add(agentId);
  return paused;
}

/** Return the agents whose open calls all wait, for a person or for waiting agents, and those that are paused. */
export function waitingAgents(tree: TreeState, findChild: FindChild = childLookup(tree)): Set<string> {
  const waiters = pausedAgents(tree);
  // a child starts after its parent
  for (const [agentId, { calls }] of [...tree.open].reverse()) {
    if (calls.size > 0 && isHeldUp(agentId, calls, waiters, findChild)) waiters.add(agentId);
  }
  return waiters;
}

/** Whether a call of an agent waits and no other one runs; hand-offs run after the others. */
function isHeldUp(
  agentId: string,
  calls: ReadonlyMap<string, OpenCall>,
  waiters: ReadonlySet<string>,
  findChild: FindChild,
): boolean {
  let waits = false;
  for (const [callId, call] of calls) {
    if (executorOf(call) === "provider") continue;
    if (isCallWaiting(call) || waiters.has(findChild(agentId, callId) ?? "")) waits = true;
    else if (!isHandoff(call)) return false;
  }
  return waits;
}

/** Whether an agent of a turn is open. */
export function isTurnRunning({ open }: TreeState, turn: string): boolean {
  for (const { scope } of open.values()) if (scope.trace_id === turn) return true;
  return false;
}

/** Folds events to the open agents and the queued turns. */
export class Tree implements TreeState {
  readonly last: number = -1;
  readonly open: ReadonlyMap<string, Invocation> = new Map();
  readonly queuedTurns: ReadonlyMap<string, QueuedTurn> = new Map();
  readonly handoffTargets: ReadonlyMap<string, string | undefined> = new Map();
  readonly members: ReadonlyMap<string, readonly string[]> = new Map();
  #isDeclared: IsDeclared;

  /** `declared(type)` tells whether a type is the application's own. */
  constructor(declared: IsDeclared = noTypes) {
    this.#isDeclared = declared;
  }

  apply(event: AnyEvent): void {
    reduceTree(IN_PLACE.own<TreeState>(this), event, IN_PLACE, this.#isDeclared);
  }

  /** Return the open agent that a call started, or null. */
  child(agentId: string, callId: string): string | null {
    return childLookup(this)(agentId, callId);
  }

  /** Return the agents whose open calls all wait, for a person or for waiting agents, and those that are paused. */
  waitingAgents(): Set<string> {
    return waitingAgents(this);
  }

  /** Whether an agent is one of `waitingAgents`; for several agents call that. */
  isWaiting(agentId: string): boolean {
    return waitingAgents(this).has(agentId);
  }

  /** Return the waiting agents that wait for a person or another process themselves. */
  agentsAsking(): string[] {
    const waiters = waitingAgents(this);
    const isAsking = ([agentId, { calls }]: [string, Invocation]) => waiters.has(agentId) && hasWaitingCall(calls);
    return [...this.open].filter(isAsking).map(([agentId]) => agentId);
  }

  /** Whether an agent of a turn is open. */
  isRunning(turn: string): boolean {
    return isTurnRunning(this, turn);
  }

  /** Whether a turn is over, or all its agents wait. */
  isSettled(turn: string): boolean {
    if (this.queuedTurns.has(turn) || [...this.handoffTargets.values()].includes(turn)) return false;
    const waiters = waitingAgents(this);
    return [...this.open].every(([agentId, { scope }]) => scope.trace_id !== turn || waiters.has(agentId));
  }
}

/** Apply an event to a tree that `owner` owns. */
export function reduceTree(
  tree: Owned<TreeState>,
  event: AnyEvent,
  owner: Ownership,
  isDeclared: IsDeclared = noTypes,
): void {
  tree.last = event.seq;
  const step = REDUCERS.get(event.type);
  if (step) step(tree, event, owner);
  else if (isPageEvent(event, isDeclared)) queuePageEvent(tree, event, owner);
}

type Reducer<Payload> = (tree: Owned<TreeState>, event: Envelope<string, Payload>, owner: Ownership) => void;

// Literals of all fields: several times as fast as a spread.
const copyInvocation = (invocation: Invocation): Invocation => ({
  start: invocation.start,
  scope: invocation.scope,
  calls: invocation.calls,
  blocks: invocation.blocks,
  steps: invocation.steps,
  usage: invocation.usage,
  cost: invocation.cost,
  priced: invocation.priced,
  isStopped: invocation.isStopped,
  isPaused: invocation.isPaused,
});
const copyCall = (call: OpenCall): OpenCall => ({ ...call });

/** Own the invocation of an event, and return it; undefined if its agent is not open. */
function ownInvocation(tree: Owned<TreeState>, agentId: string | undefined, owner: Ownership) {
  if (agentId === undefined || !tree.open.has(agentId)) return undefined;
  return ownEntry(owner, ownField(owner, tree, "open"), agentId, copyInvocation);
}

/** Own an open call, and return it; undefined if it is not open. */
function ownCall(tree: Owned<TreeState>, agentId: string | undefined, callId: string | undefined, owner: Ownership) {
  if (callId === undefined || !tree.open.get(agentId ?? "")?.calls.has(callId)) return undefined;
  const invocation = ownInvocation(tree, agentId, owner);
  return invocation && ownEntry(owner, ownField(owner, invocation, "calls"), callId, copyCall);
}

const queueMessage: Reducer<UiMessage | Payloads["ui.action"]> = (tree, event, owner) => {
  const turn = event.trace_id;
  if (!turn || isTurnRunning(tree, turn)) return;
  ownField(owner, tree, "queuedTurns").set(turn, { trigger: event, channel: event.channel ?? null });
};

/** Queue the turn of a page's event, unless its turn is queued or runs. */
const queuePageEvent: Reducer<unknown> = (tree, event, owner) => {
  const turn = event.trace_id;
  if (!turn || tree.queuedTurns.has(turn) || isTurnRunning(tree, turn)) return;
  ownField(owner, tree, "queuedTurns").set(turn, { trigger: null, channel: event.channel ?? null });
};

const startAgent: Reducer<AgentStart> = (tree, event, owner) => {
  const { agent_id, trace_id, depth, channel, payload } = event;
  if (!agent_id) return;
  if (tree.queuedTurns.has(trace_id ?? "")) ownField(owner, tree, "queuedTurns").delete(trace_id ?? "");
  if (tree.handoffTargets.has(agent_id)) ownField(owner, tree, "handoffTargets").delete(agent_id);
  const invocation: Invocation = {
    start: payload,
    scope: { agent_id, trace_id: trace_id ?? null, depth: depth ?? 0, channel: channel ?? null },
    calls: owner.adopt(new Map()),
    blocks: owner.adopt(new Map()),
    steps: 0,
    usage: null,
    cost: null,
    priced: true,
    isStopped: false,
    isPaused: false,
  };
  ownField(owner, tree, "open").set(agent_id, owner.adopt(invocation));
};

const endAgent: Reducer<unknown> = (tree, { agent_id }, owner) => {
  if (tree.open.has(agent_id ?? "")) ownField(owner, tree, "open").delete(agent_id ?? "");
};

/** Add a completion, which ends a message. A sum with an unknown price is unknown. */
const addUsage: Reducer<Payloads["agent.usage"]> = (tree, { agent_id, payload }, owner) => {
  const invocation = ownInvocation(tree, agent_id, owner);
  if (!invocation) return;
  const { usage, cost } = payload;
  invocation.steps += 1;
  invocation.usage = addRecords(invocation.usage, usage, addCounts);
  invocation.priced &&= cost != null;
  invocation.cost = invocation.priced ? addRecords(invocation.cost, cost as Cost, addCosts) : null;
  if (invocation.calls.size === 0) return;
  const calls = ownField(owner, invocation, "calls");
  for (const callId of [...calls.keys()]) {
    const call = ownEntry(owner, calls, callId, copyCall);
    if (call) call.isMessageComplete = true;
  }
};

const setPaused: Reducer<Payloads["agent.checkpoint"]> = (tree, { agent_id, payload }, owner) => {
  const invocation = ownInvocation(tree, agent_id, owner);
  if (invocation) invocation.isPaused = payload.paused ?? false;
};

/** Begin, extend or end a block of an agent, if that is open. */
export function reduceBlock(
  tree: Owned<TreeState>,
  type: string,
  agentId: string | undefined,
  blockId: string,
  text: string,
  owner: Ownership,
): void {
  if (type === "block.end" && !tree.open.get(agentId ?? "")?.blocks.has(blockId)) return;
  const invocation = ownInvocation(tree, agentId, owner);
  if (!invocation) return;
  const blocks = ownField(owner, invocation, "blocks");
  if (type === "block.start") blocks.set(blockId, "");
  else if (type === "block.delta") blocks.set(blockId, (blocks.get(blockId) ?? "") + text);
  else blocks.delete(blockId);
}

const changeBlock: Reducer<{ block_id: string; text?: string }> = (tree, { type, agent_id, payload }, owner) =>
  reduceBlock(tree, type, agent_id, payload.block_id, payload.text ?? "", owner);

const retractCalls: Reducer<Payloads["block.retract"]> = (tree, { agent_id, payload }, owner) => {
  const invocation = ownInvocation(tree, agent_id, owner);
  if (!invocation) return;
  const calls = ownField(owner, invocation, "calls");
  for (const [key, { call }] of [...calls]) if (payload.block_ids.includes(call.block_id ?? "")) calls.delete(key);
};

const startCall: Reducer<ToolCall> = (tree, { agent_id, payload }, owner) => {
  const invocation = ownInvocation(tree, agent_id, owner);
  if (!invocation) return;
  const call = { call: payload, isMessageComplete: false, isAwaited: false, approval: null, isDenied: false };
  ownField(owner, invocation, "calls").set(payload.call_id, owner.adopt(call));
};

const endCall: Reducer<Payloads["tool.result"]> = (tree, { agent_id, payload }, owner) => {
  if (!tree.open.get(agent_id ?? "")?.calls.has(payload.call_id)) return;
  const invocation = ownInvocation(tree, agent_id, owner);
  if (invocation) ownField(owner, invocation, "calls").delete(payload.call_id);
};

const awaitCalls: Reducer<Payloads["tool.await"]> = (tree, { agent_id, payload }, owner) => {
  for (const { call_id } of payload.calls) {
    const call = ownCall(tree, agent_id, call_id, owner);
    if (call) call.isAwaited = true;
  }
};

const requestApproval: Reducer<ApprovalRequest> = (tree, { agent_id, payload }, owner) => {
  const call = ownCall(tree, agent_id, payload.call_id, owner);
  if (call) call.approval = payload;
};

const decideApproval: Reducer<Payloads["approval.decision"]> = (tree, { agent_id, payload }, owner) => {
  const call = ownCall(tree, agent_id, payload.call_id, owner);
  if (!call) return;
  call.approval = null;
  call.isDenied = payload.decision !== "approve";
};

/** The input of a call resumes the call. Any other action opens a turn. */
const acceptAction: Reducer<Payloads["ui.action"]> = (tree, event, owner) => {
  const call = ownCall(tree, event.agent_id, event.payload.call_id, owner);
  if (call) call.isAwaited = false;
  else if (event.payload.call_id == null) queueMessage(tree, event, owner);
};

/**
 * Mark the agents that a stop applies to: those of its channel and of no channel. A stop of a turn or an agent that is
 * not open is ignored.
 */
const stopAgents: Reducer<Payloads["ui.command"]> = (tree, { channel = null, payload: { command } }, owner) => {
  if (command.kind !== "stop") return;
  const reached = ({ scope }: Invocation) => channel === null || scope.channel === null || scope.channel === channel;
  const scopes = [...tree.open.values()].filter(reached).map(({ scope }) => scope);
  const { turn, agent_id } = command;
  if (turn != null && !scopes.some((scope) => scope.trace_id === turn)) return;
  if (agent_id != null && !scopes.some((scope) => scope.agent_id === agent_id)) return;
  for (const scope of scopes) {
    const invocation = ownInvocation(tree, scope.agent_id, owner);
    if (invocation) invocation.isStopped = true;
  }
};

const REDUCERS = new Map<string, Reducer<any>>([
  [
    "session.member",
    (tree, { payload }, owner) => ownField(owner, tree, "members").set(payload.principal, payload.roles ?? []),
  ],
  ["ui.message", queueMessage],
  ["ui.action", acceptAction],
  ["ui.command", stopAgents],
  ["agent.start", startAgent],
  ["agent.end", endAgent],
  [
    "agent.handoff",
    (tree, event, owner) => ownField(owner, tree, "handoffTargets").set(event.payload.to_agent_id, event.trace_id),
  ],
  ["agent.usage", addUsage],
  ["agent.checkpoint", setPaused],
  ["block.start", changeBlock],
  ["block.delta", changeBlock],
  ["block.end", changeBlock],
  ["block.retract", retractCalls],
  ["tool.call", startCall],
  ["tool.result", endCall],
  ["tool.await", awaitCalls],
  ["approval.request", requestApproval],
  ["approval.decision", decideApproval],
]);
