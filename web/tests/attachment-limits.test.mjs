// Files are checked before they are uploaded, and what is wrong is said in plain words.

import assert from "node:assert/strict";
import { test } from "node:test";

import {
  fileKind,
  fileProblem,
  formatFileSize,
  kindNames,
  maxBytesOf,
  mediaTypeOf,
} from "../console/ui/attachment-limits.js";
import { LANGUAGES } from "../talk/texts.js";

const LIMITS = {
  media_types: ["application/pdf", "image/png", "text/markdown", "text/plain"],
  max_bytes: 8 * 1024 * 1024,
  max_image_bytes: 3 * 1024 * 1024,
  max_text_bytes: 256 * 1024,
  max_count: 10,
};
const problem = (file, language = "en") =>
  fileProblem({ name: "a.txt", type: "", size: 1, ...file }, LIMITS, LANGUAGES[language], language);

test("type of a file is the browser's, or else that of its ending", () => {
  assert.equal(mediaTypeOf({ name: "a.md", type: "" }), "text/markdown");
  assert.equal(mediaTypeOf({ name: "A.TXT", type: "text/plain;charset=utf-8" }), "text/plain");
  assert.equal(mediaTypeOf({ name: "picture", type: "" }), "");
  assert.deepEqual(["image/png", "application/pdf", "text/csv"].map(fileKind), ["image", "pdf", "text"]);
});

test("limit is that of the kind, and never above that of any file", () => {
  assert.equal(maxBytesOf("image/png", LIMITS), LIMITS.max_image_bytes);
  assert.equal(maxBytesOf("application/pdf", LIMITS), LIMITS.max_bytes);
  assert.equal(maxBytesOf("text/plain", { ...LIMITS, max_bytes: 10 }), 10);
});

test("problem names the file, the limit and what can be sent", () => {
  assert.equal(problem({}), null);
  assert.equal(problem({ size: LIMITS.max_text_bytes }), null);
  assert.equal(problem({ size: 0 }), "a.txt is empty.");
  assert.equal(
    problem({ size: LIMITS.max_text_bytes + 1 }),
    "a.txt is too large. Files of this kind may have up to 256 kB.",
  );
  assert.match(
    problem({ name: "a.exe", size: 1 }),
    /^a\.exe cannot be sent\. These files can: images, PDF, and text files\.$/,
  );
  assert.match(problem({ name: "a.exe" }, "de"), /Bilder, PDF und Textdateien/);
  assert.equal(kindNames({ media_types: ["image/png"] }, LANGUAGES.en, "en"), "images");
});

test("sizes are read by people and not rounded up", () => {
  const sizes = [0, 10, 1024, 2047, 3932160, 20 * 1024 * 1024].map((size) => formatFileSize(size, "en"));
  assert.deepEqual(sizes, ["0 B", "10 B", "1 kB", "1.9 kB", "3.7 MB", "20 MB"]);
  assert.equal(formatFileSize(3932160, "de"), "3,7 MB");
});
