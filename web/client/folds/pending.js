/**
 * What is open in a session, as JSON values: the agents as a tree, every open call and block, the queue.
 *
 * Derived from the `Tree` and nothing else, the same as `turnlog.state.pending` and `GET /api/state` with
 * `include=open`. `waits_for` says who has to act on a call.
 */

import { narrated } from "./event-text.js";

/** All of it. */
export const pending = (tree) => ({
  agents: agents(tree),
  calls: calls(tree),
  blocks: blocks(tree),
  queue: queue(tree),
});

/** The open agents, each with those that it called. */
function agents(tree) {
  const waiters = tree.waiters();
  const nodes = new Map([...tree.open].map(([key, invocation]) => [key, node(invocation, waiters.has(key))]));
  const roots = [];
  for (const [agentId, { start }] of tree.open) {
    (nodes.get(start.parent_id)?.agents ?? roots).push(nodes.get(agentId));
  }
  return roots;
}

const node = (invocation, waits) => ({
  ...whose(invocation),
  model: invocation.start.model ?? null,
  via: invocation.start.via,
  call_id: invocation.start.call_id ?? null,
  depth: invocation.scope.depth,
  waits,
  stopped: invocation.stopped,
  steps: invocation.steps,
  usage: invocation.usage,
  cost: invocation.cost,
  agents: [],
});

/** Which agent, turn and channel something belongs to. */
const whose = ({ start, scope }) => ({
  agent_id: scope.agent_id,
  agent_name: start.name,
  turn: scope.trace_id,
  channel: scope.channel,
});

/** The calls without a result, and whom they wait for. */
function calls(tree) {
  const childOf = tree.children();
  const found = [];
  for (const [agentId, invocation] of tree.open) {
    for (const [call_id, open] of invocation.calls) {
      const child_id = childOf(agentId, call_id);
      const { tool, args } = open.call;
      const waits = { waits_for: waitsFor(open, child_id), child_id, approval: open.asked };
      found.push({ ...whose(invocation), call_id, tool, args, ...waits });
    }
  }
  return found;
}

function waitsFor(open, child) {
  if (open.asked !== null) return "approval";
  if (open.awaited) return "page";
  if (child !== null) return "agent";
  return open.refused || open.executor === "frontend" ? "backend" : open.executor;
}

/** The blocks that are being written, with what there is of them. */
const blocks = (tree) =>
  [...tree.open.values()].flatMap((invocation) =>
    [...invocation.blocks].map(([block_id, pieces]) => ({
      ...whose(invocation),
      block_id,
      text: pieces.join(""),
    })),
  );

/** What waits for its turn, in order. */
const queue = (tree) =>
  [...tree.queue].map(([turn, { what, channel }]) => ({ turn, channel, text: what && narrated(what) }));
