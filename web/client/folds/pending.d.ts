import type { ApprovalRequest, Cost, Json, Usage } from "../events.js";
import type { Tree } from "./tree.js";

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
  waits_for: "page" | "approval" | "remote" | "agent" | "provider" | "backend";
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

/** Return the open work as JSON: the same as `GET /api/state` with `include=open`. */
export declare function listPending(tree: Tree): Pending;
