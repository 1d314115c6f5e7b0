// LayeredMap: it behaves as a Map, and a copy does not change with its source.

import assert from "node:assert/strict";
import { test } from "node:test";

import { LayeredMap } from "../client/shared/layered-map.js";

/** Set many keys, each one twice, in a map that is copied before every change; return all copies. */
function growCopies(count) {
  const copies = [new LayeredMap()];
  for (let at = 0; at < count; at += 1) {
    copies.push(copies.at(-1).copy().set(`key ${at}`, at));
    copies.push(
      copies
        .at(-1)
        .copy()
        .set(`key ${at >> 1}`, -at),
    );
  }
  return copies;
}

/** What a Map has after the same changes. */
function expectedEntries(steps) {
  const map = new Map();
  for (let step = 0; step < steps; step += 1) {
    const at = step >> 1;
    if (step % 2 === 0) map.set(`key ${at}`, at);
    else map.set(`key ${at >> 1}`, -at);
  }
  return [...map];
}

test("every copy of a layered map has the entries of a Map, in its order", () => {
  growCopies(60).forEach((map, steps) => {
    const expected = expectedEntries(steps);
    assert.deepEqual([...map], expected);
    assert.deepEqual([...map.keys()], [...new Map(expected).keys()]);
    assert.deepEqual([...map.values()], [...new Map(expected).values()]);
    assert.equal(map.size, expected.length);
  });
});

test("get, has and forEach find old and new entries, and no others", () => {
  const map = growCopies(40).at(-1);
  assert.deepEqual([map.get("key 0"), map.get("key 39"), map.get("key 40")], [-1, 39, undefined]);
  assert.deepEqual([map.has("key 0"), map.has("key 39"), map.has("key 40")], [true, true, false]);
  const visited = [];
  map.forEach((value, key, source) => visited.push([key, value, source === map]));
  assert.deepEqual(
    visited,
    [...map].map(([key, value]) => [key, value, true]),
  );
});
