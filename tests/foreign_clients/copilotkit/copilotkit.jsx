// The recipe of docs/howto/other-clients.md for a page with CopilotKit.
import { CopilotChat, CopilotKit, useDefaultRenderTool, useInterrupt } from "@copilotkit/react-core/v2";

function Questions() {
  useInterrupt({
    agentId: "desk",
    render: ({ interrupt, resolve }) => (
      <div>
        <p>{interrupt?.message}</p>
        <button onClick={() => resolve({ approved: true })}>Approve</button>
        <button onClick={() => resolve({ approved: false })}>Deny</button>
      </div>
    ),
  });
  useDefaultRenderTool({
    render: ({ name, result }) => <div className="tool">{`${name}: ${result}`}</div>,
  });
  return null;
}

export function Desk({ thread }) {
  return (
    <CopilotKit runtimeUrl="/api/copilotkit" showDevConsole={false}>
      <Questions />
      <CopilotChat agentId="desk" threadId={thread} />
    </CopilotKit>
  );
}
