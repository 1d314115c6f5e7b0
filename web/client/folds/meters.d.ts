import type { Envelope } from "../events.js";

/** The numbers of a session, a turn or an agent, without those that are 0 or unknown. */
export interface MeterReport {
  began: string;
  channel?: string;
  ended?: string;
  duration_ms?: number;
  first_token_ms?: number;
  completions?: number;
  input_tokens?: number;
  output_tokens?: number;
  cache_read_tokens?: number;
  cache_creation_tokens?: number;
  /** The sum of known costs; `unpriced` completions have none. */
  cost_usd?: number;
  unpriced?: number;
  calls?: number;
  failed?: number;
  /** How long finished calls ran, without `wait_ms`, in which they waited for a person. */
  tool_ms?: number;
  wait_ms?: number;
  agents?: number;
  running?: number;
}

export interface MetersReport {
  session: Partial<MeterReport> & { turns: number; turn_ms: number };
  turns: { [turn: string]: MeterReport };
  agents: { [agentId: string]: MeterReport };
}

/** Folds events to tokens, cost and time. */
export declare class Meters {
  apply(event: Envelope<string, any>): void;
  report(): MetersReport;
  /** Return the meters that members of these channels may see. */
  visibleTo(channels: string[]): Meters;
}
