import type { Envelope } from "../events.js";

/** One message. `channel` is the role whose members see it; without one all members do. */
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

/** Whether an event type is the application's own. */
export type IsDeclared = (type: string) => boolean;

/** Folds events to the messages of a session. */
export declare class Transcript {
  constructor(declared?: IsDeclared);
  readonly messages: TranscriptMessage[];
  apply(event: Envelope<string, any>): void;
  /** Return the messages that members of these channels may see. */
  visibleTo(channels: string[]): TranscriptMessage[];
}
