/**
 * Lists the open work of a session as JSON: the tree of agents, open calls and blocks, the queue.
 *
 * Input is a `Tree`; output equals `GET /api/state` with `include=open`. `waits_for` tells who has to act on a call.
 */

import { eventText } from "./event-text.js";

export const listPending = (tree) => ({
  agents: listAgents(tree),
  calls: listCalls(tree),
  blocks: listBlocks(tree),
  queue: listQueue(tree),
});

function listAgents(tree) {
  const waiters = tree.waitingAgents();
  const nodes = new Map([...tree.open].map(([key, invocation]) => [key, agentNode(invocation, waiters.has(key))]));
  const roots = [];
  for (const [agentId, { start }] of tree.open) {
    (nodes.get(start.parent_id)?.agents ?? roots).push(nodes.get(agentId));
  }
  return roots;
}

const agentNode = (invocation, waits) => ({
  ...ownerFields(invocation),
  model: invocation.start.model ?? null,
  via: invocation.start.via,
  call_id: invocation.start.call_id ?? null,
  depth: invocation.scope.depth,
  waits,
  stopped: invocation.isStopped,
  steps: invocation.steps,
  usage: invocation.usage,
  cost: invocation.cost,
  agents: [],
});

const ownerFields = ({ start, scope }) => ({
  agent_id: scope.agent_id,
  agent_name: start.name,
  turn: scope.trace_id,
  channel: scope.channel,
});

function listCalls(tree) {
  const findChild = tree.childLookup();
  const calls = [];
  for (const [agentId, invocation] of tree.open) {
    for (const [call_id, open] of invocation.calls) {
      const child_id = findChild(agentId, call_id);
      const { tool, args } = open.call;
      const waits = { waits_for: waitsFor(open, child_id), child_id, approval: open.approval };
      calls.push({ ...ownerFields(invocation), call_id, tool, args, ...waits });
    }
  }
  return calls;
}

function waitsFor(open, child) {
  if (open.approval !== null) return "approval";
  if (open.isAwaited) return "page";
  if (child !== null) return "agent";
  return open.isDenied || open.executor === "frontend" ? "backend" : open.executor;
}

const listBlocks = (tree) =>
  [...tree.open.values()].flatMap((invocation) =>
    [...invocation.blocks].map(([block_id, pieces]) => ({
      ...ownerFields(invocation),
      block_id,
      text: pieces.join(""),
    })),
  );

const listQueue = (tree) =>
  [...tree.queuedTurns].map(([turn, { trigger, channel }]) => ({ turn, channel, text: trigger && eventText(trigger) }));
