// The recipe of docs/howto/other-clients.md for `useChat`.
import { useChat } from "@ai-sdk/react";
import { DefaultChatTransport, lastAssistantMessageIsCompleteWithApprovalResponses } from "ai";

export function Chat({ api, headers, id, messages, Page }) {
  const version = { "Turnlog-AI-SDK": "7" };
  const chat = useChat({
    id,
    messages,
    resume: true,
    transport: new DefaultChatTransport({ api, headers: { ...headers, ...version } }),
    sendAutomaticallyWhen: lastAssistantMessageIsCompleteWithApprovalResponses,
  });
  const stop = () => fetch(`${api}/${id}/stop`, { method: "POST", headers });
  return <Page chat={chat} stop={stop} />;
}
