import type { AgentStart, ApprovalRequest, Cost, Envelope, ToolCall, Usage } from "../events.js";
import type { IsDeclared } from "./transcript.js";

/** A call without a result. */
export interface OpenCall {
  readonly call: ToolCall;
  readonly isAwaited: boolean;
  /** The undecided approval, if there is one. */
  readonly approval: ApprovalRequest | null;
  readonly isDenied: boolean;
  readonly isWaiting: boolean;
}

/** An agent that has started and not ended. */
export interface Invocation {
  readonly start: AgentStart;
  readonly scope: { agent_id: string; trace_id: string | null; depth: number; channel: string | null };
  readonly calls: ReadonlyMap<string, OpenCall>;
  /** The pieces of each open block. */
  readonly blocks: ReadonlyMap<string, string[]>;
  readonly steps: number;
  readonly usage: Usage | null;
  readonly cost: Cost | null;
  readonly isStopped: boolean;
}

/** Folds events to the open agents and the queued turns. */
export declare class Tree {
  constructor(declared?: IsDeclared);
  readonly last: number;
  readonly open: ReadonlyMap<string, Invocation>;
  /** By turn: the event that opened it; null if it was an application's event. */
  readonly queuedTurns: ReadonlyMap<string, { trigger: Envelope | null; channel: string | null }>;
  readonly members: ReadonlyMap<string, string[]>;
  apply(event: Envelope<string, any>): void;
  /** Return the open agent that a call started, or null. */
  child(agentId: string, callId: string): string | null;
  /** Return the agents whose open calls all wait, for a person or for waiting agents. */
  waitingAgents(): Set<string>;
  /** Whether an agent is one of `waitingAgents`. */
  isWaiting(agentId: string): boolean;
  /** Return the waiting agents that wait for a person or another process themselves. */
  agentsAsking(): string[];
  /** Whether an agent of a turn is open. */
  isRunning(turn: string): boolean;
  /** Whether a turn is over, or all its agents wait. */
  isSettled(turn: string): boolean;
}
