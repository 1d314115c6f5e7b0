/**
 * The messages of this page whose events have not come. Pure.
 *
 * The page chooses the id of a message's event, so the event replaces the message whether it comes before or after the
 * server's answer, and a message that is sent again is in the log once.
 */

import type { UiMessage } from "../events.js";
import { Draft } from "./draft.js";
import type { FoldState } from "./fold-state.js";
import { buildUserMessage } from "./reduce-agents.js";
import type { UserMessage } from "./types.js";

const NO_SEQ = -1; // the log has no event of it

export interface NewMessage {
  id: string;
  ts: string;
  author: string | null;
  payload: UiMessage;
}

export const findUnsent = ({ unsent }: FoldState, id: string): UserMessage | undefined =>
  unsent.find((message) => message.id === id);

/** Add a message that is being sent. */
export function addUnsent(state: FoldState, { id, ts, author, payload }: NewMessage): FoldState {
  const { session } = state.snapshot;
  const event = { type: "ui.message", id, seq: NO_SEQ, ts, session_id: session, origin: "ui" as const, payload };
  const channel = payload.channel === undefined ? {} : { channel: payload.channel };
  const actor = author === null ? {} : { actor: author };
  return withUnsent(state, [...state.unsent, buildUserMessage({ ...event, ...channel, ...actor }, "sending")]);
}

/** Change the state of a message; one whose event has come stays as it is. */
export const markUnsent = (state: FoldState, id: string, change: Pick<UserMessage, "state" | "error">): FoldState =>
  withUnsent(
    state,
    state.unsent.map((message) => (message.id === id ? { ...message, ...change } : message)),
  );

export const removeUnsent = (state: FoldState, id: string): FoldState =>
  withUnsent(
    state,
    state.unsent.filter((message) => message.id !== id),
  );

function withUnsent(state: FoldState, unsent: readonly UserMessage[]): FoldState {
  const draft = new Draft(state);
  draft.state.unsent = unsent;
  return draft.finish();
}
