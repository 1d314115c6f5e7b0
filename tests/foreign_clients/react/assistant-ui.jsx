// The recipe of docs/howto/other-clients.md for assistant-ui.
import { AssistantRuntimeProvider } from "@assistant-ui/react";
import { useAgUiInterrupts, useAgUiRuntime, useAgUiSubmitInterruptResponses } from "@assistant-ui/react-ag-ui";
import { useMemo } from "react";
import { TurnlogAgent } from "./turnlog-agent.js";

// The log has the history: a run without a new message gets all messages, and follows what runs.
const history = { load: async () => ({ messages: [], unstable_resume: true }), append: async () => {} };

export function Desk({ url, headers, thread, children }) {
  const agent = useMemo(() => new TurnlogAgent({ url, headers, threadId: thread }), [url, headers, thread]);
  const runtime = useAgUiRuntime({ agent, adapters: { history } });
  return <AssistantRuntimeProvider runtime={runtime}>{children}</AssistantRuntimeProvider>;
}

export function Approvals() {
  const interrupts = useAgUiInterrupts();
  const submit = useAgUiSubmitInterruptResponses();
  const answer = (approved) =>
    submit(interrupts.map(({ id }) => ({ interruptId: id, status: "resolved", payload: { approved } })));
  if (interrupts.length === 0) return null;
  return (
    <>
      <button onClick={() => answer(true)}>Approve</button>
      <button onClick={() => answer(false)}>Deny</button>
    </>
  );
}
