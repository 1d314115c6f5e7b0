import type { Envelope, Json } from "../events.js";

export interface SessionDocument {
  id: string;
  type: "message" | "agent-identity" | "artifact" | "marker";
  category: "transcript" | "identity" | "knowledge" | "operational";
  body: { [key: string]: Json };
}

/** What can still change; `apply` gives the documents that an event changed, whole. */
export declare class Documents {
  apply(event: Envelope<string, any>): SessionDocument[];
}

/** The document that an event makes by itself, or null. */
export declare function toDocument(event: Envelope<string, any>): SessionDocument | null;

/** The documents of a session, by id. */
export declare function collectDocuments(events: Array<Envelope<string, any>>): Map<string, SessionDocument>;
