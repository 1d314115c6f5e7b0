/**
 * Hooks that read a session. Each renders its component only when the value that it returns has changed.
 *
 * `useSession` returns everything. The others return one value of the snapshot, down to one part: while a model writes,
 * only the component of that part renders.
 */

import type { Message, Part, SessionStore, Snapshot } from "@turnlog/client";
import { useMemo, useRef, useSyncExternalStore } from "react";
import { findMessage, findPart, listParts } from "./message-index.js";
import { useSessionEntry } from "./provider.js";
import { isSameValue } from "./same-value.js";
import type { SessionActions } from "./session-stores.js";

/** A session: its snapshot, what a person can do in it, and the store behind. */
export interface Session extends Snapshot, SessionActions {
  readonly store: SessionStore;
}

/** Return a session. The component renders at every change of it. */
export function useSession(session: string): Session {
  const entry = useSessionEntry(session);
  const snapshot = useSyncExternalStore(entry.subscribe, entry.getSnapshot, entry.getServerSnapshot);
  return useMemo(() => ({ ...snapshot, ...entry.actions, store: entry.store }), [snapshot, entry]);
}

/** Return what a person can do in a session: the same functions in every render. */
export const useSessionActions = (session: string): SessionActions => useSessionEntry(session).actions;

/** Return a value of the snapshot. A list is the same as before if its items are. */
export function useSessionValue<T>(session: string, select: (snapshot: Snapshot) => T): T {
  const { subscribe, getSnapshot, getServerSnapshot } = useSessionEntry(session);
  const last = useRef<{ value: T } | null>(null);
  const share = (value: T): T => {
    if (last.current === null || !isSameValue(last.current.value, value)) last.current = { value };
    return last.current.value;
  };
  return useSyncExternalStore(
    subscribe,
    () => share(select(getSnapshot())),
    () => share(select(getServerSnapshot())),
  );
}

const idsOf = (items: readonly { readonly id: string }[]): readonly string[] => items.map(({ id }) => id);

/** Return the ids of the messages, the queue behind the others. */
export const useMessageIds = (session: string): readonly string[] =>
  useSessionValue(session, ({ messages, queue }) => [...idsOf(messages), ...idsOf(queue)]);

/**
 * Return a message with all its parts, or what `select` returns for it; undefined if it was removed. With `select` the
 * component renders only when that value changes.
 */
export function useMessage(session: string, messageId: string): Message | undefined;
export function useMessage<T>(session: string, messageId: string, select: (message: Message) => T): T | undefined;
export function useMessage(
  session: string,
  messageId: string,
  select: (message: Message) => unknown = asItIs,
): unknown {
  return useSessionValue(session, (snapshot) => selectFrom(findMessage(snapshot, messageId), select));
}

/** Return the ids of the parts of a message, or of the part of an agent in it. */
export const usePartIds = (session: string, messageId: string, agentPartId?: string): readonly string[] =>
  useSessionValue(session, (snapshot) => idsOf(listParts(snapshot, messageId, agentPartId)));

/**
 * Return a part of a message, also one of the agents in it, or what `select` returns for it; undefined if it was removed.
 * With `select` the component renders only when that value changes.
 */
export function usePart(session: string, messageId: string, partId: string): Part | undefined;
export function usePart<T>(
  session: string,
  messageId: string,
  partId: string,
  select: (part: Part) => T,
): T | undefined;
export function usePart(
  session: string,
  messageId: string,
  partId: string,
  select: (part: Part) => unknown = asItIs,
): unknown {
  return useSessionValue(session, (snapshot) => selectFrom(findPart(snapshot, messageId, partId), select));
}

const asItIs = (item: unknown): unknown => item;

const selectFrom = <Item>(item: Item | undefined, select: (item: Item) => unknown): unknown =>
  item === undefined ? undefined : select(item);
