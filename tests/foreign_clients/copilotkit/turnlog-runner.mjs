// The recipe of docs/howto/other-clients.md for CopilotKit's runtime.
import { HttpAgent, runHttpRequest, transformHttpEventStream } from "@ag-ui/client";
import { AgentRunner } from "@copilotkit/runtime/v2";

export class TurnlogAgent extends HttpAgent {
  connect(input) {
    const query = `?protocolVersion=${input.protocolVersion ?? ""}`;
    const url = `${this.url}/${encodeURIComponent(input.threadId)}${query}`;
    return transformHttpEventStream(runHttpRequest(() => fetch(url, { headers: this.headers })));
  }
}

// The log keeps the threads, not the memory of this process.
export class TurnlogRunner extends AgentRunner {
  constructor(agent) {
    super();
    this.agent = agent;
  }
  run({ agent, input }) {
    return agent.run(input);
  }
  connect({ threadId }) {
    return this.agent.connect({ threadId });
  }
  async isRunning() {
    return false;
  }
  async stop({ threadId }) {
    const { url, headers } = this.agent;
    return (await fetch(`${url}/${encodeURIComponent(threadId)}/stop`, { method: "POST", headers })).ok;
  }
}
