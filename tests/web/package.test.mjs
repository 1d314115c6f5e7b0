// The package says what it holds: every export has its file, and the types name what the modules export.

import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { test } from "node:test";

const CLIENT = new URL("../../web/client/", import.meta.url);
const read = (name) => readFileSync(new URL(name, CLIENT), "utf-8");
const PACKAGE = JSON.parse(read("package.json"));
const MODULES = Object.values(PACKAGE.exports).filter((target) => typeof target === "object");

const MEMBER = /^ {2}(?:readonly )?(?!constructor\b)(\w+)[(:]/gm;

const names = (text, pattern) => new Set(Array.from(text.matchAll(pattern), (match) => match[1]));

test("every export and every file exists", () => {
  const files = [...PACKAGE.files, ...MODULES.flatMap(Object.values)];
  for (const name of files) assert(existsSync(new URL(name, CLIENT)), name);
});

test("nothing is needed beside it", () => {
  assert.equal(PACKAGE.dependencies ?? PACKAGE.devDependencies ?? PACKAGE.peerDependencies, undefined);
  for (const name of PACKAGE.files.filter((file) => file.endsWith(".js"))) {
    assert.doesNotMatch(read(name), /\bimport\(|\brequire\(/);
    for (const other of names(read(name), / from "([^"]+)"/g)) {
      assert(PACKAGE.files.includes(other.replace("./", "")), `${name} needs ${other}`);
    }
  }
});

for (const target of MODULES) {
  test(`the types of ${target.default} name its exports`, async () => {
    const exported = Object.keys(await import(new URL(target.default, CLIENT)));
    const declared = names(read(target.types), /^export declare (?:class|const|function) (\w+)/gm);
    assert.deepEqual(new Set(exported), declared);
  });

  test(`the members that the types of ${target.default} declare are there`, async () => {
    const module = await import(new URL(target.default, CLIENT));
    for (const [, name, body] of read(target.types).matchAll(/^export declare class (\w+)[^{]*\{(.*?)^\}/gms)) {
      const made = new module[name]();
      for (const member of names(body, MEMBER)) assert(member in made, `${name}.${member}`);
    }
  });
}
