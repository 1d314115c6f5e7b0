/** A client for Turnlog: follow sessions, fold what they say, send what people do. */

export * from "./client.js";
export * from "./connect.js";
export * from "./documents.js";
export * from "./errors.js";
export * from "./meters.js";
export * from "./names.js";
export * from "./pending.js";
export * from "./roster.js";
export * from "./transcript.js";
export * from "./tree.js";
export * from "./views.js";
