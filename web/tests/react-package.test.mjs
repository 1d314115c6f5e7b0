// The package @turnlog/react: what it exports and what it needs.

import assert from "node:assert/strict";
import { existsSync, readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";

const REACT = new URL("../react/", import.meta.url);
const read = (name) => readFileSync(new URL(name, REACT), "utf-8");
const PACKAGE = JSON.parse(read("package.json"));
const SOURCES = readdirSync(REACT, { recursive: true }).filter((name) => /^(?!dist|node_modules).*\.ts$/.test(name));
const IMPORT = / from "([^"]+)"/g;

test("every export has its source", () => {
  for (const target of Object.values(PACKAGE.exports).filter((one) => typeof one === "object")) {
    assert.equal(target.types, target.default.replace(/\.js$/, ".d.ts"));
    assert(existsSync(new URL(target.default.replace(/^\.\/dist\/(.*)\.js$/, "$1.ts"), REACT)), target.default);
  }
});

test("what it imports is a peer, and assistant-ui is needed for its runtime alone", () => {
  assert.equal(PACKAGE.dependencies, undefined);
  const packages = SOURCES.flatMap((name) =>
    Array.from(read(name).matchAll(IMPORT), ([, other]) => [other, name.startsWith("assistant-ui/")]),
  ).filter(([other]) => !other.startsWith("."));
  assert.deepEqual(new Set(packages.map(([other]) => other)), new Set(Object.keys(PACKAGE.peerDependencies)));
  for (const [other, isRuntime] of packages) assert(isRuntime || other !== "@assistant-ui/react");
  assert.deepEqual(PACKAGE.peerDependenciesMeta, { "@assistant-ui/react": { optional: true } });
});

test("it needs the client of its own version, and has the licence of the whole", () => {
  const client = JSON.parse(read("../client/package.json"));
  assert.equal(PACKAGE.version, client.version);
  assert.equal(PACKAGE.peerDependencies["@turnlog/client"], `^${client.version}`);
  assert.equal(read("LICENSE"), read("../../LICENSE"));
});
