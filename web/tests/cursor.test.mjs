// Cursors, with the vectors that Python reads too.

import assert from "node:assert/strict";
import { test } from "node:test";

import {
  Cursors,
  covers,
  formatCursor,
  isAhead,
  isUnseen,
  parseCursor,
  startPosition,
} from "../client/transport/cursor.js";
import { vectors } from "./vectors.mjs";

const { cursors, refused } = vectors("wire/cursors");

for (const { text, epoch, seq, chunk } of cursors) {
  test(`parseCursor ${text} reads every part, and formatCursor writes it back`, () => {
    const place = parseCursor(text);
    assert.deepEqual(place, { epoch, seq: BigInt(seq), chunk: chunk ?? Infinity });
    assert.equal(formatCursor(place), text);
  });
}

for (const text of refused) {
  test(`parseCursor ${text} is null`, () => assert.equal(parseCursor(text), null));
}

test("parseCursor an empty text is the start", () => assert.deepEqual(parseCursor(""), parseCursor("-1")));

test("isAhead tells neighbours apart that are above 2^53", () => {
  const [one, next] = ["9007199254740992:k1", "9007199254740993:k1"].map(parseCursor);
  assert.deepEqual([isAhead(next, one), isAhead(one, next), isAhead(one, one)], [true, false, false]);
});

test("isNews of a chunk, its event and another epoch", () => {
  const news = (text, reader) => isUnseen(parseCursor(text), parseCursor(reader));
  assert.deepEqual([news("1.0:k1", "0:k1"), news("1:k1", "1.0:k1"), news("1.0:k1", "1:k1")], [true, true, false]);
  assert.deepEqual([news("0:k2", "5:k1"), news("0:k2", "-1")], [true, true]);
});

test("covers nothing before the start, and everything up to the reader's place", () => {
  const has = (reader, text) => covers(parseCursor(reader), parseCursor(text));
  assert.deepEqual(
    [has("5:k1", "-1"), has("5:k1", "5:k1"), has("5:k1", "6:k1"), has("9:k2", "5:k1")],
    [true, true, false, false],
  );
});

test("Cursors moved by an id report what moved, and only that", () => {
  const places = new Cursors(["a", "b"], "4:k1,7:q");
  assert.deepEqual(places.move("5:k1,7:q"), [{ session: "a", before: parseCursor("4:k1"), at: parseCursor("5:k1") }]);
  assert.deepEqual(places.move("5:k1"), [], "one cursor for two sessions");
  assert.deepEqual(places.move("x,6:q"), [], "no cursor, and one that was passed");
  assert.deepEqual(new Cursors(["a"], "4:k1").move(""), [], "a message before the first id of its stream");
  places.set("b", startPosition({ epoch: "r" }));
  assert.equal(places.text, "5:k1,-1:r");
});

test("Cursors after end are unknown until the first id, which is always unseen", () => {
  const places = new Cursors(["a", "b"], "end");
  assert.equal(places.text, "end,end");
  const [moved] = places.move("3:k1,-1:q");
  assert.deepEqual([moved.session, formatCursor(moved.before), formatCursor(moved.at)], ["a", "end", "3:k1"]);
  assert.equal(places.text, "3:k1,-1:q");
  assert.equal(new Cursors(["a", "b"], "end,4:q").text, "end,4:q");
});

test("covers is false from and to an end whose place is not known", () => {
  const [end, start, some] = ["end", "-1", "5:k1"].map((text) => new Cursors(["a"], text).at("a"));
  assert.deepEqual([covers(end, start), covers(end, end), covers(end, some), covers(some, end)], Array(4).fill(false));
});

test("parseInt of a cursor is its seq", () => {
  assert.deepEqual(
    ["18:57c58c72", "18.3:57c58c72", "18"].map((text) => parseInt(text, 10)),
    [18, 18, 18],
  );
});
