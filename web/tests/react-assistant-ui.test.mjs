// Messages of a session as assistant-ui takes them.

import assert from "node:assert/strict";
import { test } from "node:test";

import { emptyState, reduceEvents } from "../client/index.js";
import { convertMessage } from "../react/assistant-ui/convert-message.js";
import { logOf, vectors } from "./vectors.mjs";

const SCOPE = { trace_id: "tr_1", agent_id: "ag_1", agent_name: "Lead", depth: 0 };
const START = [
  { type: "ui.message", origin: "ui", trace_id: "tr_1", payload: { text: "Go" } },
  { type: "agent.start", ...SCOPE, payload: { name: "Lead", via: "prompt" } },
];
const CALL = {
  type: "tool.call",
  ...SCOPE,
  payload: { call_id: "call_1", tool: "delete", args: { name: "a.txt" } },
};
const USAGE = { type: "agent.usage", ...SCOPE, payload: { usage: { input_tokens: 1, output_tokens: 1 } } };
const REQUEST = {
  type: "approval.request",
  ...SCOPE,
  payload: { call_id: "call_1", tool: "delete", args_hash: "h", risk: "write", reason: "It is the last copy." },
};

const fold = (events) => reduceEvents(emptyState("sess_1"), logOf(events)).snapshot;

/** Return the last message of a log as assistant-ui gets it. */
const lastMessage = (events) => convertMessage(fold(events).messages.at(-1));

/** Return the only call of a log as assistant-ui gets it. */
function toolCall(events) {
  const [call, ...others] = lastMessage(events).content.filter(({ type }) => type === "tool-call");
  assert.deepEqual(others, []);
  return call;
}

const decide = (decision, notes) => ({
  type: "approval.decision",
  origin: "ui",
  ...SCOPE,
  payload: { call_id: "call_1", args_hash: "h", decision, ...(notes && { notes }) },
});
const resultOf = (fields) => ({
  type: "tool.result",
  ...SCOPE,
  payload: { call_id: "call_1", tool: "delete", ...fields },
});
const end = (stop_reason) => ({ type: "agent.end", ...SCOPE, payload: { stop_reason } });

test("texts keep their order, their role and their time", () => {
  const message = { type: "assistant.message", origin: "model", ...SCOPE, payload: { block_id: "b1", text: "Done" } };
  const thinking = { type: "assistant.thinking", origin: "model", ...SCOPE, payload: { block_id: "b0", text: "Hm" } };
  const { messages } = fold([...START, thinking, message, end("end_turn")]);
  const [first, second] = messages.map(convertMessage);
  assert.deepEqual([first.role, first.content], ["user", [{ type: "text", text: "Go" }]]);
  assert.equal(first.status, undefined, "assistant-ui allows a status for the assistant alone");
  assert.deepEqual(second.content, [
    { type: "reasoning", text: "Hm" },
    { type: "text", text: "Done" },
  ]);
  assert.deepEqual(second.status, { type: "complete", reason: "stop" });
  assert.deepEqual(second.createdAt, new Date(messages[1].ts));
  assert.equal(second.metadata.custom.turnlog, messages[1]);
});

for (const [stopReason, reason] of [
  ["cancelled", "cancelled"],
  ["error", "error"],
  ["max_tokens", "length"],
  ["refusal", "content-filter"],
]) {
  test(`an agent that ends with ${stopReason} is incomplete`, () => {
    assert.deepEqual(lastMessage([...START, end(stopReason)]).status, { type: "incomplete", reason });
  });
}

test("a call that streams has the arguments as far as they are written", () => {
  const start = { type: "block.start", ...SCOPE, payload: { block_id: "b1", kind: "tool_call", tool: "delete" } };
  const delta = { type: "block.delta", ...SCOPE, payload: { block_id: "b1", text: '{"name": "a' } };
  const { argsText, args, result } = toolCall([...START, start, delta]);
  assert.deepEqual([argsText, args, result], ['{"name": "a', undefined, undefined]);
  assert.deepEqual(lastMessage([...START, start, delta]).status, { type: "running" });
});

test("a call has its arguments and its result", () => {
  const { toolCallId, toolName, args, argsText, result, isError } = toolCall([
    ...[...START, CALL, USAGE],
    resultOf({ ok: true, result: "gone", error: null }),
  ]);
  assert.deepEqual([toolCallId, toolName, args, argsText], ["call_1", "delete", { name: "a.txt" }, '{"name":"a.txt"}']);
  assert.deepEqual([result, isError], ["gone", undefined]);
});

test("a call that failed has its error as result", () => {
  const error = { code: "BROKEN", message: "It broke." };
  const { result, isError } = toolCall([...START, CALL, USAGE, resultOf({ ok: false, result: null, error })]);
  assert.deepEqual([result, isError], [error, true]);
});

for (const [name, events, fields] of [
  ["open", [], {}],
  ["approved", [decide("approve")], { approved: true }],
  ["denied with a reason", [decide("deny", "Not today")], { approved: false, reason: "Not today" }],
  ["expired", [decide("expired")], { resolution: "expired" }],
  [
    "closed",
    [resultOf({ ok: false, result: null, error: { code: "CANCELLED", message: "" } })],
    { resolution: "cancelled" },
  ],
]) {
  test(`an approval that is ${name} is shown at its call`, () => {
    const { approval } = toolCall([...START, CALL, USAGE, REQUEST, ...events]);
    assert.deepEqual(approval, { id: "call_1", prompt: "It is the last copy.", ...fields });
  });
}

test("an open approval makes the message wait for an action", () => {
  const { status } = lastMessage([...START, CALL, USAGE, REQUEST]);
  assert.deepEqual(status, { type: "requires-action", reason: "interrupt" });
});

for (const [executor, interrupt] of [
  ["backend", { type: "human", payload: { question: "Which size?" } }],
  ["frontend", undefined], // a tool of the page adds its result
]) {
  test(`a question of a ${executor} tool`, () => {
    const call = { ...CALL, payload: { ...CALL.payload, executor } };
    const calls = [{ call_id: "call_1", tool: "delete", args: { question: "Which size?" } }];
    const wait = { type: "tool.await", ...SCOPE, payload: { calls } };
    assert.deepEqual(toolCall([...START, call, USAGE, wait]).interrupt, interrupt);
  });
}

test("the parts of a called agent follow its data part", () => {
  const inner = { ...SCOPE, agent_id: "ag_2", agent_name: "Scout", depth: 1 };
  const start = {
    ...{ type: "agent.start", ...inner },
    payload: { name: "Scout", via: "call", call_id: "call_1", parent_id: "ag_1" },
  };
  const text = { type: "assistant.message", origin: "model", ...inner, payload: { block_id: "b9", text: "Seen" } };
  const { content } = lastMessage([...START, CALL, USAGE, start, text]);
  assert.deepEqual(
    content.map(({ type, name }) => name ?? type),
    ["tool-call", "agent", "text"],
  );
  assert.deepEqual(content[2], { type: "text", text: "Seen", parentId: content[1].data.id });
});

test("an event of the application is a message with a data part", () => {
  const { role, content } = lastMessage([{ type: "desk.note_added", origin: "app", payload: { text: "milk" } }]);
  assert.deepEqual([role, content.map(({ type, name }) => [type, name])], ["assistant", [["data", "event"]]]);
  assert.deepEqual(content[0].data.payload, { text: "milk" });
});

test("a file is shown by its address", () => {
  const file = { ts: "2026-01-08T12:34:56.000Z", id: "p", seq: 1, type: "file", src: "api/blobs/s/h", size_bytes: 3 };
  const convert = (fields) =>
    convertMessage({ id: "m", ts: file.ts, role: "user", parts: [{ ...file, ...fields }] }).content;
  assert.deepEqual(convert({ filename: "a.png", media_type: "image/png" }), [
    { type: "file", data: "api/blobs/s/h", sourceType: "url", mimeType: "image/png", filename: "a.png" },
  ]);
  assert.deepEqual(convert({ filename: null, media_type: null }), [
    { type: "file", data: "api/blobs/s/h", sourceType: "url", mimeType: "application/octet-stream" },
  ]);
});

/** Return all parts, those of called agents too. */
const flatten = (parts) => parts.flatMap((part) => [part, ...(part.type === "agent" ? flatten(part.parts) : [])]);

for (const { name, events } of vectors("state/transcript").cases) {
  test(`every part is converted once: ${name}`, () => {
    for (const message of fold(events).messages) {
      const parts = flatten(message.parts).filter(({ type }) => type !== "question" && type !== "approval");
      assert.equal(convertMessage(message).content.length, parts.length);
    }
  });
}
