// The chat as a fold: on the sequences of agents that Python plays, and on logs by hand.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Conversation } from "../console/store/conversation.js";
import { folded, logOf, vectors } from "./vectors.mjs";

const LIVE = new Set(["block.delta", "tool.progress"]);
const HIDDEN = new Set(["inside", "version", "thread", "entries", "owner", "event_id", "ts"]);

/** The log that a sequence tells: it leaves out the names of blocks, tools and turns, which follow from it. */
function written({ events }) {
  const blocks = new Map(); // agent -> the names of its blocks
  const open = new Set();
  let turn = 0;
  const entries = events.map(([type, agent, depth, told]) => {
    const mine = blocks.get(agent) ?? blocks.set(agent, []).get(agent);
    if (type === "ui.message" && !open.size) turn += 1;
    if (type === "agent.start") open.add(agent);
    if (type === "agent.end") open.delete(agent);
    if (type === "block.start") mine.push(`${agent}-${mine.length}`);
    const payload = { ...told, ...named(type, told, mine) };
    const fields = agent ? { agent_id: agent, agent_name: agent.split("#")[0], depth } : { actor: "ada" };
    return { type, trace_id: `tr_${turn}`, ...fields, payload };
  });
  return logOf(entries);
}

const toolOf = (call_id) => call_id.split("#")[0];

function named(type, { call_id, blocks, calls }, mine) {
  if (type === "block.retract") return { block_ids: mine.slice(-blocks) };
  if (type === "tool.await") return { calls: calls.map((call) => ({ ...call, tool: toolOf(call.call_id) })) };
  const tool = call_id && type !== "agent.start" ? { tool: toolOf(call_id) } : {};
  const streamed = type.startsWith("block.") || type === "assistant.message" || type === "tool.call";
  return streamed ? { ...tool, block_id: mine.at(-1) } : tool;
}

/** A log as a replay gives it: without the live events of what has ended. */
function replayed(log) {
  const over = new Set();
  for (const { type, agent_id, payload } of log) {
    if (type === "block.end") over.add(`block ${payload.block_id}`);
    if (type === "tool.result") over.add(`call ${agent_id} ${payload.call_id}`);
  }
  const nameOf = ({ agent_id, payload: { block_id, call_id } }) =>
    block_id ? `block ${block_id}` : `call ${agent_id} ${call_id}`;
  return log.filter((event) => !LIVE.has(event.type) || !over.has(nameOf(event)));
}

/** What a page shows of a thread: everything that an entry says, and what is inside it. */
const shown = (thread) => thread.entries.map(saidBy);

function saidBy(entry) {
  const said = Object.fromEntries(Object.entries(entry).filter(([name]) => !HIDDEN.has(name)));
  return { ...said, text: entry.text, state: entry.state, inside: entry.thread ? shown(entry.thread) : [] };
}

/** All entries of a thread, at any depth. */
const allOf = (thread) => thread.entries.flatMap((entry) => [entry, ...(entry.thread ? allOf(entry.thread) : [])]);

/** Both say the same; told by their first difference, which is short. */
function same(one, other, where) {
  const [left, right] = [one, other].map((said) => JSON.stringify(said));
  const at = [...left].findIndex((character, index) => character !== right[index]);
  assert.ok(left === right, `${where}: ${left.slice(at - 60, at + 60)} is not ${right.slice(at - 60, at + 60)}`);
}

const chat = (log) => folded(new Conversation(), log);
const SEQUENCES = vectors("agents/sequences").cases;
const sequence = (name) => written(SEQUENCES.find((vector) => vector.name === name));

for (const vector of SEQUENCES) {
  const log = written(vector);

  test(`${vector.name}: a replay shows the same, whenever it happens`, () => {
    for (let length = 1; length <= log.length; length += 1) {
      const live = log.slice(0, length);
      if (live.at(-1).payload.status === "complete") continue; // its twin is in the same append
      same(shown(chat(replayed(live)).thread), shown(chat(live).thread), `after ${length} events`);
    }
  });

  test(`${vector.name}: what has changed has another version, and so has what is around it`, () => {
    const conversation = new Conversation();
    let before = new Map();
    for (const event of log) {
      conversation.apply(event);
      const entries = allOf(conversation.thread);
      const after = new Map(entries.map((entry) => [entry, [JSON.stringify(saidBy(entry)), entry.version]]));
      for (const [entry, [said, version]] of after) {
        const [saidBefore, versionBefore] = before.get(entry) ?? [];
        if (saidBefore !== said) assert.notEqual(version, versionBefore, `${event.type} at ${event.seq}`);
      }
      before = after;
    }
  });

  test(`${vector.name}: what waits is counted by everything around it`, () => {
    const conversation = new Conversation();
    for (const event of log) {
      conversation.apply(event);
      const entries = allOf(conversation.thread);
      const waiting = entries.filter(({ state }) => state === "waiting");
      assert.deepEqual(
        [...conversation.waiting].map(({ seq }) => seq),
        waiting.map(({ seq }) => seq),
      );
      for (const { thread, waiting: count = 0 } of entries.filter((entry) => entry.thread)) {
        assert.equal(count, allOf(thread).filter(({ state }) => state === "waiting").length);
      }
    }
  });

  test(`${vector.name}: each event has a place in the chat`, () => {
    const conversation = chat(log);
    const entries = new Set(allOf(conversation.thread));
    for (const event of log) assert.ok(entries.has(conversation.find(event)), `${event.type} at ${event.seq}`);
  });
}

/** An outline: each entry as a word, with what is inside it. */
const outline = (thread) =>
  thread.entries.map((entry) => {
    const words = { message: entry.payload?.text, text: entry.text, call: `${entry.tool} ${entry.state}` };
    const word = words[entry.kind] ?? entry.kind;
    return entry.thread?.entries.length ? [word, outline(entry.thread)] : word;
  });

for (const [name, expected] of [
  [
    "nested call",
    ["Go.", ["b done", [["c done", ["Checking.", "look done", "C: grass is green"]], "B found."]], "Done."],
  ],
  ["hand-off inside a call", ["Go.", ["b done", ["handoff_to_c done", "handoff", "C did it."]], "I heard: C did it."]],
  ["retry", ["Go.", "Event one. And two."]],
  ["approval denied", ["Go.", "remove denied", "Then not."]],
  ["stop during a wait", ["Go.", ["b aborted", ["confirm aborted"]], "end", "Hello.", "Hello."]],
]) {
  test(`${name}: the outline`, () => assert.deepEqual(outline(chat(sequence(name)).thread), expected));
}

const MESSAGE = { type: "ui.message", trace_id: "tr_1", payload: { text: "Hi" } };
const START = { type: "agent.start", trace_id: "tr_1", agent_id: "agt_1", payload: { name: "A", via: "prompt" } };
const by = (type, payload) => ({ type, trace_id: "tr_1", agent_id: "agt_1", agent_name: "A", payload });
const CALL = [
  by("block.start", { block_id: "b1", kind: "tool_call", call_id: "c1", tool: "dig" }),
  by("block.delta", { block_id: "b1", text: '{"deep":' }),
  by("block.end", { block_id: "b1", status: "complete" }),
  by("tool.call", { call_id: "c1", tool: "dig", args: { deep: 1 }, block_id: "b1" }),
  by("agent.usage", { model: "m", usage: { input_tokens: 1, output_tokens: 1 } }),
];
const UNANSWERED = { call_id: "c1", tool: "dig", ok: false, result: null, error: null };
const result = (fields) => by("tool.result", { ...UNANSWERED, ...fields });
const fault = (code) => result({ error: { code, message: "no" } });
const ASKED = by("approval.request", { call_id: "c1", tool: "dig", args_hash: "h", risk: "r" });
const last = (events) => chat(logOf([START, ...events])).thread.entries.at(-1);

for (const [state, events] of [
  ["writing", CALL.slice(0, 2)],
  ["queued", CALL.slice(0, 4)],
  ["running", CALL],
  ["running", [...CALL, by("tool.progress", { call_id: "c1", text: "..." })]],
  ["waiting", [...CALL, by("tool.await", { calls: [{ call_id: "c1", tool: "dig", args: {} }] })]],
  ["waiting", [...CALL, ASKED]],
  ["running", [...CALL, ASKED, by("approval.decision", { call_id: "c1", args_hash: "h", decision: "approve" })]],
  ["done", [...CALL, result({ ok: true, result: 1 })]],
  ["done", [...CALL, result({ ok: true, result: 1 }), fault("LATE")]],
  ["error", [...CALL, fault("EXECUTION_ERROR")]],
  ["denied", [...CALL, ASKED, fault("DENIED")]],
  ["aborted", [...CALL, fault("CANCELLED")]],
  ["aborted", [CALL[0], by("block.end", { block_id: "b1", status: "aborted", text: "{" })]],
]) {
  test(`a call is ${state} after ${events.slice(-1)[0].type}`, () => assert.equal(last(events).state, state));
}

test("arguments are shown as they are written, and then as they are", () => {
  assert.equal(last(CALL.slice(0, 2)).written, '{"deep":');
  assert.deepEqual([last(CALL).written, last(CALL).args], ["", { deep: 1 }]);
});

test("of progress the end is kept, while the call runs", () => {
  const running = [...CALL, by("tool.progress", { call_id: "c1", text: "x".repeat(5000) })];
  assert.equal(last(running).progress.length, 4000);
  assert.equal(last([...running, result({ ok: true })]).progress, "");
});

test("a call that was taken back leaves its id to another one", () => {
  const back = by("block.retract", { block_ids: ["b1"], reason: "retry" });
  const { thread } = chat(logOf([START, ...CALL.slice(0, 4), back, ...CALL]));
  assert.deepEqual(outline(thread), ["dig running"]);
});

test("a call whose block began without its id is one entry", () => {
  const [start, ...rest] = CALL;
  const unnamed = by("block.start", { block_id: "b1", kind: "tool_call" });
  assert.equal(start.payload.call_id, "c1");
  assert.deepEqual(outline(chat(logOf([START, unnamed, ...rest, result({ ok: true })])).thread), ["dig done"]);
});

test("what was said of a text that was stopped stays", () => {
  const start = by("block.start", { block_id: "t1", kind: "text" });
  const begun = [start, by("block.delta", { block_id: "t1", text: "Hel" })];
  const stopped = last([...begun, by("block.end", { block_id: "t1", status: "aborted", text: "Hel" })]);
  assert.deepEqual([last(begun).open, stopped.open, stopped.aborted, stopped.text], [true, false, true, "Hel"]);
});

test("a message is queued while others work; one that joins a turn is not, nor one that comes first", () => {
  const queued = (events) => chat(logOf(events)).queue.map(({ payload }) => payload.text);
  const other = { ...MESSAGE, trace_id: "tr_2", payload: { text: "And then" } };
  assert.deepEqual(queued([MESSAGE]), []);
  assert.deepEqual(queued([MESSAGE, START]), []);
  assert.deepEqual(queued([MESSAGE, START, MESSAGE]), []);
  assert.deepEqual(queued([MESSAGE, START, other]), ["And then"]);
  assert.deepEqual(queued([MESSAGE, other]), ["And then"]);
});

test("a view that was shown again has been replaced, one that was taken away is closed", () => {
  const view = (tree) => by("assistant.view", { view: { kind: "a2ui.v1", view_id: "v", tree } });
  const states = (...trees) => chat(logOf(trees.map(view))).thread.entries.map(({ over }) => over);
  assert.deepEqual(states({ type: "text" }), [null]);
  assert.deepEqual(states({ type: "text" }, { type: "text" }), ["replaced", null]);
  assert.deepEqual(states({ type: "text" }, {}), ["closed"]);
});

test("a result without its call is an event, and so is what nobody knows", () => {
  assert.deepEqual(outline(chat(logOf([START, result({ ok: true }), by("new.thing", {})])).thread), ["event", "event"]);
});

test("an agent that no call has started stands in an entry of its own", () => {
  const child = {
    type: "agent.start",
    trace_id: "tr_1",
    agent_id: "agt_2",
    agent_name: "B",
    payload: { name: "B", via: "call", parent_id: "agt_1", call_id: "gone" },
  };
  const said = { ...child, type: "assistant.message", payload: { text: "Here." } };
  assert.deepEqual(outline(chat(logOf([START, child, said])).thread), [["agent", ["Here."]]]);
});

test("a server that was away and is back says so; one that starts a session does not", () => {
  const server = (type) => ({ type, payload: { process: "server", pid: 1, reason: "process_crash" } });
  const log = logOf(["process.start", "process.end", "process.start"].map(server));
  const { thread } = folded(new Conversation(), log);
  assert.deepEqual(
    thread.entries.map(({ kind, seq }) => [kind, seq]),
    [["restart", 2]],
  );
});
