// Drives @ag-ui/client by the steps of a test: `node ag_ui.mjs ag-ui-1`. Input (stdin): {url, headers, thread, steps}. Output: JSON lines,
// one per step: {step, messages, state, types, outcome, error, interrupts, warnings}.
import { createInterface } from "node:readline";
import { from } from "rxjs";

const warnings = [];
for (const level of ["warn", "error"]) {
  console[level] = (...words) => warnings.push(words.map(String).join(" "));
}
process.on("unhandledRejection", (error) => warnings.push(`unhandled: ${error}`));

const { AbstractAgent, HttpAgent, runHttpRequest, transformHttpEventStream } = await import(process.argv[2]);

/** The client of AG-UI, and the ten lines that attach it to a thread. */
class TurnlogAgent extends HttpAgent {
  connect(input) {
    const query = `?protocolVersion=${input.protocolVersion ?? ""}`;
    const url = `${this.url}/${encodeURIComponent(input.threadId)}${query}`;
    return transformHttpEventStream(runHttpRequest(() => fetch(url, { headers: this.headers })));
  }
}

class ReplayAgent extends AbstractAgent {
  run() {
    return from(this.events);
  }
}

let agent;
/** Counts heartbeats. A step with `pings` is told when so many have come; `spoil` makes them data. */
let current = {};
async function countingFetch(url, options) {
  const response = await fetch(url, options);
  let count = 0;
  const counter = new TransformStream({
    transform(chunk, controller) {
      let text = Buffer.from(chunk).toString("utf-8");
      count += text.split(": ping\n\n").length - 1;
      if (current.spoil) text = text.replaceAll(": ping\n\n", `event: heartbeat\ndata: {"type":"heartbeat"}\n\n`);
      controller.enqueue(Buffer.from(text));
      if (current.pings !== undefined && count >= current.pings) {
        current.pings = undefined;
        process.stdout.write(`${JSON.stringify({ step: "pinged" })}\n`);
      }
    },
  });
  return new Response(response.body.pipeThrough(counter), response);
}

let types = [];
let ending = {};
const userMessage = (content) => ({ id: crypto.randomUUID(), role: "user", content });

function watch(step) {
  types = [];
  ending = {};
  let left = step.count ?? 1;
  return {
    onEvent({ event }) {
      types.push(event.type);
      if (step.until === event.type) {
        left -= 1;
        if (left === 0) {
          if (step.then === "stop") void post("stop");
          else if (step.then === "tell") process.stdout.write(`${JSON.stringify({ step: "reached" })}\n`);
          else agent.abortRun();
        }
      }
    },
    onRunFinishedEvent: ({ event }) => {
      ending = { outcome: event.outcome, result: event.result, usage: event.usage };
    },
    onRunErrorEvent: ({ event }) => {
      ending = { error: { message: event.message, code: event.code } };
    },
  };
}

async function post(what) {
  const response = await fetch(`${agent.url}/${agent.threadId}/${what}`, { method: "POST", headers: agent.headers });
  if (!response.ok) warnings.push(`${what}: ${response.status}`);
}

const STEPS = {
  async new({ url, headers, thread, messages }) {
    agent = new TurnlogAgent({ url, headers, threadId: thread, initialMessages: messages, fetch: countingFetch });
  },
  async say(step) {
    if (step.text !== undefined) agent.addMessage(userMessage(step.text));
    await agent.runAgent({ tools: step.tools, context: step.context, runId: step.runId }, watch(step));
  },
  async answer(step) {
    const calls = agent.messages.flatMap((message) => message.toolCalls ?? []).map((call) => call.id);
    const answered = new Set(agent.messages.map((message) => message.toolCallId));
    const ids = calls.filter((id) => !answered.has(id));
    for (const toolCallId of ids) {
      agent.addMessage({ id: crypto.randomUUID(), role: "tool", toolCallId, content: step.content });
    }
    await agent.runAgent({ tools: step.tools }, watch(step));
  },
  async resume(step) {
    const resume = agent.pendingInterrupts.map(({ id }) => ({
      interruptId: id,
      status: step.status ?? "resolved",
      ...(step.payload !== undefined && { payload: step.payload }),
    }));
    await agent.runAgent({ resume, runId: step.runId }, watch(step));
  },
  /** Gives events to the client as if a server had sent them. */
  async replay(step) {
    agent = new ReplayAgent({ threadId: "t", initialMessages: step.messages });
    agent.events = step.events;
    await agent.runAgent({}, watch(step));
  },
  async attach(step) {
    await agent.connectAgent({}, watch(step));
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const step = JSON.parse(line);
  let failure;
  current = step;
  try {
    await STEPS[step.op](step);
  } catch (error) {
    failure = String(error);
  }
  const report = {
    step: step.op,
    messages: agent.messages,
    state: agent.state,
    types,
    interrupts: agent.pendingInterrupts,
    warnings: warnings.splice(0),
    failure,
    ...ending,
  };
  process.stdout.write(`${JSON.stringify(report)}\n`);
}
