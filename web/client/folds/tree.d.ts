import type { AgentStart, ApprovalRequest, Cost, Envelope, ToolCall, Usage } from "../events.js";
import type { IsDeclared } from "./transcript.js";

/** A call without a result. */
export interface OpenCall {
  readonly call: ToolCall;
  readonly isAwaited: boolean;
  /** An approval that nobody has given yet. */
  readonly approval: ApprovalRequest | null;
  readonly isDenied: boolean;
  readonly isWaiting: boolean;
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
  readonly isStopped: boolean;
}

/** The agents that are open, and what waits for its turn. */
export declare class Tree {
  constructor(declared?: IsDeclared);
  readonly last: number;
  readonly open: ReadonlyMap<string, Invocation>;
  /** By turn: the message or action that waits; null for events of a page alone. */
  readonly queuedTurns: ReadonlyMap<string, { trigger: Envelope | null; channel: string | null }>;
  readonly members: ReadonlyMap<string, string[]>;
  apply(event: Envelope<string, any>): void;
  /** The agent that this call of this agent started, if it is open. */
  child(agentId: string, callId: string): string | null;
  /** The agents that can do nothing but wait for the page, themselves or through their children. */
  waitingAgents(): Set<string>;
  /** Whether this agent is one of them. */
  isWaiting(agentId: string): boolean;
  /** The agents that have asked the page something. */
  agentsAsking(): string[];
  /** Whether an agent of a turn is open. */
  isRunning(turn: string): boolean;
  /** Whether a turn is over, or everyone in it waits. */
  isSettled(turn: string): boolean;
}
