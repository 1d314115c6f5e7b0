/**
 * Lists the open work of a session as JSON: the tree of agents, open calls and blocks, the queue.
 *
 * Input is a `Tree`; output equals `GET /api/state` with `include=open`. `waits_for` tells who has to act on a call.
 */

import type { ApprovalRequest, Cost, Json, Usage } from "../events.js";
import { eventText } from "./event-text.js";
import { childLookup, type FindChild, type Invocation, type OpenCall, type TreeState, waitingAgents } from "./tree.js";

interface OwnerFields {
  agent_id: string;
  agent_name: string;
  turn: string | null;
  channel: string | null;
}

export interface OpenAgent extends OwnerFields {
  model: string | null;
  via: "prompt" | "call" | "handoff";
  call_id: string | null;
  depth: number;
  waits: boolean;
  stopped: boolean;
  steps: number;
  usage: Usage | null;
  cost: Cost | null;
  /** The agents that it called. */
  agents: OpenAgent[];
}

export interface PendingCall extends OwnerFields {
  call_id: string;
  tool: string;
  args: { [key: string]: Json };
  waits_for: "page" | "approval" | "remote" | "agent" | "provider" | "backend" | "runtime";
  child_id: string | null;
  approval: ApprovalRequest | null;
}

export interface OpenBlock extends OwnerFields {
  block_id: string;
  text: string;
}

/** The open work of a session. */
export interface Pending {
  agents: OpenAgent[];
  calls: PendingCall[];
  blocks: OpenBlock[];
  queue: Array<{ turn: string; channel: string | null; text: string | null }>;
}

export function listPending(tree: TreeState): Pending {
  const findChild = childLookup(tree);
  return {
    agents: listAgents(tree, waitingAgents(tree, findChild)),
    calls: listCalls(tree, findChild),
    blocks: listBlocks(tree),
    queue: listQueue(tree),
  };
}

/** Return the open agents, of which `waiters` wait; those that an agent called are inside it. */
export function listAgents({ open }: TreeState, waiters: ReadonlySet<string>): OpenAgent[] {
  const nodes = new Map<string, OpenAgent>();
  for (const [agentId, invocation] of open) nodes.set(agentId, agentNode(invocation, waiters.has(agentId)));
  const roots: OpenAgent[] = [];
  for (const [agentId, { start }] of open) {
    const siblings = nodes.get(start.parent_id ?? "")?.agents ?? roots;
    siblings.push(nodes.get(agentId) as OpenAgent);
  }
  return roots;
}

// One literal without a spread: a page lists the open agents with most events.
const agentNode = ({ start, scope, isStopped, steps, usage, cost }: Invocation, waits: boolean): OpenAgent => ({
  agent_id: scope.agent_id,
  agent_name: start.name,
  turn: scope.trace_id,
  channel: scope.channel,
  model: start.model ?? null,
  via: start.via,
  call_id: start.call_id ?? null,
  depth: scope.depth,
  waits,
  stopped: isStopped,
  steps,
  usage,
  cost,
  agents: [],
});

const ownerFields = ({ start, scope }: Invocation): OwnerFields => ({
  agent_id: scope.agent_id,
  agent_name: start.name,
  turn: scope.trace_id,
  channel: scope.channel,
});

/** Return the open calls, in the order of the agents' starts; with `wanted` only those that wait for these. */
export function listCalls(
  { open }: TreeState,
  findChild: FindChild,
  wanted: ReadonlySet<PendingCall["waits_for"]> | null = null,
): PendingCall[] {
  const calls: PendingCall[] = [];
  for (const [agentId, invocation] of open) {
    for (const [call_id, openCall] of invocation.calls) {
      const child_id = findChild(agentId, call_id);
      const waits_for = waitsFor(openCall, child_id);
      if (wanted !== null && !wanted.has(waits_for)) continue;
      calls.push(pendingCall(invocation, openCall, waits_for, child_id));
    }
  }
  return calls;
}

const pendingCall = (
  { start, scope }: Invocation,
  { call, approval }: OpenCall,
  waits_for: PendingCall["waits_for"],
  child_id: string | null,
): PendingCall => ({
  agent_id: scope.agent_id,
  agent_name: start.name,
  turn: scope.trace_id,
  channel: scope.channel,
  call_id: call.call_id,
  tool: call.tool,
  args: call.args,
  waits_for,
  child_id,
  approval,
});

function waitsFor(open: OpenCall, child: string | null): PendingCall["waits_for"] {
  const executor = open.call.executor ?? "backend";
  if (open.approval !== null) return "approval";
  if (open.isAwaited) return "page";
  if (child !== null) return "agent";
  return open.isDenied || executor === "frontend" ? "backend" : executor;
}

const listBlocks = (tree: TreeState): OpenBlock[] =>
  [...tree.open.values()].flatMap((invocation) =>
    [...invocation.blocks].map(([block_id, text]) => ({ ...ownerFields(invocation), block_id, text })),
  );

const listQueue = (tree: TreeState): Pending["queue"] =>
  [...tree.queuedTurns].map(([turn, { trigger, channel }]) => ({ turn, channel, text: trigger && eventText(trigger) }));
