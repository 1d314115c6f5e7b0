import type { Envelope } from "../events.js";

/** The numbers of a session, a turn or an agent. What is 0 or unknown is left out. */
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
  /** The sum of what is known; `unpriced` completions are not in it. */
  cost_usd?: number;
  unpriced?: number;
  calls?: number;
  failed?: number;
  /** How long answered calls ran; `wait_ms` is how long they waited for a person. */
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

/** What a session took. */
export declare class Meters {
  apply(event: Envelope<string, any>): void;
  report(): MetersReport;
  /** The meters of who is in these channels. */
  visibleTo(channels: string[]): Meters;
}
