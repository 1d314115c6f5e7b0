// Drives the chat of the Vercel AI SDK by the steps of a test: `node ai_sdk.mjs ai6`. Input and output: JSON lines.
import { createInterface } from "node:readline";

const sdk = await import(process.argv[2]);
const warnings = [];
for (const level of ["warn", "error"]) {
  console[level] = (...words) => warnings.push(words.map(String).join(" "));
}
process.on("unhandledRejection", (error) => warnings.push(`unhandled: ${error}`));
const tell = (report) => process.stdout.write(`${JSON.stringify(report)}\n`);

/** What a framework's store does for the chat. */
class State {
  status = "ready";
  error = undefined;
  constructor(messages) {
    this.messages = messages;
  }
  pushMessage = (message) => {
    this.messages = [...this.messages, message];
  };
  popMessage = () => {
    this.messages = this.messages.slice(0, -1);
  };
  replaceMessage = (index, message) => {
    this.messages = this.messages.map((one, number) => (number === index ? structuredClone(message) : one));
    watch?.(message);
  };
  snapshot = (value) => structuredClone(value);
}
class Chat extends sdk.AbstractChat {}

let chat;
let state;
let settings;
let data = [];
let errors = [];
let watch;
let current = {};

/** Counts heartbeats, and makes data of them if a step says so. */
async function countingFetch(url, options) {
  const response = await fetch(url, options);
  if (response.status === 204) return response;
  let count = 0;
  const counter = new TransformStream({
    transform(chunk, controller) {
      let text = Buffer.from(chunk).toString("utf-8");
      count += text.split(": ping\n\n").length - 1;
      if (current.spoil) text = text.replaceAll(": ping\n\n", `event: heartbeat\ndata: {"type":"heartbeat"}\n\n`);
      controller.enqueue(Buffer.from(text));
      if (current.pings !== undefined && count >= current.pings) {
        current.pings = undefined;
        tell({ step: "pinged" });
      }
    },
  });
  return new Response(response.body.pipeThrough(counter), response);
}

function open(messages = [], fetch = countingFetch) {
  const { url, headers, id } = settings;
  data = [];
  errors = [];
  state = new State(messages);
  chat = new Chat({
    id,
    state,
    transport: new sdk.DefaultChatTransport({ api: `${url}/chat`, headers, fetch }),
    onData: (part) => data.push(part),
    onError: (error) => errors.push(String(error)),
  });
}

const text = () =>
  (state.messages.at(-1)?.parts ?? [])
    .filter((part) => part.type === "text")
    .map((part) => part.text)
    .join("");

/** Do something when the text of the last message contains words. */
function whenText(words, act) {
  if (words === undefined) return;
  watch = () => {
    if (text().includes(words)) {
      watch = undefined;
      act();
    }
  };
}

async function post(what) {
  const { url, headers, id } = settings;
  const response = await fetch(`${url}/chat/${id}/${what}`, { method: "POST", headers });
  if (!response.ok) warnings.push(`${what}: ${response.status}`);
}

const ACTS = { stop: () => post("stop"), detach: () => chat.stop(), tell: () => tell({ step: "reached" }) };

const STEPS = {
  async new(step) {
    settings = step;
    open();
  },
  /** A page that is loaded again: all messages from the server, and what is being written. */
  async reload(step) {
    const { url, headers, id } = settings;
    const response = await fetch(`${url}/chat/${encodeURIComponent(id)}`, { headers });
    const messages = await response.json();
    open(messages);
    whenText(step.when, ACTS[step.then]);
    await chat.resumeStream();
  },
  async resume(step) {
    whenText(step.when, ACTS[step.then]);
    await chat.resumeStream();
  },
  async say(step) {
    whenText(step.when, ACTS[step.then]);
    await chat.sendMessage({ text: step.text, files: step.files }, { body: step.body });
  },
  /** Gives a stream to the client as if a server had sent it. */
  async replay(step) {
    settings = { url: "http://replay.test", headers: {}, id: "replay" };
    open([], async () => new Response(step.body, { headers: { "content-type": "text/event-stream" } }));
    await chat.sendMessage({ text: "x" });
  },
  async regenerate() {
    await chat.regenerate();
  },
  /** The page gives the output of its tool, and sends it. */
  async output(step) {
    const part = state.messages.at(-1).parts.find((one) => one.state === "input-available");
    const answer = { tool: part.toolName, toolCallId: part.toolCallId, output: step.output };
    await (chat.addToolOutput ?? chat.addToolResult)(answer);
    await chat.sendMessage();
  },
  async approve(step) {
    const part = state.messages.at(-1).parts.find((one) => one.state === "approval-requested");
    await chat.addToolApprovalResponse({ id: part.approval.id, approved: step.approved, reason: step.reason });
    await chat.sendMessage();
  },
  async send(step) {
    await chat.sendMessage(undefined, { body: step.body });
  },
};

for await (const line of createInterface({ input: process.stdin })) {
  const step = JSON.parse(line);
  current = step;
  watch = undefined;
  let failure;
  try {
    await STEPS[step.op](step);
  } catch (error) {
    failure = String(error);
  }
  tell({
    step: step.op,
    status: chat.status,
    messages: state.messages,
    data: data.splice(0),
    errors: errors.splice(0),
    warnings: warnings.splice(0),
    failure,
  });
}
