import type { Envelope } from "../events.js";

/** One text. `channel` is the role whose members see it; none is everybody. */
export interface TranscriptMessage {
  seq: number;
  ts: string;
  who: "user" | "assistant" | "note";
  text: string;
  turn?: string;
  channel?: string;
  speaker?: string;
  agent_id?: string;
  agent_name?: string;
  depth?: number;
  partial?: true;
}

/** Says which types are the application's own. */
export type IsDeclared = (type: string) => boolean;

/** What was said in a session. */
export declare class Transcript {
  constructor(declared?: IsDeclared);
  readonly messages: TranscriptMessage[];
  apply(event: Envelope<string, any>): void;
  /** What somebody sees who is in these channels. */
  visibleTo(channels: string[]): TranscriptMessage[];
}
