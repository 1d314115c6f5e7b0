// The package says what it holds: every export has its file, and the types name what the modules export.

import assert from "node:assert/strict";
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { posix } from "node:path";
import { test } from "node:test";

const CLIENT = new URL("../client/", import.meta.url);
const read = (name) => readFileSync(new URL(name, CLIENT), "utf-8");
const PACKAGE = JSON.parse(read("package.json"));
const FILES = readdirSync(CLIENT, { recursive: true }).filter((name) => name.endsWith(".js"));
const TYPED = FILES.filter((name) => existsSync(new URL(name.replace(".js", ".d.ts"), CLIENT)));

const MEMBER = /^ {2}(?:readonly )?(?!constructor\b)(\w+)[<(:]/gm;
const DECLARED = /^export declare (?:class|const|function) (\w+)/gm;
const PASSED_ON = /^export \* from "([^"]+)"/gm;
const ARGUMENTS = { HttpError: ["no", 400], Client: [{ url: "http://127.0.0.1/" }] };

const names = (text, pattern) => new Set(Array.from(text.matchAll(pattern), (match) => match[1]));

/** The path in the package that a file's import names. */
const resolved = (name, other) => posix.join(posix.dirname(name), other);

/** The names that a file of types declares, or passes on. */
function declared(name) {
  const text = read(name);
  const others = [...names(text, PASSED_ON)].map((other) => resolved(name, other).replace(/\.js$/, ".d.ts"));
  return new Set([...names(text, DECLARED), ...others.flatMap((other) => [...declared(other)])]);
}

test("every export has its code and its types", () => {
  for (const target of Object.values(PACKAGE.exports).filter((one) => typeof one === "object")) {
    assert(TYPED.includes(target.default.replace("./", "")), target.default);
    assert.equal(target.types, target.default.replace(/\.js$/, ".d.ts"));
  }
  assert.deepEqual(PACKAGE.files, ["**/*.js", "**/*.d.ts"]);
});

test("nothing is needed beside it", () => {
  assert.equal(PACKAGE.dependencies ?? PACKAGE.devDependencies ?? PACKAGE.peerDependencies, undefined);
  for (const name of FILES) {
    assert.doesNotMatch(read(name), /\bimport\(|\brequire\(/);
    for (const other of names(read(name), / from "([^"]+)"/g)) {
      assert(FILES.includes(resolved(name, other)), `${name} needs ${other}`);
    }
  }
});

test("no file is long", () => {
  for (const name of FILES) assert(read(name).split("\n").length < 500, name);
});

for (const name of TYPED) {
  const types = name.replace(".js", ".d.ts");

  test(`the types of ${name} name its exports`, async () => {
    const exported = Object.keys(await import(new URL(name, CLIENT)));
    assert.deepEqual(new Set(exported), declared(types));
  });

  test(`the members that the types of ${name} declare are there`, async () => {
    const module = await import(new URL(name, CLIENT));
    const classes = /^export declare class (\w+)[^{\n]*\{\n(.*?)^\}/gms;
    for (const [, kind, body] of read(types).matchAll(classes)) {
      const made = new module[kind](...(ARGUMENTS[kind] ?? []));
      for (const member of names(body, MEMBER)) assert(member in made, `${kind}.${member}`);
    }
  });
}

test("types.ts uses every export and every member that the types declare", () => {
  const used = readFileSync(new URL("types.ts", import.meta.url), "utf-8");
  const exported = Object.values(PACKAGE.exports).flatMap((target) =>
    target.types ? [...declared(target.types)] : [],
  );
  const members = [...names(read("api/client.d.ts"), /^ {2}(?!constructor\b)(\w+)[<(]/gm)];
  const missing = [...exported, ...members].filter((name) => !new RegExp(`\\b${name}\\b`).test(used));
  assert.deepEqual(missing.sort(), ["Agent", "BlockCitation"]); // which `Assembler` makes, and no page
});

test("it travels with the licence of the whole", () => {
  assert.equal(read("LICENSE"), read("../../LICENSE"));
});
