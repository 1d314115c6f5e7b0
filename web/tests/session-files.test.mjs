// The files of a session, with what is known of their contents.

import assert from "node:assert/strict";
import { test } from "node:test";

import { SessionFiles, previewKind } from "../console/store/session-files.js";
import { folded, logOf } from "./vectors.mjs";

const call = (call_id, tool, args) => ({ type: "tool.call", payload: { call_id, tool, args } });
const result = (call_id, ok = true) => ({ type: "tool.result", payload: { call_id, ok } });
const write = (file_path, content) => call(file_path, "Write", { file_path, content });
const artifact = (filename, more = {}) => ({
  type: "artifact.write",
  payload: { filename, path: `memory/${filename}`, is_new: true, size_bytes: 5 },
  ...more,
});
const listed = (...events) => folded(new SessionFiles(), logOf(events)).list;

test("a file has the text that a call wrote, the last one if it was written twice", () => {
  const [file] = listed(
    write("a", "<b>"),
    result("a"),
    artifact("notes/a.html"),
    write("b", "<i>"),
    result("b"),
    artifact("notes/a.html"),
  );
  assert.deepEqual([file.name, file.size, file.content], ["notes/a.html", 5, "<i>"]);
});

test("files of calls that run at once have the text of the call whose result they follow", () => {
  const order = [
    write("a", "<b>"),
    write("b", "<i>"),
    result("b"),
    artifact("b.html"),
    result("a"),
    artifact("a.html"),
  ];
  const texts = listed(...order).map(({ name, content }) => [name, content]);
  assert.deepEqual(texts, [
    ["a.html", "<b>"],
    ["b.html", "<i>"],
  ]);
});

test("a file of which no call wrote the text has none", () => {
  const moved = call("b", "move", { from: "x.html", to: "a.html" });
  for (const before of [[], [write("a", "x")], [write("a", "x"), result("a", false)], [moved, result("b")]]) {
    const [file] = listed(...before, artifact("a.html"));
    assert.equal(file.content, null);
  }
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
  test(`previewKind: ${name} is shown as ${look}`, () => assert.equal(previewKind(name), look));
}
