// assistant-ui's thread on a session of Turnlog.
import { AssistantRuntimeProvider, ComposerPrimitive, MessagePrimitive, ThreadPrimitive } from "@assistant-ui/react";
import type { ToolCallMessagePartProps } from "@assistant-ui/react";
import { Client } from "@turnlog/client";
import { TurnlogProvider } from "@turnlog/react";
import { useTurnlogRuntime } from "@turnlog/react/assistant-ui";
import { createRoot } from "react-dom/client";

const query = new URLSearchParams(location.search);
const session = query.get("session") ?? "";

function Tool({ toolName, args, result, approval, interrupt, respondToApproval, resume }: ToolCallMessagePartProps) {
  return (
    <div className="tool">
      {`${toolName}: ${JSON.stringify(result ?? args)}`}
      {approval !== undefined && approval.approved === undefined && approval.resolution === undefined && (
        <>
          <input type="button" value="Approve" onClick={() => respondToApproval({ approved: true })} />
          <input type="button" value="Deny" onClick={() => respondToApproval({ approved: false, reason: "Not today" })} />
        </>
      )}
      {interrupt !== undefined && <input type="button" value="Large" onClick={() => resume({ value: "large" })} />}
    </div>
  );
}

const components = { Text: ({ text }: { text: string }) => <p>{text}</p>, tools: { Fallback: Tool } };
const UserMessage = () => (
  <div className="user">
    <MessagePrimitive.Parts components={components} />
  </div>
);
const AssistantMessage = () => (
  <div className="assistant">
    <MessagePrimitive.Parts components={components} />
  </div>
);

function Thread() {
  return (
    <AssistantRuntimeProvider runtime={useTurnlogRuntime(session)}>
      <ThreadPrimitive.Root>
        <ThreadPrimitive.Messages components={{ UserMessage, AssistantMessage }} />
        <ComposerPrimitive.Root>
          <ComposerPrimitive.Input />
          <ThreadPrimitive.If running>
            <ComposerPrimitive.Cancel>Stop</ComposerPrimitive.Cancel>
          </ThreadPrimitive.If>
        </ComposerPrimitive.Root>
      </ThreadPrimitive.Root>
    </AssistantRuntimeProvider>
  );
}

const client = new Client({ url: query.get("server") ?? "", credentials: "include" });
createRoot(document.querySelector("#root") as Element).render(
  <TurnlogProvider client={client}>
    <Thread />
  </TurnlogProvider>,
);
