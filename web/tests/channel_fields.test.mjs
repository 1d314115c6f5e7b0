// Only messages name a channel in their payload; in other events `channel` is a field like any other.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Transcript } from "../client/folds/transcript.js";
import { folded, logOf } from "./vectors.mjs";

const seen = (entry) => folded(new Transcript(() => true), logOf([entry])).visibleTo([]).length;

test("an event of the application with a field channel is for everybody", () => {
  assert.equal(seen({ type: "shop.pick_contact", origin: "ui", payload: { channel: "email" } }), 1);
});

test("a message that names its channel is for that channel", () => {
  assert.equal(seen({ type: "ui.message", origin: "ui", payload: { text: "hi", channel: "buyer" } }), 0);
});
