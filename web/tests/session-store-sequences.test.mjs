// The fold of SessionStore on the sequences of agents that Python plays, and on events that are rare.

import assert from "node:assert/strict";
import { test } from "node:test";

import { emptyState, reduceEvents } from "../client/store/index.js";
import { replayed, written } from "./sequences.mjs";
import { logOf, vectors } from "./vectors.mjs";

const fold = (log) => reduceEvents(emptyState("sess_1"), log);
const foldEntries = (...entries) => fold(logOf(entries)).snapshot;
const AGENT = { trace_id: "tr_1", agent_id: "agt_1", agent_name: "Guide" };
const start = { type: "agent.start", ...AGENT, payload: { name: "Guide", via: "prompt" } };
const typesOf = ({ messages }) => messages.map(({ role, parts }) => [role, ...parts.map(({ type }) => type)]);

/** All parts of a snapshot, at any depth. */
const allParts = (holders) =>
  holders.flatMap(({ parts }) => parts.flatMap((part) => [part, ...(part.type === "agent" ? allParts([part]) : [])]));

for (const vector of vectors("agents/sequences").cases) {
  const log = written(vector);

  test(`${vector.name}: a replay shows the same, whenever it happens`, () => {
    for (let length = 1; length <= log.length; length += 1) {
      const live = log.slice(0, length);
      if (live.at(-1).payload.status === "complete") continue; // its twin is in the same append
      assert.deepEqual(fold(replayed(live)).snapshot.messages, fold(live).snapshot.messages, `after ${length} events`);
    }
  });

  test(`${vector.name}: event by event is the same as at once, and nothing changes afterwards`, () => {
    const states = [emptyState("sess_1")];
    for (const event of log) states.push(reduceEvents(states.at(-1), [event]));
    const before = states.map(({ snapshot }) => JSON.stringify(snapshot.messages));
    assert.deepEqual(states.at(-1).snapshot.messages, fold(log).snapshot.messages);
    assert.deepEqual(
      states.map(({ snapshot }) => JSON.stringify(snapshot.messages)),
      before,
    );
  });

  test(`${vector.name}: every call and every text of the log is shown where its agent is`, () => {
    const { messages, queue } = fold(log).snapshot;
    const parts = allParts([...messages, ...queue]);
    const retracted = new Set(log.flatMap(({ type, payload }) => (type === "block.retract" ? payload.block_ids : [])));
    for (const { type, payload } of log) {
      if (retracted.has(payload.block_id)) continue;
      if (type === "tool.call") assert(parts.some((part) => part.type === "call" && part.call_id === payload.call_id));
      if (type === "assistant.message")
        assert(parts.some((part) => part.type === "text" && part.text === payload.text));
    }
  });
}

test("events of no agent are messages of their own; invites and checkpoints are not shown", () => {
  const snapshot = foldEntries(
    { type: "broker.agree", origin: "ui", actor: "ada", payload: { granted: true } },
    { type: "session.invite", payload: { invite_id: "i", roles: [], expires_ms: 1 } },
    { type: "process.start", payload: { process: "server", pid: 1 } },
    { type: "process.end", payload: { process: "server", reason: "server_shutdown" } },
    { type: "process.start", payload: { process: "server", pid: 2 } },
    { type: "process.end", payload: { process: "model", reason: "user_ended" } },
    { type: "ui.command", origin: "ui", payload: { command: { kind: "summon" } } },
    { type: "session.error", payload: { code: "c", message: "m" } },
    start,
    { type: "session.error", ...AGENT, payload: { code: "c", message: "m" } },
    { type: "broker.note", ...AGENT, payload: {} },
  );
  assert.deepEqual(typesOf(snapshot), [
    ["event", "event"],
    ["event", "event"],
    ["event", "event"],
    ["event", "event"],
    ["event", "error"],
    ["assistant", "error", "event"],
  ]);
});

test("a message with pictures and documents has a part for each", () => {
  const content = [
    { type: "text", text: "See" },
    { type: "image", src: "api/blobs/a", media_type: "image/png", size_bytes: 3 },
    { type: "document", src: "api/blobs/b", title: "Plan.pdf" },
  ];
  const [{ parts }] = foldEntries({ type: "ui.message", origin: "ui", payload: { text: "See", content } }).messages;
  assert.deepEqual(
    parts.map(({ type, src, filename, size_bytes }) => [type, src, filename, size_bytes]),
    [
      ["text", undefined, undefined, undefined],
      ["file", "api/blobs/a", null, 3],
      ["file", "api/blobs/b", "Plan.pdf", null],
    ],
  );
});

test("files of an agent are parts of its message", () => {
  const files = [{ file_id: "f", filename: "a.csv", storage_location: "api/blobs/c" }];
  assert.deepEqual(typesOf(foldEntries(start, { type: "assistant.files", ...AGENT, payload: { files } })), [
    ["assistant", "file"],
  ]);
});

test("a surface of A2UI is updated, then deleted", () => {
  const show = (...messages) => ({
    type: "assistant.view",
    ...AGENT,
    payload: { view: { kind: "a2ui.v0.9", view_id: "s", tree: { messages } } },
  });
  const update = { updateComponents: {} };
  const [{ parts }] = foldEntries(
    start,
    show(update), // of no open surface
    show({ createSurface: {} }),
    show(update),
    show({ deleteSurface: {} }),
  ).messages;
  assert.deepEqual(
    parts.map(({ state, updates }) => [state, updates]),
    [["closed", [{ messages: [update] }]]],
  );
});

test("a call gets its id, its abortion, a second question and a stray result", () => {
  const call = { call_id: "c1", tool: "ask", args: {} };
  const asks = (question) => ({ type: "tool.await", ...AGENT, payload: { calls: [{ ...call, args: { question } }] } });
  const block = (block_id) => ({
    type: "block.start",
    ...AGENT,
    payload: { block_id, kind: "tool_call", tool: "ask" },
  });
  const [{ parts }] = foldEntries(
    start,
    block("b1"),
    { type: "tool.call", ...AGENT, payload: { ...call, block_id: "b1" } },
    asks("One?"),
    asks("Two?"),
    block("b2"),
    { type: "block.end", ...AGENT, payload: { block_id: "b2", status: "aborted", text: "{" } },
    { type: "tool.result", ...AGENT, payload: { call_id: "cx", tool: "t", ok: true, result: 1, error: null } },
    {
      type: "ui.action",
      ...AGENT,
      actor: "ada",
      payload: { call_id: "c1", action: { kind: "input.submit", values: { a: 1 } } },
    },
    { type: "ui.action", ...AGENT, payload: { call_id: "cy", action: { kind: "input.submit", values: {} } } },
  ).messages;
  assert.deepEqual(
    parts.map(({ type, state, call_id }) => [type, state, call_id]),
    [
      ["call", "queued", "c1"],
      ["question", "answered", "c1"],
      ["call", "aborted", "b2"],
      ["event", undefined, undefined],
      ["event", undefined, undefined],
    ],
  );
  assert.deepEqual([parts[1].args, parts[1].wants, parts[1].answer.value], [{ question: "Two?" }, "values", { a: 1 }]);
});

test("what waits is closed when its call ends without an answer", () => {
  const request = { call_id: "c1", tool: "t", args_hash: "h", risk: "write" };
  const failed = { call_id: "c1", tool: "t", ok: false, result: null, error: { code: "CANCELLED", message: "m" } };
  const [{ parts }] = foldEntries(
    start,
    { type: "approval.request", ...AGENT, payload: request },
    { type: "tool.await", ...AGENT, payload: { calls: [{ call_id: "c1", tool: "t", args: {} }] } },
    { type: "tool.result", ...AGENT, payload: failed },
    { type: "approval.decision", ...AGENT, payload: { call_id: "c1", args_hash: "h", decision: "approve" } },
    { type: "approval.request", ...AGENT, payload: request },
    { type: "tool.await", ...AGENT, payload: { calls: [{ call_id: "c1", tool: "t", args: {} }] } },
  ).messages;
  assert.deepEqual(
    parts.map(({ type, state }) => [type, state]),
    [
      ["call", "aborted"],
      ["approval", "closed"],
      ["question", "closed"],
    ],
  );
});

test("an agent that a person interrupts goes on in a message of its own", () => {
  const says = (block_id, text) => ({ type: "assistant.message", ...AGENT, payload: { block_id, text } });
  const { messages } = foldEntries(
    { type: "ui.message", trace_id: "tr_1", origin: "ui", payload: { text: "Go" } },
    start,
    says("b1", "Which one?"),
    { type: "ui.message", trace_id: "tr_1", origin: "ui", payload: { text: "The first" } },
    says("b2", "Good."),
  );
  assert.deepEqual(
    messages.map(({ role, state, agent_name }) => [role, state, agent_name]),
    [
      ["user", "sent", undefined],
      ["assistant", "done", "Guide"],
      ["user", "sent", undefined],
      ["assistant", "running", "Guide"],
    ],
  );
});

test("a called agent whose call is not in the log is in its caller's message", () => {
  const sub = { trace_id: "tr_1", agent_id: "agt_2", agent_name: "Scout", depth: 1 };
  const [{ parts }] = foldEntries(
    start,
    { type: "agent.start", ...sub, payload: { name: "Scout", via: "call", parent_id: "agt_1" } },
    { type: "assistant.message", ...sub, payload: { text: "Below." } },
    { type: "agent.end", ...sub, payload: { stop_reason: "error" } },
  ).messages;
  assert.deepEqual([parts[0].type, parts[0].state, parts[0].parts[0].text], ["agent", "done", "Below."]);
  assert.equal(parts[0].ending.stop_reason, "error");
});
