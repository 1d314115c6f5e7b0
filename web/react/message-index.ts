/**
 * Finds messages and parts of a snapshot by id.
 *
 * Every component that shows one part looks it up after every change. So the lookups of one snapshot share an index, and
 * a message that did not change keeps its index.
 */

import type { Message, Part, Snapshot } from "@turnlog/client";

type Messages = Snapshot["messages"];

const messagesById = new WeakMap<Messages, ReadonlyMap<string, Message>>();
const partsById = new WeakMap<Message, ReadonlyMap<string, Part>>();

function* withNested(parts: readonly Part[]): Generator<Part> {
  for (const part of parts) {
    yield part;
    if (part.type === "agent") yield* withNested(part.parts);
  }
}

function indexMessages(messages: Messages): ReadonlyMap<string, Message> {
  const known = messagesById.get(messages);
  if (known !== undefined) return known;
  const index = new Map(messages.map((message) => [message.id, message]));
  messagesById.set(messages, index);
  return index;
}

function indexParts(message: Message): ReadonlyMap<string, Part> {
  const known = partsById.get(message);
  if (known !== undefined) return known;
  const index = new Map(Array.from(withNested(message.parts), (part) => [part.id, part]));
  partsById.set(message, index);
  return index;
}

/** Return a message, also one of the queue; undefined if there is none. */
export function findMessage({ messages, queue }: Snapshot, id: string): Message | undefined {
  return indexMessages(messages).get(id) ?? queue.find((message) => message.id === id);
}

/** Return a part of a message, also one of the agents in it; undefined if there is none. */
export function findPart(snapshot: Snapshot, messageId: string, partId: string): Part | undefined {
  const message = findMessage(snapshot, messageId);
  return message && indexParts(message).get(partId);
}

/** Return the parts of a message, or of the part of an agent in it. */
export function listParts(snapshot: Snapshot, messageId: string, agentPartId?: string): readonly Part[] {
  if (agentPartId === undefined) return findMessage(snapshot, messageId)?.parts ?? [];
  const part = findPart(snapshot, messageId, agentPartId);
  return part?.type === "agent" ? part.parts : [];
}
