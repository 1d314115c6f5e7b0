// Names in web/client, web/console and web/react: an exported name is defined once, says more than a participle, and
// shadows nothing of the platform; the console's store needs no browser.

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";

const WEB = new URL("../", import.meta.url);
const DEFINED = /^export (?:declare )?(?:async )?(?:class|const|function\*?|interface|let|type) (\w+)/gm;
const PARTICIPLES = new Set(
  `alone answered asked begun chosen cited clean done drawn edited ended found gave given gone heard held joined kept
  known lasted lexed made moved named narrated opened parted placed plain quoted read remembered rendered rounded said
  seen sent settled shown spent spoken standing styled taken told typed visible voided waited wanted worn written wrong`
    .split(/\s+/)
    .map((word) => word.toLowerCase()),
);
// The words of HTTP for 403 and 410.
const HTTP_NAMES = new Set(["Forbidden", "Gone"]);
// What a browser or TypeScript has, and Node.js may not.
const BROWSER_NAMES = `Attr Cache Client Comment Console Document Element File History HTMLElement Image Lock Location
  Navigator Node Option Partial Pick Range Record Screen Selection Storage Text Touch Window Worker`.split(/\s+/);
// `Client` is the name of every API client, and a page has no other one: it is global in service workers only.
const ALLOWED = new Set(["Client"]);
const PLATFORM = new Set([...BROWSER_NAMES, ...Object.getOwnPropertyNames(globalThis)]);

const read = (path) => readFileSync(new URL(path, WEB), "utf-8");
const files = (folder, ending) =>
  readdirSync(new URL(folder, WEB), { recursive: true })
    .filter((name) => name.endsWith(ending) && !/^(?:dist|node_modules)\b/.test(name))
    .map((name) => `${folder}/${name}`);

/** Return [name, path] of every exported definition in the files of a folder. */
const definitions = (folder, ending) =>
  files(folder, ending).flatMap((path) => Array.from(read(path).matchAll(DEFINED), ([, name]) => [name, path]));

/** Return the names that several files define; overloads in one file are one definition. */
function findRepeated(defined) {
  const paths = new Map();
  for (const [name, path] of defined) paths.set(name, (paths.get(name) ?? new Set()).add(path));
  return [...paths].filter(([, found]) => found.size > 1).map(([name]) => name);
}

const isParticiple = (name) => PARTICIPLES.has(name.toLowerCase()) && !HTTP_NAMES.has(name);
const isShadow = (name) => PLATFORM.has(name) && !ALLOWED.has(name);

for (const [folder, ending] of [
  ["client", ".ts"],
  ["console", ".js"],
  ["react", ".ts"],
]) {
  const defined = definitions(folder, ending);
  const names = defined.map(([name]) => name);

  test(`${folder} ${ending}: an exported name is defined once`, () => {
    assert(defined.length > 20);
    assert.deepEqual(findRepeated(defined), []);
  });

  test(`${folder} ${ending}: no exported name is a bare participle`, () => {
    assert.deepEqual(names.filter(isParticiple), []);
  });

  test(`${folder} ${ending}: no exported name shadows the platform`, () => {
    assert.deepEqual(names.filter(isShadow), []);
  });
}

test("control: names that break a rule are found", () => {
  const defined = [...("export class Element {}\nexport const told = 1;".matchAll(DEFINED) ?? [])].map(
    ([, name]) => name,
  );
  assert.deepEqual(defined, ["Element", "told"]);
  assert.deepEqual(defined.filter(isShadow), ["Element"]);
  assert.deepEqual(defined.filter(isParticiple), ["told"]);
  assert.deepEqual(["Event", "Text", "Record", "URL", "Worker"].filter(isShadow).length, 5);
  assert.deepEqual(
    findRepeated([
      ["one", "a"],
      ["two", "a"],
      ["one", "b"],
    ]),
    ["one"],
  );
});

test("the store of the console imports neither Lit nor an element", () => {
  for (const path of files("console/store", ".js")) {
    for (const [, source] of read(path).matchAll(/ from "([^"]+)"/g)) {
      assert.match(
        source,
        /^(?:\.\/|\.\.\/\.\.\/client\/|\.\.\/markdown\/url-policy\.js)/,
        `${path} imports ${source}`,
      );
    }
  }
});

/** The entry points of `@turnlog/client` (`exports` of its package.json), in its sources. */
const PUBLIC_MODULES = new Set(
  Object.values(JSON.parse(read("client/package.json")).exports)
    .filter((entry) => typeof entry === "object")
    .map(({ default: path }) => path.replace("./dist/", "client/")),
);

/** The imports of the console from the client: `{ path, names, module }`. */
const clientImports = files("console", ".js").flatMap((path) =>
  [...read(path).matchAll(/import (?:\{([^}]*)\} from )?"(?:\.\.\/)+(client\/[^"]+)"/g)].map(
    ([, names = "", module]) => ({
      path,
      names: names
        .split(",")
        .map((name) => name.trim().split(" as ")[0])
        .filter(Boolean),
      module,
    }),
  ),
);

/** Import modules of the sources, and return what they export, as one object. */
async function exportsOf(modules) {
  const loaded = await Promise.all([...modules].map((module) => import(`../${module}`)));
  return Object.assign({}, ...loaded);
}

// By name and not by module: an import of the whole entry would put every module of the client into the first load.
test("the console uses nothing of the client that is not public", async () => {
  const published = await exportsOf(PUBLIC_MODULES);
  assert.ok(clientImports.length > 0);
  for (const { path, names, module } of clientImports) {
    assert.ok(names.length > 0, `${path} imports ${module} without names`);
    const exported = await exportsOf([module]);
    for (const name of names) {
      assert.ok(name in published && published[name] === exported[name], `${path} imports ${name} of ${module}`);
    }
  }
});

test("every import of the console from the client is found", () => {
  const mentions = files("console", ".js").flatMap((path) => [...read(path).matchAll(/"(?:\.\.\/)+client\/[^"]+"/g)]);
  assert.equal(clientImports.length, mentions.length);
});
