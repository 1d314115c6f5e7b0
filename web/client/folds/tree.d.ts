import type { AgentStart, ApprovalRequest, Cost, Envelope, ToolCall, Usage } from "../events.js";
import type { Declared } from "./transcript.js";

/** A call without a result. */
export interface OpenCall {
  readonly call: ToolCall;
  readonly awaited: boolean;
  /** An approval that nobody has given yet. */
  readonly asked: ApprovalRequest | null;
  readonly refused: boolean;
  readonly waits: boolean;
}

/** An agent that has started and not ended. */
export interface Invocation {
  readonly start: AgentStart;
  readonly scope: { agent_id: string; trace_id: string | null; depth: number; channel: string | null };
  readonly calls: ReadonlyMap<string, OpenCall>;
  /** What there is of each open block, in pieces. */
  readonly blocks: ReadonlyMap<string, string[]>;
  readonly steps: number;
  readonly usage: Usage | null;
  readonly cost: Cost | null;
  readonly stopped: boolean;
}

/** The agents that are open, and what waits for its turn. */
export declare class Tree {
  constructor(declared?: Declared);
  readonly last: number;
  readonly open: ReadonlyMap<string, Invocation>;
  /** By turn: the message or action that waits; null for events of a page alone. */
  readonly queue: ReadonlyMap<string, { what: Envelope | null; channel: string | null }>;
  readonly members: ReadonlyMap<string, string[]>;
  apply(event: Envelope<string, any>): void;
  /** The agent that this call of this agent started, if it is open. */
  child(agentId: string, callId: string): string | null;
  /** The agents that can do nothing but wait for the page, themselves or through their children. */
  waiters(): Set<string>;
  /** Whether this agent is one of them. */
  waits(agentId: string): boolean;
  /** The agents that have asked the page something. */
  waiting(): string[];
  /** Whether an agent of a turn is open. */
  runs(turn: string): boolean;
  /** Whether a turn is over, or everyone in it waits. */
  rests(turn: string): boolean;
}
