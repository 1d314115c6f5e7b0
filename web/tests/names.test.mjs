// Display names of members, on the vectors shared with Python.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Names } from "../client/folds/names.js";
import { folded, logOf, vectors } from "./vectors.mjs";

for (const { name, events, names } of vectors("state/names").cases) {
  test(`names: ${name}`, () => {
    const fold = folded(new Names(), logOf(events));
    assert.deepEqual([...fold.names], Object.entries(names));
    for (const [principal, said] of Object.entries(names)) assert.equal(fold.displayName(principal), said);
  });
}

test("names: a principal without one is called by itself", () => {
  assert.equal(new Names().displayName("guest_1"), "guest_1");
});
