// ChatEntries: how much of a snapshot one event makes it read and build, and changes that are no deltas.

import assert from "node:assert/strict";
import { test } from "node:test";

import { emptyState, reduceEvents } from "../client/index.js";
import { ChatEntries } from "../console/store/chat-entries.js";
import { logOf } from "./vectors.mjs";

const TURNS = 200;
const by = (turn, type, payload, agent = `agt_${turn}`) => ({
  type,
  trace_id: `tr_${turn}`,
  agent_id: agent,
  agent_name: agent,
  payload,
});
const text = (turn, id, said, agent) => [
  by(turn, "block.start", { block_id: id, kind: "text" }, agent),
  by(turn, "block.end", { block_id: id, status: "complete" }, agent),
  by(turn, "assistant.message", { block_id: id, text: said }, agent),
];
const call = (turn, id, agent) => by(turn, "tool.call", { call_id: id, tool: "dig", args: {} }, agent);
const result = (turn, id) => by(turn, "tool.result", { call_id: id, tool: "dig", ok: true, result: 1, error: null });
const start = (turn) => [
  { type: "ui.message", trace_id: `tr_${turn}`, actor: "ada", payload: { text: "Dig." } },
  by(turn, "agent.start", { name: "A", via: "prompt" }),
];
const work = (turn) => [...text(turn, `b_${turn}`, "I dig."), call(turn, `c_${turn}`), result(turn, `c_${turn}`)];
const wholeTurn = (turn) => [...start(turn), ...work(turn), by(turn, "agent.end", { stop_reason: "end_turn" })];

const HISTORY = Array.from({ length: TURNS }, (_, turn) => wholeTurn(turn)).flat();
const CHILD = { name: "B", via: "call", parent_id: `agt_${TURNS}`, call_id: "c_outer" };
const RUNNING = [
  ...start(TURNS),
  ...work(TURNS),
  call(TURNS, "c_outer"),
  by(TURNS, "agent.start", CHILD, "agt_b"),
  ...text(TURNS, "b_first", "Inside.", "agt_b"),
  by(TURNS, "block.start", { block_id: "b_inner", kind: "text" }, "agt_b"),
  by(TURNS, "block.start", { block_id: "b_outer", kind: "text" }),
];

/** Snapshots in which an object that the fold left as it was stays the same one; counts the objects that are read. */
class ReadCounter {
  #proxies = new WeakMap();
  read = new Set();

  wrap(value) {
    if (typeof value !== "object" || value === null) return value;
    const known = this.#proxies.get(value);
    if (known) return known;
    const get = (target, name) => {
      const field = target[name];
      if (target.id !== undefined) this.read.add(target.id);
      return name === "parts" ? field.map((part) => this.wrap(part)) : field;
    };
    const proxy = new Proxy(value, { get });
    this.#proxies.set(value, proxy);
    return proxy;
  }
}

/** Fold a long session, and then an event; return the messages and parts that are read, and how many entries are new. */
function countWork(event) {
  const log = logOf([...HISTORY, ...RUNNING, event]);
  const counter = new ReadCounter();
  const builder = new ChatEntries();
  const list = ({ snapshot }) => builder.list(snapshot.messages.map((message) => counter.wrap(message)));
  const before = reduceEvents(emptyState("ses_1"), log.slice(0, -1));
  const entriesBefore = new Set(list(before));
  counter.read.clear();
  const entries = list(reduceEvents(before, log.slice(-1)));
  const { messages } = before.snapshot;
  const messageIds = new Set(messages.map(({ id }) => id));
  return {
    messages: [...counter.read].filter((id) => messageIds.has(id)).length,
    parts: [...counter.read].filter((id) => !messageIds.has(id)).sort(),
    entries: entries.slice().filter((entry) => !entriesBefore.has(entry)).length,
    count: messages.length,
  };
}

test("a delta reads one message of many and one of its parts, and builds one entry", () => {
  const { count, ...work } = countWork(by(TURNS, "block.delta", { block_id: "b_outer", text: "Well" }));
  assert.ok(count > 2 * TURNS);
  assert.deepEqual(work, { messages: 1, parts: ["b_outer"], entries: 1 });
});

test("a delta inside a call reads the message, the agent and the text, and builds the entry of the call", () => {
  const { count, ...work } = countWork(by(TURNS, "block.delta", { block_id: "b_inner", text: "Well" }, "agt_b"));
  assert.deepEqual([work.messages, work.entries], [1, 1]);
  assert.ok(!work.parts.includes(`b_${TURNS}`) && !work.parts.includes("b_outer"), work.parts.join(" "));
});

test("control: a change of all messages is counted", () => {
  const log = logOf([...HISTORY, ...RUNNING]);
  const counter = new ReadCounter();
  const { messages } = reduceEvents(emptyState("ses_1"), log).snapshot;
  new ChatEntries().list(messages.map((message) => counter.wrap(message)));
  assert.ok(messages.every(({ id }) => counter.read.has(id)));
});

/** Build the entries after each event, and compare them with those of a new `ChatEntries`. */
function checkSteps(events) {
  const builder = new ChatEntries();
  let state = emptyState("ses_1");
  for (const event of logOf(events)) {
    state = reduceEvents(state, [event]);
    const { messages } = state.snapshot;
    assert.deepEqual(builder.list(messages).slice(), new ChatEntries().list(messages).slice(), `after ${event.seq}`);
  }
  return builder.list(state.snapshot.messages).slice();
}

const files = (...names) =>
  by(1, "assistant.files", { files: names.map((filename) => ({ filename, storage_location: `blobs/${filename}` })) });
const ask = (id) => by(1, "tool.await", { calls: [{ call_id: id, tool: "dig", args: {} }] });
const child = (agent, id) => by(1, "agent.start", { name: agent, via: "call", parent_id: "agt_1", call_id: id }, agent);
const retract = (id) => by(1, "block.retract", { block_ids: [id], reason: "retry" });
const fail = (id, message) =>
  by(1, "tool.result", { call_id: id, tool: "dig", ok: false, result: null, error: { code: "E", message } });

for (const [name, events, kinds] of [
  [
    "files of one event share an entry",
    [files("a", "b"), files("c"), ...text(1, "t", "x")],
    ["files", "files", "text"],
  ],
  ["a call behind its agent", [child("B", "c"), call(1, "c"), ...text(1, "t", "x", "B")], ["call"]],
  [
    "two agents in a call",
    [call(1, "c"), child("B", "c"), ...text(1, "t", "x", "B"), child("C", "c"), ...text(1, "u", "y", "C")],
    ["call"],
  ],
  [
    "a text that is retracted",
    [...text(1, "t", "x"), ...text(1, "u", "y"), retract("t"), call(1, "c")],
    ["text", "call"],
  ],
  [
    "a failure inside a call that ends badly",
    [
      call(1, "c"),
      child("B", "c"),
      by(1, "session.error", { code: "E", message: "no" }, "B"),
      fail("c", "B: no"),
      by(1, "agent.end", { stop_reason: "error" }),
    ],
    ["call", "end"],
  ],
]) {
  test(`${name}: each step gives the entries of a new list`, () => {
    const entries = checkSteps([...start(1), ...events]);
    assert.deepEqual(
      entries.slice(1).map(({ kind }) => kind),
      kinds,
    );
  });
}

test("two calls with the same id both have the parts of that id, also after a change", () => {
  const events = [...start(1), call(1, "c"), ask("c"), ...text(1, "t", "x")];
  const [person, message] = reduceEvents(emptyState("ses_1"), logOf(events)).snapshot.messages;
  const [first, question, said] = message.parts;
  const builder = new ChatEntries();
  const states = ["open", "answered"].map((state) => {
    const parts = [first, { ...question, state }, said, { ...first, id: "again" }];
    const messages = [person, { ...message, parts }];
    const entries = builder.list(messages).slice();
    assert.deepEqual(entries, new ChatEntries().list(messages).slice());
    return entries.filter(({ kind }) => kind === "call").map(({ awaited }) => awaited !== null);
  });
  assert.deepEqual(states, [
    [true, true],
    [false, false],
  ]);
});

test("messages that are removed, moved or replaced by others leave no entries", () => {
  const { messages } = reduceEvents(emptyState("ses_1"), logOf(HISTORY.slice(0, 40))).snapshot;
  const builder = new ChatEntries();
  const again = [{ ...messages[0] }, ...messages.slice(1)];
  const twice = [...messages, messages[0]];
  for (const shown of [messages, messages.slice(2), [...messages].reverse(), again, twice, [], messages.slice(0, 3)]) {
    assert.deepEqual(builder.list(shown).slice(), new ChatEntries().list(shown).slice());
  }
});

test("a list that was returned never changes, and the same messages give the same list", () => {
  const builder = new ChatEntries();
  let state = emptyState("ses_1");
  const lists = [];
  for (const event of logOf([...HISTORY.slice(0, 200), ...RUNNING])) {
    state = reduceEvents(state, [event]);
    const list = builder.list(state.snapshot.messages);
    assert.equal(builder.list(state.snapshot.messages), list);
    lists.push([list, list.slice()]);
  }
  for (const [list, items] of lists) assert.deepEqual(list.slice(), items);
});
