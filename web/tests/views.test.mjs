// Views and actions on them, on the vectors shared with Python: the same problems, the same paths.

import assert from "node:assert/strict";
import { test } from "node:test";

import { pythonRepr } from "../client/shared/python-text.js";
import { validateView } from "../client/views/schema.js";
import { readViewNode } from "../client/views/node-tree.js";
import { OpenViews, buildFault } from "../client/views/views.js";
import { folded, logOf, vectors } from "./vectors.mjs";

const ACTIONS = vectors("views/actions");
const TREES = { show: ACTIONS.view, "take away": {} };

const shows = (tree, view_id = "view_1") => ({
  type: "assistant.view",
  payload: { view: { kind: "a2ui.v1", view_id, tree } },
});
const happened = (what) => (typeof what === "string" ? shows(TREES[what]) : { type: "ui.action", payload: what });
const viewsAfter = (...events) => folded(new OpenViews(), logOf(events));
const click = (view_id = "view_1") => ({ view_id, action: { kind: "button.click", button_id: "go" } });
const GO = { type: "button", id: "go", label: "Go" };

for (const { name, before, action, problems } of ACTIONS.cases) {
  test(`action: ${name}`, () => {
    assert.deepEqual(viewsAfter(happened("show"), ...before.map(happened)).validateAction(action), problems);
  });
}

for (const { name, tree, flaw: expected } of vectors("views/trees").cases) {
  test(`tree: ${name}`, () => assert.equal(validateView(tree)?.path, expected?.path));
}

function nested(levels) {
  let tree = { type: "text", text: "deep" };
  for (let level = 1; level < levels; level += 1) tree = { type: "section", children: [tree] };
  return tree;
}

const many = (count) => ({ type: "section", children: Array(count - 1).fill({ type: "text", text: "" }) });

test("twenty levels and two thousand parts are enough", () => {
  assert.equal(validateView(nested(20)), null);
  assert.equal(validateView(nested(21)).path, `$${".children[0]".repeat(20)}`);
  assert.equal(validateView(nested(100_000)).path, "$");
  assert.equal(validateView(many(2000)), null);
  assert.equal(validateView(many(2001)).path, "$.children[1999]");
});

test("the oldest views close when there are too many parts", () => {
  const full = [0, 1, 2, 3, 4].map((number) => shows(many(2000), `view_${number}`));
  const views = viewsAfter(...full, shows(GO, "view_0"), shows(many(2000), "view_9"));
  assert.deepEqual(
    [...views.open.values()].map(({ view_id }) => view_id),
    ["view_2", "view_3", "view_4", "view_0", "view_9"],
  );
  assert.equal(views.validateAction(click("view_1"))[0].message, "view view_1 is not open in this session");
});

test("a view that cannot be understood changes nothing", () => {
  assert.deepEqual(viewsAfter(shows(GO), shows({ type: "html", html: "<b>" })).validateAction(click()), []);
});

test("an answer tells a bounded number of problems, each with a short path", () => {
  const values = Object.fromEntries(Array.from({ length: 101 }, (_, at) => [`a${at}${"x".repeat(1000)}`, 1]));
  const views = viewsAfter(shows({ type: "form", id: "f", fields: [] }));
  const problems = views.validateAction({ view_id: "view_1", action: { kind: "form.submit", form_id: "f", values } });
  assert.equal(problems.length, 100);
  assert(problems.every(({ path, message }) => path[1].length <= 128 && message.length < 120));
  const fault = buildFault(problems);
  assert.deepEqual([fault.code, fault.message], ["VALIDATION_ERROR", problems[0].message]);
  assert.equal(fault.details.problems.length, 100);
});

for (const [text, shown] of [
  ["it's", `"it's"`],
  [`it's "so"`, `'it\\'s "so"'`],
  ["a\n\\ \u2028\x07é💡", "'a\\n\\\\ \\u2028\\x07é💡'"],
  ["x".repeat(79), `'${"x".repeat(78)}…`],
]) {
  test(`${JSON.stringify(text).slice(0, 20)} is quoted as in Python`, () => assert.equal(pythonRepr(text), shown));
}

for (const [name, view, expected] of [
  ["a tree of nodes", { kind: "a2ui.v1", tree: { type: "text", text: "Hello" } }, "text"],
  ["a closed view", { kind: "a2ui.v1", tree: {} }, undefined],
  ["a tree that is not valid", { kind: "a2ui.v1", tree: { type: "script" } }, undefined],
  ["a view of another kind", { kind: "acme.chart", tree: { type: "text", text: "Hello" } }, undefined],
]) {
  test(`readViewNode: ${name}`, () => assert.equal(readViewNode(view)?.type, expected));
}
