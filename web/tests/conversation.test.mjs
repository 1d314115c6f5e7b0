// The entries of the chat: on the sequences of agents that Python plays, and on logs by hand.

import assert from "node:assert/strict";
import { test } from "node:test";

import { ChatEntries, findEntry } from "../console/store/chat-entries.js";
import { chatOf, chatSteps } from "./chat.mjs";
import { replayed, written } from "./sequences.mjs";
import { logOf, vectors } from "./vectors.mjs";

/** A replay has no start of a text: its part has the seq of the end. */
const HIDDEN = new Set(["inside", "agents", "part", "ts", "seq"]);

/** What a page shows: everything that an entry says, and what is inside it. */
const shown = (entries) => entries.map(shownEntry);

function shownEntry(entry) {
  const fields = Object.fromEntries(Object.entries(entry).filter(([name]) => !HIDDEN.has(name)));
  return { ...fields, inside: shown(entry.inside ?? []) };
}

/** Whether an event belongs to the agent of an entry, or to one inside it. */
const isAbout = ({ agent_id }, entry) =>
  allOf([entry]).some((each) => each.agent_id === agent_id || each.agents?.length);

/** All entries, at any depth. */
const allOf = (entries) => entries.flatMap((entry) => [entry, ...allOf(entry.inside ?? [])]);

/** Both say the same; told by their first difference, which is short. */
function same(one, other, where) {
  const [left, right] = [one, other].map((said) => JSON.stringify(said));
  const at = [...left].findIndex((character, index) => character !== right[index]);
  assert.ok(left === right, `${where}: ${left.slice(at - 60, at + 60)} is not ${right.slice(at - 60, at + 60)}`);
}

const SEQUENCES = vectors("agents/sequences").cases;
const sequence = (name) => written(SEQUENCES.find((vector) => vector.name === name));

for (const vector of SEQUENCES) {
  const log = written(vector);

  test(`${vector.name}: a replay shows the same, whenever it happens`, () => {
    for (let length = 1; length <= log.length; length += 1) {
      const live = log.slice(0, length);
      if (live.at(-1).payload.status === "complete") continue; // its twin is in the same append
      same(shown(chatOf(replayed(live)).entries), shown(chatOf(live).entries), `after ${length} events`);
    }
  });

  test(`${vector.name}: an entry that changes is another object, one of another agent stays the same`, () => {
    let before = new Map();
    for (const { event, entries } of chatSteps(log)) {
      const after = new Map(allOf(entries).map((entry) => [entry.key, [entry, JSON.stringify(entry)]]));
      for (const [key, [entry, text]] of after) {
        const [entryBefore, textBefore] = before.get(key) ?? [];
        if (textBefore !== text) assert.notEqual(entry, entryBefore, `${key} by ${event.type} at ${event.seq}`);
        else if (!isAbout(event, entry)) assert.equal(entry, entryBefore, `${key} by ${event.type} at ${event.seq}`);
      }
      before = after;
    }
  });

  test(`${vector.name}: entries that are built step by step are those of a new list`, () => {
    for (const { event, entries, snapshot } of chatSteps(log)) {
      assert.deepEqual(
        entries,
        new ChatEntries().list(snapshot.messages).slice(),
        `after ${event.type} at ${event.seq}`,
      );
    }
  });

  test(`${vector.name}: what waits for a person is pending, and everything around it knows`, () => {
    for (const { entries, snapshot } of chatSteps(log)) {
      const waiting = allOf(entries).filter(({ state }) => state === "waiting");
      const ids = (calls) => calls.map(({ agent_id, call_id }) => `${agent_id} ${call_id}`).sort();
      assert.deepEqual(ids(snapshot.pending), ids(waiting));
      for (const { hasWaiting, inside, state } of allOf(entries).filter(({ kind }) => kind === "call")) {
        assert.equal(hasWaiting, state === "waiting" || allOf(inside).some((entry) => entry.state === "waiting"));
      }
    }
  });

  test(`${vector.name}: each event has a place in the chat`, () => {
    const { entries } = chatOf(log);
    const all = new Set(allOf(entries));
    for (const event of log) assert.ok(all.has(findEntry(entries, event).at(-1)), `${event.type} at ${event.seq}`);
  });
}

/** An outline: each entry as a word, with what is inside it. */
const outline = (entries) =>
  entries.map((entry) => {
    const words = { message: entry.text, text: entry.text, call: `${entry.tool} ${entry.state}` };
    const word = words[entry.kind] ?? entry.kind;
    return entry.inside?.length ? [word, outline(entry.inside)] : word;
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
  test(`${name}: the outline`, () => assert.deepEqual(outline(chatOf(sequence(name)).entries), expected));
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
const last = (events) => chatOf(logOf([START, ...events])).entries.at(-1);

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
  const { entries } = chatOf(logOf([START, ...CALL.slice(0, 4), back, ...CALL]));
  assert.deepEqual(outline(entries), ["dig running"]);
});

test("a call whose block began without its id is one entry", () => {
  const [start, ...rest] = CALL;
  const unnamed = by("block.start", { block_id: "b1", kind: "tool_call" });
  assert.equal(start.payload.call_id, "c1");
  assert.deepEqual(outline(chatOf(logOf([START, unnamed, ...rest, result({ ok: true })])).entries), ["dig done"]);
});

test("what was said of a text that was stopped stays", () => {
  const start = by("block.start", { block_id: "t1", kind: "text" });
  const begun = [start, by("block.delta", { block_id: "t1", text: "Hel" })];
  const stopped = last([...begun, by("block.end", { block_id: "t1", status: "aborted", text: "Hel" })]);
  assert.deepEqual([last(begun).state, stopped.state, stopped.text], ["streaming", "aborted", "Hel"]);
});

test("a message is queued while others work; one that joins a turn is not, nor one that comes first", () => {
  const queued = (events) => chatOf(logOf(events)).queue.map(({ text }) => text);
  const other = { ...MESSAGE, trace_id: "tr_2", payload: { text: "And then" } };
  assert.deepEqual(queued([MESSAGE]), []);
  assert.deepEqual(queued([MESSAGE, START]), []);
  assert.deepEqual(queued([MESSAGE, START, MESSAGE]), []);
  assert.deepEqual(queued([MESSAGE, START, other]), ["And then"]);
  assert.deepEqual(queued([MESSAGE, other]), ["And then"]);
});

test("a view that was shown again has been replaced, one that was taken away is closed", () => {
  const view = (tree) => by("assistant.view", { view: { kind: "a2ui.v1", view_id: "v", tree } });
  const states = (...trees) => chatOf(logOf(trees.map(view))).entries.map(({ over }) => over);
  assert.deepEqual(states({ type: "text" }), [null]);
  assert.deepEqual(states({ type: "text" }, { type: "text" }), ["replaced", null]);
  assert.deepEqual(states({ type: "text" }, {}), ["closed"]);
});

test("a result without its call is an event, and so is what nobody knows", () => {
  assert.deepEqual(outline(chatOf(logOf([START, result({ ok: true }), by("new.thing", {})])).entries), [
    "event",
    "event",
  ]);
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
  assert.deepEqual(outline(chatOf(logOf([START, child, said])).entries), [["agent", ["Here."]]]);
});

test("a server that was away and is back says so; one that starts a session does not", () => {
  const server = (type) => ({ type, payload: { process: "server", pid: 1, reason: "process_crash" } });
  const log = logOf(["process.start", "process.end", "process.start"].map(server));
  const { entries } = chatOf(log);
  assert.deepEqual(
    entries.map(({ kind, seq }) => [kind, seq]),
    [["restart", 2]],
  );
});
