// A page around the recipe: what a person sees and clicks.
import { ComposerPrimitive, MessagePrimitive, ThreadPrimitive } from "@assistant-ui/react";
import { createRoot } from "react-dom/client";
import { Approvals, Desk } from "./assistant-ui.jsx";

const { server, token, id } = Object.fromEntries(new URLSearchParams(location.search));
const headers = { Authorization: `Bearer ${token}` };

const Tool = ({ toolName, args, result }) => (
  <div className="tool">
    {toolName}: {JSON.stringify(result ?? args)}
  </div>
);

const components = { Text: ({ text }) => <p>{text}</p>, tools: { Fallback: Tool } };
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

createRoot(document.querySelector("#root")).render(
  <Desk url={`${server}/ag-ui/desk`} headers={headers} thread={id}>
    <ThreadPrimitive.Root>
      <ThreadPrimitive.Messages components={{ UserMessage, AssistantMessage }} />
      <Approvals />
      <ComposerPrimitive.Root>
        <ComposerPrimitive.Input />
      </ComposerPrimitive.Root>
    </ThreadPrimitive.Root>
  </Desk>,
);
