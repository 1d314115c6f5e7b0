/** The client for Turnlog: follow sessions, fold their events, send messages and answers. */

export * from "./api/client.js";
export * from "./api/errors.js";
export type { UploadedFile, UploadOptions } from "./api/upload.js";
export * from "./events.js";
export type { AnyEvent, IsDeclared } from "./folds/event-text.js";
export { type Meter, type MeterReport, Meters, type MetersReport, reportMeters } from "./folds/meters.js";
export * from "./folds/names.js";
export { listPending, type OpenAgent, type OpenBlock, type Pending, type PendingCall } from "./folds/pending.js";
export * from "./folds/transcript.js";
export { type Invocation, type OpenCall, type QueuedTurn, Tree, type TreeState } from "./folds/tree.js";
export { newId } from "./shared/ids.js";
export * from "./store/index.js";
export {
  connect,
  type ConnectOptions,
  type Dialect,
  type EventOptions,
  type EventPosition,
  type Feed,
  type FeedOptions,
  type FeedState,
  type Reset,
  type SessionSelection,
  type TextOptions,
  type Timing,
} from "./transport/connect.js";
export type { RequestOptions, TokenSource } from "./transport/credentials.js";
export { followEvents } from "./transport/follow-events.js";
export { readViewNode } from "./views/node-tree.js";
export type * from "./views/view-nodes.js";
export * from "./views/views.js";
