/** The client for Turnlog: follow sessions, fold their events, send messages and answers. */

export * from "./api/client.js";
export * from "./api/errors.js";
export * from "./folds/documents.js";
export * from "./folds/meters.js";
export * from "./folds/names.js";
export * from "./folds/pending.js";
export * from "./folds/roster.js";
export * from "./folds/transcript.js";
export * from "./folds/tree.js";
export * from "./transport/connect.js";
export * from "./views/views.js";
