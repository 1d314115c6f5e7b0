// The JavaScript decoder for Server-Sent Events on the vectors it shares with Python, whole and in every cut.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { BadInput, Decoder, MAX_MESSAGE_BYTES } from "../client/transport/sse.js";

const VECTORS = JSON.parse(readFileSync(new URL("../../tests/vectors/wire/sse.json", import.meta.url), "utf-8"));
const encode = (text) => new TextEncoder().encode(text);
const bytesOf = ({ hex, input }) => (hex === undefined ? encode(input) : Uint8Array.from(Buffer.from(hex, "hex")));

function expected(vector) {
  const messages = vector.messages.map(({ data, event = "message", id = "", retry_ms = null }) => ({
    data,
    event,
    id,
    retryMs: retry_ms,
  }));
  const lastId = vector.last_id ?? messages.at(-1)?.id ?? "";
  return { messages, lastId, retryMs: vector.retry_ms ?? null, refused: false };
}

function decode(pieces, limitBytes = MAX_MESSAGE_BYTES) {
  const decoder = new Decoder(limitBytes);
  const messages = [];
  let refused = false;
  try {
    for (const piece of pieces) messages.push(...decoder.feed(piece));
    decoder.flush();
  } catch (error) {
    assert(error instanceof BadInput);
    refused = true;
  }
  return { messages, lastId: decoder.lastId, retryMs: decoder.retryMs, refused };
}

const singles = (stream) => Array.from(stream, (_, at) => stream.subarray(at, at + 1));
const cuts = (stream) =>
  [...stream.keys(), stream.length].map((at) => [stream.subarray(0, at), new Uint8Array(), stream.subarray(at)]);

for (const vector of VECTORS.decode) {
  test(`whole, byte by byte and in every cut: ${vector.name}`, () => {
    const stream = bytesOf(vector);
    for (const pieces of [[stream], singles(stream), ...cuts(stream)]) {
      assert.deepEqual(decode(pieces), expected(vector));
    }
  });
}

for (const [name, stream, refused] of [
  ["data of the limit", `data: ${"x".repeat(14)}\n\n`, false],
  ["data over the limit", `data: ${"x".repeat(15)}\n\n`, true],
  ["an endless comment", `:${"x".repeat(40)}`, true],
  ["many comments", ": ping\n".repeat(40), false],
  ["many empty data lines", "data\n".repeat(40), true],
  ["data lines that just fit", `${"data:x\n".repeat(8)}\n`, false],
  ["data lines and a long last line", `${"data:x\n".repeat(8)}:123456\n\n`, true],
  ["characters count as their bytes", `data:${"é".repeat(7)}\n:1234\n\n`, false],
  ["characters too many as bytes", `data:${"é".repeat(7)}\n:12345\n\n`, true],
  ["a byte order mark is no data", `\ufeffdata:${"x".repeat(7)}\n:${"1".repeat(11)}\n\n`, false],
  ["a byte order mark counts", `\ufeff${"x".repeat(17)}`, false],
  ["a byte order mark too many", `\ufeff${"x".repeat(18)}`, true],
]) {
  test(`bounds hold in every cut: ${name}`, () => {
    const bytes = encode(stream);
    const whole = decode([bytes], 20);
    assert.equal(whole.refused, refused);
    for (const pieces of [singles(bytes), ...cuts(bytes)]) assert.deepEqual(decode(pieces, 20), whole);
  });
}

test("messages before a refused one are handed out, and a refusal is final", () => {
  const decoder = new Decoder(20);
  assert.equal(decoder.feed(encode(`data: 1\n\ndata: ${"x".repeat(40)}\n\ndata: after\n\n`)).length, 1);
  const refusal = { name: "BadInput", message: "expected an SSE message of at most 20 bytes, got more (at stream)" };
  assert.throws(() => decoder.feed(encode("\n")), refusal);
  assert.throws(() => decoder.flush(), refusal);
});

test("a message is out with its last byte", () => {
  const decoder = new Decoder();
  assert.deepEqual(decoder.feed(encode("data: a\r\n")), []);
  assert.equal(decoder.feed(encode("\r"))[0].data, "a");
  assert.deepEqual(decoder.feed(encode("\n")), []);
  assert.equal(decoder.feed(encode("data: b\n\n"))[0].data, "b");
});

test("flush begins a new stream after the last id", () => {
  const decoder = new Decoder();
  decoder.feed(encode("id: 4\ndata: a\n\nid: 5\nevent: lost\nretry: 9\ndata: lost\r"));
  assert.deepEqual(decoder.flush(), []);
  assert.equal(decoder.lastId, "4");
  const [message] = decoder.feed(encode("\ufeffdata: b\n\n"));
  assert.deepEqual(message, { data: "b", event: "message", id: "4", retryMs: null });
});

test("a waiting time has at most 15 digits", () => {
  const { retryMs } = decode([encode(`retry: ${"9".repeat(15)}\nretry: ${"9".repeat(16)}\n\n`)]);
  assert.equal(retryMs, 999_999_999_999_999);
});

test("the caller may use its buffer again", () => {
  const decoder = new Decoder();
  const buffer = encode("data: on");
  decoder.feed(buffer);
  buffer.fill(0);
  assert.equal(decoder.feed(encode("e\n\n"))[0].data, "one");
});

test("a large message in small pieces", () => {
  const decoder = new Decoder();
  const piece = encode("x".repeat(32));
  decoder.feed(encode("data: "));
  for (let at = 0; at < 1 << 17; at += 1) decoder.feed(piece);
  assert.equal(decoder.feed(encode("\n\n"))[0].data.length, 1 << 22);
});
