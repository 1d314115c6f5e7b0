// What the open calls of an agent wait for: the page, an approval, nothing after a retraction.

import assert from "node:assert/strict";
import { test } from "node:test";

import { listPending } from "../client/folds/pending.js";
import { Tree } from "../client/folds/tree.js";
import { folded, logOf } from "./vectors.mjs";

const of = (type, payload) => ({ type, agent_id: "agt_1", trace_id: "tr_1", depth: 0, payload });
const START = of("agent.start", { name: "Guide", via: "prompt" });
const CALL = of("tool.call", { call_id: "c1", tool: "shred", args: {}, block_id: "b1", executor: "frontend" });
const REQUEST = of("approval.request", { call_id: "c1", tool: "shred", args: {}, args_hash: "h" });
const decision = (word) => of("approval.decision", { call_id: "c1", args_hash: "h", decision: word });

/** What the call of a log waits for, and whether its agent can only wait. */
function callAfter(...events) {
  const tree = folded(new Tree(), logOf([START, CALL, ...events]));
  const [call] = listPending(tree).calls;
  return [call?.waits_for, tree.isWaiting("agt_1")];
}

test("Tree after tool.await has a call that waits for the page", () => {
  const awaited = of("tool.await", { calls: [{ call_id: "c1", tool: "shred", args: {} }] });
  assert.deepEqual(callAfter(awaited), ["page", true]);
  assert.deepEqual(callAfter(of("tool.await", { calls: [{ call_id: "c9" }] })).at(1), false, "an unknown call");
});

test("Tree after approval.request has a call that waits for an approval, until it is decided", () => {
  assert.deepEqual(callAfter(REQUEST), ["approval", true]);
  assert.equal(callAfter(REQUEST, decision("approve")).at(1), false);
  assert.equal(callAfter(REQUEST, decision("deny")).at(1), false);
});

test("Tree refuses a call that was denied, and only that", () => {
  const refusedAfter = (word) =>
    folded(new Tree(), logOf([START, CALL, REQUEST, decision(word)]))
      .open.get("agt_1")
      .calls.get("c1").isDenied;
  assert.deepEqual([refusedAfter("approve"), refusedAfter("deny")], [false, true]);
});

test("Tree ignores approvals of calls that are not open", () => {
  const tree = folded(new Tree(), logOf([START, REQUEST, decision("deny")]));
  assert.deepEqual(listPending(tree).calls, []);
});

test("Tree after block.retract has no call of that block", () => {
  assert.deepEqual(callAfter(of("block.retract", { block_ids: ["b1"] })), [undefined, false]);
  assert.notDeepEqual(callAfter(of("block.retract", { block_ids: ["b2"] })), [undefined, false]);
});

test("Tree without the agent of a retraction stays as it is", () => {
  const tree = folded(new Tree(), logOf([of("block.retract", { block_ids: ["b1"] })]));
  assert.equal(tree.open.size, 0);
});
