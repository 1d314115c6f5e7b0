// SharedList: it reads as an array does, and a copy leaves the list that it was made of as it was.

import assert from "node:assert/strict";
import { test } from "node:test";

import { SharedList } from "../console/store/shared-list.js";

const LENGTHS = [0, 1, 31, 32, 33, 64, 100];

function listOf(length) {
  const list = new SharedList();
  for (let item = 0; item < length; item += 1) list.push(item);
  return list;
}

for (const length of LENGTHS) {
  test(`${length} items are read as from an array`, () => {
    const list = listOf(length);
    const items = Array.from({ length }, (_, item) => item);
    assert.equal(list.length, length);
    assert.deepEqual([...list], items);
    assert.deepEqual(list.slice(30), items.slice(30));
    for (const index of [0, 5, 32, -1, -40, length]) assert.equal(list.at(index), items.at(index), `at ${index}`);
    assert.deepEqual(
      list.map((item) => item * 2),
      items.map((item) => item * 2),
    );
    for (const matches of [(item) => item > 20, (item) => item % 32 === 0, () => false]) {
      assert.equal(list.findIndex(matches), items.findIndex(matches));
      assert.equal(list.findLast(matches), items.findLast(matches));
      assert.equal(list.some(matches), items.some(matches));
    }
  });

  test(`a copy of ${length} items changes alone`, () => {
    const list = listOf(length);
    const before = [...list];
    for (const kept of [0, 1, 32, 33, length].filter((count) => count <= length)) {
      const copy = list.copy();
      copy.truncate(kept);
      if (kept > 0) copy.set(kept - 1, "set");
      for (let item = 0; item < 40; item += 1) copy.push(`new ${item}`);
      const added = Array.from({ length: 40 }, (_, item) => `new ${item}`);
      const expected = [...before.slice(0, Math.max(0, kept - 1)), ...(kept > 0 ? ["set"] : []), ...added];
      assert.deepEqual([...copy], expected);
      assert.deepEqual([...list], before);
    }
  });
}
