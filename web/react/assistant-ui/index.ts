/** assistant-ui on a session of Turnlog: a runtime that reads the session's store and writes to it. */

import { type AppendMessage, type ExternalStoreAdapter, useExternalStoreRuntime } from "@assistant-ui/react";
import type { AssistantRuntime } from "@assistant-ui/react";
import type { Json, Message, PendingCall, SendOptions } from "@turnlog/client";
import { useMemo } from "react";
import { type Session, useSession } from "../index.js";
import { convertMessage } from "./convert-message.js";

export { convertMessage };

/** Options of the runtime: the channel and the agent of the messages that the composer sends, and more adapters. */
export interface TurnlogRuntimeOptions extends SendOptions, Pick<ExternalStoreAdapter<Message>, "adapters"> {}

/** Return the text of a message that the composer sends. Raise `TypeError` if it has other parts. */
function textOf({ content, attachments }: AppendMessage): string {
  const texts = content.map((part) => (part.type === "text" ? part.text : null));
  if (attachments?.length || texts.includes(null)) throw new TypeError("expected a message of text alone");
  return texts.join("\n");
}

function findPending({ pending }: Session, callId: string): PendingCall {
  const call = pending.find(({ call_id }) => call_id === callId);
  if (call === undefined) throw new TypeError(`expected a call that waits, got ${callId}`);
  return call;
}

const createAdapter = (session: Session, options: TurnlogRuntimeOptions): ExternalStoreAdapter<Message> => ({
  messages: session.queue.length === 0 ? session.messages : [...session.messages, ...session.queue],
  convertMessage,
  isRunning: session.status === "running",
  isDisabled: session.status === "closed",
  isLoading: !session.hasHistory,
  ...(options.adapters && { adapters: options.adapters }),
  onNew: async (message) => {
    const { channel, target } = options;
    await session.send(textOf(message), { ...(channel && { channel }), ...(target && { target }) });
  },
  onCancel: async () => {
    await session.stop();
  },
  onAddToolResult: async ({ toolCallId, result, isError }) => {
    const call = findPending(session, toolCallId);
    if (isError) await session.fail(call, { code: "FAILED", message: String(result) });
    else await session.answer(call, result as Json);
  },
  onResumeToolCall: ({ toolCallId, payload }) => {
    void session.answer(findPending(session, toolCallId), payload as Json);
  },
  onRespondToToolApproval: async ({ approvalId, approved, reason }) => {
    await session.decide(findPending(session, approvalId), approved ? "approve" : "deny", reason);
  },
});

/** Return the runtime of a session, for `<AssistantRuntimeProvider>`. */
export function useTurnlogRuntime(id: string, options: TurnlogRuntimeOptions = {}): AssistantRuntime {
  const session = useSession(id);
  const { adapters, channel, target } = options;
  // a page may write the options inline
  const adapter = useMemo(() => createAdapter(session, options), [session, adapters, channel, target]);
  return useExternalStoreRuntime(adapter);
}
