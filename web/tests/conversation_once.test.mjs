// The entries of the chat: the queue, working agents, and that every action, failure and stop is shown once.

import assert from "node:assert/strict";
import { test } from "node:test";

import { findEntry, foldWork, thinkingAgents } from "../console/store/chat-entries.js";
import { chatOf } from "./chat.mjs";
import { logOf } from "./vectors.mjs";

const chat = (...events) => chatOf(logOf(events.flat()));
const said = (text, turn) => ({ type: "ui.message", trace_id: turn, actor: "ada", payload: { text } });
const by = (agent, type, payload, turn = "tr_1") => ({
  type,
  trace_id: turn,
  agent_id: `agt_${agent}`,
  agent_name: agent,
  payload,
});
const starts = (agent, turn, more = {}) => by(agent, "agent.start", { name: agent, via: "prompt", ...more }, turn);
const ends = (agent, stop_reason = "end_turn", turn = "tr_1") => by(agent, "agent.end", { stop_reason }, turn);
const speaks = (agent, text, turn) => [
  by(agent, "block.start", { block_id: `b-${text}`, kind: "text" }, turn),
  by(agent, "block.end", { block_id: `b-${text}`, status: "complete" }, turn),
  by(agent, "assistant.message", { block_id: `b-${text}`, text }, turn),
];
const breaksOff = (agent, reason) => [
  by(agent, "block.start", { block_id: "b", kind: "text" }),
  by(agent, "block.end", { block_id: "b", status: "aborted", text: "Half", reason }),
];
const interrupted = (agent) => by(agent, "agent.end", { stop_reason: "error", reason: "interrupted" });
const outline = ({ entries }) => entries.map((entry) => entry.text ?? entry.kind);
const names = ({ snapshot }, holders = snapshot.messages) =>
  thinkingAgents(holders).map(({ agent_name }) => agent_name);
const SERVER = { process: "server", pid: 1 };
const crashes = [
  { type: "process.end", payload: { ...SERVER, reason: "process_crash" } },
  { type: "process.start", payload: SERVER },
];

const FIRST = [said("hello", "tr_1"), starts("A", "tr_1")];
const QUEUED = [...FIRST, said("second", "tr_2"), ...speaks("A", "Answer 1", "tr_1"), ends("A")];

test("queue: a message that waits is in no thread, and find leads to what stands before it", () => {
  const log = logOf(QUEUED.slice(0, 6));
  const conversation = chatOf(log);
  assert.deepEqual(outline(conversation), ["hello", "Answer 1"]);
  assert.deepEqual(
    conversation.queue.map(({ text }) => text),
    ["second"],
  );
  assert.equal(findEntry(conversation.entries, log[2]).at(-1).text, "hello");
});

test("queue: a message whose turn starts stands before its own answer", () => {
  const log = logOf([...QUEUED, starts("A", "tr_2"), ...speaks("A", "Answer 2", "tr_2")]);
  const conversation = chatOf(log);
  assert.deepEqual(outline(conversation), ["hello", "Answer 1", "second", "Answer 2"]);
  assert.deepEqual(conversation.queue, []);
  assert.equal(findEntry(conversation.entries, log[2]).at(-1).text, "second");
  assert.equal(
    findEntry(conversation.entries, log[6]).at(-1).text,
    "Answer 1",
    "the end of the first turn is before the moved message",
  );
});

test("queue: a message that no agent took before a restart stands behind it", () => {
  const conversation = chat(said("hello", "tr_1"), crashes, starts("A", "tr_1"));
  assert.deepEqual(outline(conversation), ["restart", "hello"]);
});

test("thinking: an agent thinks from its start to its first block, and between two steps", () => {
  const call = [by("A", "tool.call", { call_id: "c", tool: "t", args: {} })];
  const result = by("A", "tool.result", { call_id: "c", tool: "t", ok: true, result: 1, error: null });
  const text = speaks("A", "x");
  assert.deepEqual(names(chat(FIRST)), ["A"]);
  assert.deepEqual(names(chat(FIRST, text.slice(0, 1))), []);
  assert.deepEqual(names(chat(FIRST, text)), ["A"]);
  assert.deepEqual(names(chat(FIRST, text, call)), []);
  assert.deepEqual(names(chat(FIRST, text, call, result)), ["A"]);
  assert.deepEqual(names(chat(FIRST, text, ends("A"))), []);
});

test("thinking: an agent that was called thinks inside the call, its caller does not", () => {
  const call = by("A", "tool.call", { call_id: "c", tool: "b", args: {} });
  const conversation = chat(FIRST, call, starts("B", "tr_1", { via: "call", parent_id: "agt_A", call_id: "c" }));
  assert.deepEqual(names(conversation), []);
  assert.deepEqual(names(conversation, conversation.entries[1].agents), ["B"]);
});

test("thinking: an agent that waits for a person does not think", () => {
  const call = by("A", "tool.call", { call_id: "c", tool: "confirm", args: {}, executor: "frontend" });
  const asks = by("A", "tool.await", { calls: [{ call_id: "c", tool: "confirm", args: {} }] });
  assert.deepEqual(names(chat(FIRST, call, asks)), []);
});

test("a title is no entry", () => {
  const conversation = chat({ type: "session.title", payload: { title: "A new project" } });
  assert.deepEqual([conversation.entries, conversation.snapshot.title], [[], "A new project"]);
});

const VIEW = { kind: "a2ui.v1", view_id: "v", tree: { type: "button", id: "agree", label: "I agree" } };
const shows = (view = VIEW) => ({ type: "assistant.view", channel: "customer", payload: { view } });
const CLICK = { action: { kind: "button.click", button_id: "agree" }, view_id: "v", shown: "evt_0" };
const acts = (payload = CLICK) => ({ type: "ui.action", channel: "customer", actor: "sarah", payload });

test("views: what was done stands on the view that it was done on, also when that is over", () => {
  const log = [shows(), acts(), shows()];
  const [first, second, ...more] = chat(log).entries;
  const { ts } = logOf(log)[1];
  assert.deepEqual(
    first.actions.map(({ actor, ts: at, action }) => ({ actor, at, action })),
    [{ actor: "sarah", at: ts, action: CLICK.action }],
  );
  assert.deepEqual([first.over, second.actions, more], ["replaced", [], []]);
});

test("views: an action that names no event counts for the view that is open, one without a view is a note", () => {
  const { shown, ...unnamed } = CLICK;
  assert.equal(chat(shows(), acts(unnamed)).entries[0].actions.length, 1);
  assert.deepEqual(outline(chat(acts({ ...unnamed, view_id: "other" }))), ["action"]);
});

const ASKED = [
  ...FIRST,
  by("A", "tool.call", { call_id: "c", tool: "confirm", args: { question: "Go?" }, executor: "frontend" }),
  by("A", "tool.await", { calls: [{ call_id: "c", tool: "confirm", args: { question: "Go?" } }] }),
];
const answered = (fields) => ({
  ...by("A", "tool.result", { call_id: "c", tool: "confirm", ok: true, result: true, error: null }),
  ...fields,
});

test("answers: the card of a question has who answered and when", () => {
  const log = [...ASKED, answered({ origin: "ui", actor: "ada" })];
  assert.deepEqual(chat(log).entries.at(-1).answer, { actor: "ada", ts: logOf(log).at(-1).ts });
});

test("answers: what the server answered itself is no person's answer", () => {
  assert.equal(chat(ASKED, answered({ origin: "system" })).entries.at(-1).answer, null);
});

const stop = { type: "ui.command", actor: "ada", payload: { command: { kind: "stop" } } };

test("a stop is told once, with who asked for it", () => {
  const [begins, breaks] = breaksOff("A", "stopped");
  const conversation = chat(FIRST, begins, stop, breaks, ends("A", "cancelled"));
  const { by: actor } = conversation.entries.at(-1);
  assert.deepEqual([outline(conversation), actor], [["hello", "Half", "end"], "ada"]);
  assert.equal(conversation.entries[1].aborted, "stop");
});

test("a stop that ended nothing says so itself", () => {
  assert.deepEqual(outline(chat(FIRST, ends("A"), stop)), ["hello", "command"]);
});

test("a stop inside a call is told by the call and by the end of the caller", () => {
  const call = by("A", "tool.call", { call_id: "c", tool: "b", args: {} });
  const child = starts("B", "tr_1", { via: "call", parent_id: "agt_A", call_id: "c" });
  const error = { code: "CANCELLED", message: "The turn was stopped." };
  const result = by("A", "tool.result", { call_id: "c", tool: "b", ok: false, result: null, error });
  const conversation = chat(FIRST, call, child, stop, ends("B", "cancelled"), result, ends("A", "cancelled"));
  const card = conversation.entries[1];
  assert.deepEqual([outline(conversation), card.inside, card.isErrorShown], [["hello", "call", "end"], [], true]);
});

const FAULT = by("B", "session.error", { code: "not_found_error", message: "There is no such model." });

test("a failure is told once: by its error, not by the end and not by the call around it", () => {
  const call = by("A", "tool.call", { call_id: "c", tool: "b", args: {} });
  const child = starts("B", "tr_1", { via: "call", parent_id: "agt_A", call_id: "c" });
  const error = { code: "EXECUTION_ERROR", message: "B failed: There is no such model." };
  const result = by("A", "tool.result", { call_id: "c", tool: "b", ok: false, result: null, error });
  const card = chat(FIRST, call, child, FAULT, ends("B", "error"), result).entries[1];
  assert.deepEqual([card.inside.map(({ kind }) => kind), card.isErrorShown], [["error"], true]);
});

test("an agent that ended with an error which nothing else tells has a note", () => {
  assert.deepEqual(outline(chat(FIRST, ends("A", "error"))), ["hello", "end"]);
});

test("a text that a crash cut off says so, and so does an agent that had said nothing", () => {
  const conversation = chat(FIRST, breaksOff("A", "interrupted"), interrupted("A"), crashes);
  assert.deepEqual(outline(conversation), ["hello", "Half", "restart"]);
  assert.equal(conversation.entries[1].aborted, "restart");
  const silent = chat(FIRST, interrupted("A"), crashes).entries;
  assert.deepEqual(
    silent.map(({ kind, isRestart }) => [kind, isRestart ?? null]),
    [
      ["message", null],
      ["end", true],
      ["restart", null],
    ],
  );
});

test("a text that its model broke off says that this was an error, one whose time was up says that", () => {
  const cut = (reason) => chat(FIRST, breaksOff("A", reason)).entries[1].aborted;
  assert.deepEqual([cut(undefined), cut("timeout")], ["error", "timeout"]);
});

const calls = (agent, id, tool) => by(agent, "tool.call", { call_id: id, tool, args: {} });
const returns = (agent, id, tool) => by(agent, "tool.result", { call_id: id, tool, ok: true, result: 1, error: null });
const WORK = [calls("A", "c1", "dig"), returns("A", "c1", "dig"), calls("A", "c2", "fill"), returns("A", "c2", "fill")];
const groupsOf = ({ entries, snapshot }) =>
  foldWork(
    entries.map((entry) => ({ entries: [entry] })),
    snapshot.usage.turns,
  ).map(({ item, items }) => items?.map(({ entries: [{ tool }] }) => tool) ?? item.entries[0].kind);

test("finished work: the calls of a turn that has ended are one group, those of a running turn are not", () => {
  assert.deepEqual(groupsOf(chat(FIRST, WORK, speaks("A", "Ready"), ends("A"))), ["message", ["dig", "fill"], "text"]);
  assert.deepEqual(groupsOf(chat(FIRST, WORK, speaks("A", "Ready"))), ["message", "call", "call", "text"]);
});

test("finished work: a single call is no group", () => {
  assert.deepEqual(groupsOf(chat(FIRST, WORK.slice(0, 2), ends("A"))), ["message", "call"]);
});
