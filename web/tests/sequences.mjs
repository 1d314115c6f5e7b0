// The sequences of agents that Python plays, as logs: whole, and as a replay gives them.

import { logOf } from "./vectors.mjs";

const LIVE = new Set(["block.delta", "tool.progress"]);

/** The log that a sequence tells: it leaves out the names of blocks, tools and turns, which follow from it. */
export function written({ events }) {
  const blocks = new Map(); // agent -> the names of its blocks
  const open = new Set();
  let turn = 0;
  const entries = events.map(([type, agent, depth, told]) => {
    const mine = blocks.get(agent) ?? blocks.set(agent, []).get(agent);
    if (type === "ui.message" && !open.size) turn += 1;
    if (type === "agent.start") open.add(agent);
    if (type === "agent.end") open.delete(agent);
    if (type === "block.start") mine.push(`${agent}-${mine.length}`);
    const payload = { ...told, ...named(type, told, mine) };
    const fields = agent ? { agent_id: agent, agent_name: agent.split("#")[0], depth } : { actor: "ada" };
    return { type, trace_id: `tr_${turn}`, ...fields, payload };
  });
  return logOf(entries);
}

const toolOf = (call_id) => call_id.split("#")[0];

function named(type, { call_id, blocks, calls }, mine) {
  if (type === "block.retract") return { block_ids: mine.slice(-blocks) };
  if (type === "tool.await") return { calls: calls.map((call) => ({ ...call, tool: toolOf(call.call_id) })) };
  const tool = call_id && type !== "agent.start" ? { tool: toolOf(call_id) } : {};
  const streamed = type.startsWith("block.") || type === "assistant.message" || type === "tool.call";
  return streamed ? { ...tool, block_id: mine.at(-1) } : tool;
}

/** A log as a replay gives it: without the live events of what has ended. */
export function replayed(log) {
  const over = new Set();
  for (const { type, agent_id, payload } of log) {
    if (type === "block.end") over.add(`block ${payload.block_id}`);
    if (type === "tool.result") over.add(`call ${agent_id} ${payload.call_id}`);
  }
  const nameOf = ({ agent_id, payload: { block_id, call_id } }) =>
    block_id ? `block ${block_id}` : `call ${agent_id} ${call_id}`;
  return log.filter((event) => !LIVE.has(event.type) || !over.has(nameOf(event)));
}
