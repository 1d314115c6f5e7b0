/** The state of a session for a page: `SessionStore`, and the pure fold behind it. */

export { emptyState, type FoldState, resetState } from "./fold-state.js";
export { reduceEvents } from "./reduce.js";
export { SessionStore, type SendOptions, type StoreOptions } from "./session-store.js";
export type * from "./types.js";
