// How long turns, tools and people took, what is open included.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Meters } from "../client/folds/meters.js";
import { callTimes, meterElapsedMs, turnsElapsedMs } from "../console/store/elapsed-time.js";
import { folded, logOf } from "./vectors.mjs";

const by = (type, payload) => ({ type, trace_id: "tr_1", agent_id: "agt_1", payload });
const EVENTS = [
  { type: "ui.message", trace_id: "tr_1", payload: { text: "Go" } },
  by("agent.start", { name: "Lead", via: "prompt" }),
  by("tool.call", { call_id: "c", tool: "t", args: {} }),
  by("tool.call", { call_id: "d", tool: "ask", args: {} }),
  by("tool.await", { calls: [{ call_id: "d", tool: "ask", args: {} }] }),
];
const END = by("agent.end", { stop_reason: "end_turn" });
const BEGIN = Date.parse(logOf(EVENTS)[0].ts); // each event is a millisecond after the one before
const MINUTE = 60_000;

test("turnsLasted: an open turn counts until now", () => {
  assert.equal(turnsElapsedMs(folded(new Meters(), logOf(EVENTS)), BEGIN + MINUTE), MINUTE);
});

test("turnsLasted: a turn that has ended does not grow", () => {
  assert.equal(turnsElapsedMs(folded(new Meters(), logOf([...EVENTS, END])), BEGIN + MINUTE), 5);
});

test("turnsLasted: a message in which no agent has begun takes no time", () => {
  assert.equal(turnsElapsedMs(folded(new Meters(), logOf(EVENTS.slice(0, 1))), BEGIN + MINUTE), 0);
});

test("callsLasted: waiting for a person is apart from the time of tools", () => {
  const meters = folded(new Meters(), logOf(EVENTS));
  assert.deepEqual(callTimes(meters, BEGIN + MINUTE), { tool_ms: MINUTE - 2 + 1, wait_ms: MINUTE - 4 });
});

test("meterElapsedMs: what has not begun has no time", () => {
  assert.equal(meterElapsedMs({ duration_ms: null, running: 0, began: "" }, BEGIN), null);
});
