// The client of AG-UI, and the lines that attach it to a thread.
import { HttpAgent, runHttpRequest, transformHttpEventStream } from "@ag-ui/client";

export class TurnlogAgent extends HttpAgent {
  connect(input) {
    const query = `?protocolVersion=${input.protocolVersion ?? ""}`;
    const url = `${this.url}/${encodeURIComponent(input.threadId)}${query}`;
    return transformHttpEventStream(runHttpRequest(() => fetch(url, { headers: this.headers })));
  }
}
