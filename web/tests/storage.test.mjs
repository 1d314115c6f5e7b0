// The guarded storages: a browser may refuse storage altogether, or have no room.

import assert from "node:assert/strict";
import { test } from "node:test";

import { PageStorage } from "../console/app/storage.js";

/** A Storage of the browser with room for a number of characters. */
class FakeStorage extends Map {
  constructor(room = Infinity) {
    super();
    this.room = room;
  }

  get length() {
    return this.size;
  }

  key(at) {
    return [...this.keys()][at];
  }

  getItem(key) {
    return this.get(key) ?? null;
  }

  setItem(key, text) {
    if (text.length > this.room) throw new Error("QuotaExceededError");
    this.set(key, text);
  }

  removeItem(key) {
    this.delete(key);
  }
}

const refuse = () => {
  throw new Error("SecurityError");
};

test("PageStorage reads what it wrote, also through another page", () => {
  const browser = new FakeStorage();
  new PageStorage(() => browser).write("a", "1");
  const storage = new PageStorage(() => browser);
  assert.deepEqual([storage.read("a"), storage.read("b")], ["1", null]);
  storage.remove("a");
  assert.equal(storage.read("a"), null);
});

test("PageStorage that the browser refuses holds its values in memory", () => {
  const storage = new PageStorage(refuse);
  assert.equal(storage.read("a"), null);
  storage.write("a", "1");
  assert.equal(storage.read("a"), "1");
  storage.remove("a");
  assert.equal(storage.read("a"), null);
});

test("PageStorage without room holds the new value, and the old one does not come back", () => {
  const browser = new FakeStorage(2);
  const storage = new PageStorage(() => browser);
  storage.write("a", "1");
  storage.write("a", "long");
  assert.deepEqual([storage.read("a"), browser.size], ["long", 0]);
  storage.write("a", "2");
  assert.deepEqual([storage.read("a"), browser.getItem("a")], ["2", "2"]);
});

test("PageStorage removes all keys of a prefix, stored or in memory", () => {
  const browser = new FakeStorage(2);
  const storage = new PageStorage(() => browser);
  for (const [key, text] of [
    ["a 1", "x"],
    ["a 2", "long"],
    ["b", "y"],
  ])
    storage.write(key, text);
  storage.removeAll("a ");
  assert.deepEqual(
    ["a 1", "a 2", "b"].map((key) => storage.read(key)),
    [null, null, "y"],
  );
});

test("the theme is chosen on a page whose browser refuses storage", async (t) => {
  const root = { dataset: {} };
  Object.defineProperty(globalThis, "document", { value: { documentElement: root }, configurable: true });
  Object.defineProperty(globalThis, "localStorage", { get: refuse, configurable: true });
  t.after(() => {
    delete globalThis.document;
    delete globalThis.localStorage;
  });
  const { switchTheme: nextTheme, currentTheme: theme } = await import("../console/app/theme.js");
  assert.deepEqual([theme(), root.dataset.theme], ["auto", "auto"]);
  nextTheme();
  assert.deepEqual([theme(), root.dataset.theme], ["light", "light"]);
});

test("a choice is remembered on a page whose browser refuses storage", async (t) => {
  Object.defineProperty(globalThis, "sessionStorage", { get: refuse, configurable: true });
  t.after(() => delete globalThis.sessionStorage);
  const { saveSetting: remember, loadSetting: remembered } = await import("../console/app/storage.js");
  assert.equal(remembered("panel", "events"), "events");
  remember("panel", "state");
  assert.equal(remembered("panel", "events"), "state");
});
