// The package says what it holds: it is packed as npm packs it, imports without a document, and needs nothing beside it.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { cpSync, mkdtempSync, readFileSync, readdirSync, rmSync } from "node:fs";
import { join, posix } from "node:path";
import { test } from "node:test";
import { fileURLToPath, pathToFileURL } from "node:url";

const CLIENT = new URL("../client/", import.meta.url);
const read = (name) => readFileSync(new URL(name, CLIENT), "utf-8");
const PACKAGE = JSON.parse(read("package.json"));
const SOURCES = readdirSync(CLIENT, { recursive: true }).filter(
  (name) => /\.(?:js|ts)$/.test(name) && !/^(?:dist|node_modules)\b/.test(name),
);
const SCRIPTS = SOURCES.filter((name) => !name.endsWith(".d.ts"));
const TARGETS = Object.values(PACKAGE.exports).filter((target) => typeof target === "object");

const names = (text, pattern) => new Set(Array.from(text.matchAll(pattern), (match) => match[1]));

/** The path in the package that a file's import names. */
const resolved = (name, other) => posix.join(posix.dirname(name), other);
const isSource = (name) => SOURCES.includes(name) || SOURCES.includes(name.replace(/\.js$/, ".ts"));

test("every source exists once: as TypeScript, or as a script with its types", () => {
  const stems = SCRIPTS.map((name) => name.replace(/\.(?:js|ts)$/, ""));
  assert.equal(new Set(stems).size, stems.length);
});

test("nothing is needed beside it", () => {
  assert.equal(PACKAGE.dependencies ?? PACKAGE.devDependencies ?? PACKAGE.peerDependencies, undefined);
  for (const name of SCRIPTS) {
    assert.doesNotMatch(read(name), /\bimport\(|\brequire\(/);
    for (const other of names(read(name), / from "([^"]+)"/g)) {
      assert(isSource(resolved(name, other)), `${name} needs ${other}`);
    }
  }
});

test("no file is long", () => {
  const generated = new Set(["events.ts"]);
  for (const name of SOURCES) assert(generated.has(name) || read(name).split("\n").length < 500, name);
});

test("npm packs compiled modules with types, and they import without a document", async (t) => {
  // a copy: other tests read the compiled package meanwhile; beside the compiler, which it needs
  const folder = mkdtempSync(fileURLToPath(new URL("../node_modules/.turnlog-client-", import.meta.url)));
  const copy = join(folder, "copy");
  cpSync(CLIENT, copy, { recursive: true, filter: (path) => !/[/\\](?:dist|node_modules)$/.test(path) });
  t.after(() => rmSync(folder, { recursive: true }));
  const npm = process.env.npm_execpath ? [process.execPath, process.env.npm_execpath] : ["npm"];
  const [program, ...first] = npm;
  // npm inside `npm run` may leave `prepack` out
  execFileSync(process.execPath, ["build.mjs", "--types"], { cwd: copy, stdio: ["ignore", "ignore", "inherit"] });
  execFileSync(program, [...first, "pack", "--ignore-scripts", "--silent", "--pack-destination", folder], {
    cwd: copy,
    stdio: ["ignore", "ignore", "inherit"],
  });
  const archive = readdirSync(folder).find((name) => name.endsWith(".tgz"));
  execFileSync("tar", ["-xzf", join(folder, archive), "-C", folder]);
  const packed = join(folder, "package");
  const files = readdirSync(packed, { recursive: true });
  for (const { types, default: script } of TARGETS) {
    for (const path of [types, script]) assert(files.includes(path.replace("./", "")), path);
    await import(pathToFileURL(join(packed, script)));
  }
  assert.deepEqual(
    files.filter((name) => /\.ts$/.test(name) && !/\.d\.ts$/.test(name)),
    [],
  );
  const { Client, SessionStore } = await import(pathToFileURL(join(packed, "dist/index.js")));
  const store = new SessionStore({ client: new Client(), session: "sess_1" });
  assert.deepEqual(store.getSnapshot().messages, []);
});

test("types.ts uses every value that the package exports", async () => {
  const used = readFileSync(new URL("types.ts", import.meta.url), "utf-8");
  const sources = TARGETS.map(({ default: script }) => script.replace("./dist/", "../client/"));
  const exported = (await Promise.all(sources.map((path) => import(path)))).flatMap((module) => Object.keys(module));
  const missing = exported.filter((name) => !new RegExp(`\\b${name}\\b`).test(used));
  assert.deepEqual(
    missing.sort(),
    ["Agent", "Block", "BlockCitation"].filter((name) => missing.includes(name)),
  ); // which `Assembler` makes, and no page
});

test("it travels with the licence of the whole", () => {
  assert.equal(read("LICENSE"), read("../../LICENSE"));
});
