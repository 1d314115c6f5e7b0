// The runtime of CopilotKit in front of Turnlog: node runtime.mjs SERVER TOKEN PAGES. The first line is its URL.
import { readFile } from "node:fs/promises";
import { createServer } from "node:http";
import { CopilotRuntime } from "@copilotkit/runtime/v2";
import { createCopilotNodeListener } from "@copilotkit/runtime/v2/node";
import { TurnlogAgent, TurnlogRunner } from "./turnlog-runner.mjs";

const [server, token, pages] = process.argv.slice(2);
const headers = { Authorization: `Bearer ${token}` };
const agent = new TurnlogAgent({ url: `${server}/ag-ui/desk`, headers });
const runtime = new CopilotRuntime({ agents: { desk: agent }, runner: new TurnlogRunner(agent) });
const listener = createCopilotNodeListener({ runtime, basePath: "/api/copilotkit" });

const TYPES = { html: "text/html", js: "text/javascript", css: "text/css" };
const listening = createServer(async (request, response) => {
  const { pathname } = new URL(request.url, "http://localhost");
  if (pathname.startsWith("/api/copilotkit")) return listener(request, response);
  const type = TYPES[pathname.split(".").at(-1)];
  try {
    response.setHeader("content-type", type ?? "text/plain");
    response.end(await readFile(pages + pathname));
  } catch {
    response.writeHead(404).end();
  }
});
listening.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${listening.address().port}`));
