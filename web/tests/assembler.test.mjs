// The assembler of the dialect `blocks`, on the vectors shared with Python.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { Assembler } from "../client/blocks/assembler.js";
import { Decoder } from "../client/transport/sse.js";

const read = (path) => JSON.parse(readFileSync(new URL(path, import.meta.url), "utf-8"));
const VECTORS = read("../../tests/vectors/wire/assemble.json").cases;
const DIALECT = read("../../tests/vectors/wire/blocks.json").cases;
const encode = (text) => new TextEncoder().encode(text);
const textOf = (message) => (typeof message === "string" ? message : JSON.stringify(message));

/** The messages of a case: [data, id]. */
function messagesOf(vector) {
  const { stream, feed } = vector;
  if (stream !== undefined) return new Decoder().feed(encode(stream)).map(({ data, id }) => [data, id]);
  return feed.map((item) => (Array.isArray(item) ? [textOf(item[1]), item[0]] : [textOf(item), ""]));
}

function assemble(messages) {
  const assembler = new Assembler();
  for (const [data, id] of messages) assembler.feed(data, id);
  assembler.flush();
  return assembler;
}

const plain = (value) => JSON.parse(JSON.stringify(value));

for (const vector of VECTORS) {
  test(`vector: ${vector.name}`, () => {
    const assembler = assemble(messagesOf(vector));
    assert.deepEqual(plain(assembler.asJson()), vector.expect);
    assert.equal(assembler.transcript(), vector.transcript.join("\n"));
  });

  test(`as bytes, read after every message: ${vector.name}`, () => {
    const assembler = new Assembler();
    for (const [data, id] of messagesOf(vector)) {
      assembler.feed(encode(data), id);
      assembler.asJson();
      assembler.transcript();
    }
    assembler.flush();
    assert.deepEqual(plain(assembler.asJson()), vector.expect);
  });
}

for (const { name, messages } of DIALECT) {
  test(`what the dialect says is read: ${name}`, () => {
    assert.equal(assemble(messages.map((message) => [textOf(message), ""])).dropped, 0);
  });
}

const said = (type, delta, final, extra = {}) => JSON.stringify({ type, agent: "a1", final, delta, ...extra });
const CALL = { id: "t1", name: "a" };

test("feed tells what changed", () => {
  const assembler = new Assembler();
  const [text] = assembler.feed(said("text", "Hel", false));
  assert.deepEqual([text.type, text.text, text.complete], ["text", "Hel", false]);
  assert.equal(assembler.feed(said("text", "lo", true))[0], text);
  assert.deepEqual([text.text, text.complete], ["Hello", true]);
  const [call] = assembler.feed(said("tool_call", "{}", true, CALL));
  assert.equal(assembler.feed(said("tool_result", "x", false, CALL))[0], call);
  assert.equal(call.results[0].call, call);
  assert.deepEqual(assembler.feed(said("meta_init", "{}", true)), []);
  assert.deepEqual(assembler.feed(said("rollback", '{"blocks":2}', true)), [call, text]);
  assert.deepEqual([text.void, call.void, assembler.blocks], [true, true, []]);
});

test("flush tells what is incomplete and ends it", () => {
  const assembler = new Assembler();
  const [text] = assembler.feed(said("text", "par", false));
  assert.deepEqual(assembler.flush(), [text]);
  const [other] = assembler.feed(said("text", "t", true));
  assert.deepEqual([text.text, text.complete, other.text, other.complete], ["par", false, "t", true]);
});

test("a citation in two chunks is not continued after flush", () => {
  const assembler = new Assembler();
  const [text] = assembler.feed(said("citation", "a", false, { index: 0 }));
  assembler.flush();
  assembler.feed(said("citation", "b", true, { index: 0 }));
  assert.deepEqual(
    text.citations.map((citation) => citation.cited_text),
    ["a", "b"],
  );
});

test("a reset tells what is void", () => {
  const assembler = new Assembler();
  const [text] = assembler.feed(said("text", "a", false), "1:k1");
  assert.deepEqual(assembler.feed('{"type":"reset"}', "1:k1"), [text]);
  assert.deepEqual([text.void, assembler.blocks, assembler.agents.size], [true, [], 0]);
});

test("what is too deep for any stack stays text", () => {
  const deep = "[".repeat(100_000) + "]".repeat(100_000);
  const [block] = new Assembler().feed(said("error", deep, true));
  assert.deepEqual([block.value, block.text], [undefined, deep]);
});

test("a long text in small pieces", () => {
  const assembler = new Assembler();
  for (let at = 0; at < 100_000; at += 1) assembler.feed(said("text", "0123456789", false));
  assert.equal(assembler.blocks[0].text.length, 1_000_000);
});

test("many citations, results and blocks are no arguments of one call", () => {
  const assembler = new Assembler();
  for (let at = 0; at < 150_000; at += 1) assembler.feed(said("citation", "", true));
  assert.equal(assembler.transcript().split("\n").length, 150_002);
});

test("many rollbacks leave nothing behind", () => {
  const assembler = new Assembler();
  for (let at = 0; at < 500; at += 1) {
    assembler.feed(said("text", "x", true));
    assembler.feed(said("tool_call", "{}", true, CALL));
    assembler.feed(said("tool_result", "x", false, CALL));
    assembler.feed(said("rollback", '{"blocks":2}', true));
  }
  const { order, modelBlocks, open, texts, calls } = assembler.agents.get("a1");
  assert.deepEqual([order, modelBlocks, open.size, texts, calls.get("t1")], [[], [], 0, [], []]);
});
