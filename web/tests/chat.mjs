// The chat of a log: the snapshot of the public fold, and the console's entries of it.

import { emptyState, reduceEvents } from "../client/index.js";
import { ChatEntries } from "../console/store/chat-entries.js";

/** Yield the chat after each event, by one `ChatEntries`, as a page has it. */
export function* chatSteps(log) {
  const builder = new ChatEntries();
  let state = emptyState("ses_1");
  for (const event of log) {
    state = reduceEvents(state, [event]);
    yield { event, snapshot: state.snapshot, entries: builder.list(state.snapshot.messages).slice() };
  }
}

/** Return the chat of a whole log. */
export function chatOf(log) {
  const { snapshot } = reduceEvents(emptyState("ses_1"), log);
  const entries = new ChatEntries().list(snapshot.messages).slice();
  return { snapshot, entries, queue: new ChatEntries().list(snapshot.queue).slice() };
}
