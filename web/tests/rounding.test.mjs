// Sums of tokens and costs saturate as in Python.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Meters } from "../client/folds/meters.js";
import { addCosts, addCounts, addRecords } from "../client/shared/rounding.js";
import { folded, logOf } from "./vectors.mjs";

const MOST = Number.MAX_SAFE_INTEGER;

test("counts saturate at what every reader holds exactly", () => {
  assert.equal(addCounts(MOST, 1), MOST);
  assert.equal(addCounts(1, 2, 3), 6);
  assert.equal(addCounts(), 0);
});

test("costs saturate at the largest double, and are rounded to millionths", () => {
  assert.equal(addCosts(1e308, 1e308), Number.MAX_VALUE);
  assert.equal(addCosts(0.1, 0.2), 0.3);
});

test("records of numbers are added with the sum that is given", () => {
  const cost = { total_cost: 1e308, currency: "USD" };
  assert.deepEqual(addRecords(cost, cost, addCosts), { total_cost: Number.MAX_VALUE, currency: "USD" });
  assert.deepEqual(addRecords(null, cost, addCosts), cost);
});

test("meters with the largest sums saturate", () => {
  const usage = { model: "m", usage: { input_tokens: MOST, output_tokens: MOST }, cost: { total_cost: 1e308 } };
  const of = (type, payload) => ({ type, trace_id: "tr_1", agent_id: "agt_1", payload });
  const log = logOf([
    of("agent.start", { name: "A", via: "prompt" }),
    of("agent.usage", usage),
    of("agent.usage", usage),
  ]);
  const meters = folded(new Meters(), log);
  for (const { session } of [meters.report(), meters.visibleTo([]).report()]) {
    assert.deepEqual([session.input_tokens, session.cost_usd], [MOST, Number.MAX_VALUE]);
  }
});
