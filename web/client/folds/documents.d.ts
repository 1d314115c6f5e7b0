import type { Envelope, Json } from "../events.js";

export interface SessionDocument {
  id: string;
  type: "message" | "agent-identity" | "artifact" | "marker";
  category: "transcript" | "identity" | "knowledge" | "operational";
  body: { [key: string]: Json };
}

/** Folds events to documents. `apply` returns the documents that an event changed, complete. */
export declare class Documents {
  apply(event: Envelope<string, any>): SessionDocument[];
}

/** Return the document of a single event, or null. */
export declare function toDocument(event: Envelope<string, any>): SessionDocument | null;

/** Return the documents of a session by id. */
export declare function collectDocuments(events: Array<Envelope<string, any>>): Map<string, SessionDocument>;
