// The files of a session, with what is known of their contents.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Files, lookOf } from "../console/files.js";
import { folded, logOf } from "./vectors.mjs";

const write = (file_path, content) => ({
  type: "tool.call",
  payload: { call_id: file_path, tool: "Write", args: { file_path, content } },
});
const artifact = (filename, more = {}) => ({
  type: "artifact.write",
  payload: { filename, path: `memory/${filename}`, is_new: true, size_bytes: 5 },
  ...more,
});
const listed = (...events) => folded(new Files(), logOf(events)).list;

test("a file has the text that a call wrote, the last one if it was written twice", () => {
  const [file] = listed(
    write("/office/memory/notes/a.html", "<b>"),
    artifact("notes/a.html"),
    write("/office/memory/notes/a.html", "<i>"),
    artifact("notes/a.html"),
  );
  assert.deepEqual([file.name, file.size, file.content], ["notes/a.html", 5, "<i>"]);
});

test("a file of which no call is in the log has no text", () => {
  const [file] = listed(write("/office/memory/other-a.html", "x"), artifact("a.html"));
  assert.equal(file.content, null);
});

test("a file of a provider leads to its blob, and to nothing else", () => {
  const one = (file_id, storage_location) => ({ file_id, filename: `${file_id}.pdf`, storage_location });
  const files = [one("f", "api/blobs/sess_1/abc"), one("g", "https://example.com/g")];
  const found = listed({ type: "assistant.files", payload: { files } });
  assert.deepEqual(
    found.map(({ name, address }) => [name, address]),
    [
      ["g.pdf", null],
      ["f.pdf", "api/blobs/sess_1/abc"],
    ],
  );
});

test("files of two channels with one path are two files, the last written first", () => {
  const found = listed(artifact("a.txt", { channel: "buyer" }), artifact("a.txt", { channel: "seller" }), {
    type: "tool.call",
    payload: { call_id: "c", tool: "t" },
  });
  assert.deepEqual(
    found.map(({ seq }) => seq),
    [1, 0],
  );
});

for (const [name, look] of [
  ["notes/ships.html", "text"],
  ["chart.PNG", "picture"],
  ["report.pdf", null],
  ["plain", null],
]) {
  test(`lookOf: ${name} is shown as ${look}`, () => assert.equal(lookOf(name), look));
}
