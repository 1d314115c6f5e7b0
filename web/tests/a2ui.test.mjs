// Surfaces of A2UI and actions on them, on the vectors shared with Python: the same state, the same problems.

import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";

import { SurfaceError, applyMessages, measure, snapshotMessages } from "../client/views/a2ui.js";
import { OpenViews } from "../client/views/views.js";
import { isBounded, testPattern } from "../console/a2ui/patterns.js";
import { chatOf } from "./chat.mjs";
import { folded, logOf, vectors } from "./vectors.mjs";

const readText = (path) => readFileSync(new URL(path, import.meta.url), "utf-8");
const message = (name, fields) => ({ version: "v0.9", [name]: { surfaceId: "s", ...fields } });
const CREATION = vectors("a2ui/actions").cases[0].views[0].tree.messages;
const shows = (view) => ({ type: "assistant.view", payload: { view: { kind: "a2ui.v0.9", view_id: "s", ...view } } });

/** The surface after some events, and the indexes of those that do not fit. */
function foldEvents(events, viewId = "s") {
  let surface = null;
  const refused = [];
  for (const [at, tree] of events.entries()) {
    try {
      surface = applyMessages(surface, viewId, tree);
    } catch (error) {
      assert.ok(error instanceof SurfaceError, error);
      refused.push(at);
    }
  }
  return { surface, refused };
}

for (const { name, events, refused, surface: expected } of vectors("a2ui/surfaces").cases) {
  test(`surface: ${name}`, () => {
    const { surface, refused: found } = foldEvents(events);
    assert.deepEqual(
      found,
      refused.map(({ event }) => event),
    );
    if (expected === null) return assert.equal(surface, null);
    assert.deepEqual([...surface.components.values()], expected.components);
    assert.deepEqual(surface.data, expected.data);
    const again = applyMessages(null, "s", { messages: snapshotMessages(surface) });
    assert.deepEqual([again.components, again.data], [surface.components, surface.data ?? {}]);
  });
}

for (const { name, messages } of vectors("a2ui/examples").cases) {
  test(`example: ${name}`, () => {
    const id = messages[0].createSurface.surfaceId;
    const one = foldEvents([{ messages }], id);
    const each = foldEvents(
      messages.map((item) => ({ messages: [item] })),
      id,
    );
    assert.deepEqual(one, each);
    assert.deepEqual(one.refused, []);
  });
}

for (const { name, views, action, problems } of vectors("a2ui/actions").cases) {
  test(`action: ${name}`, () => {
    const events = views.map((view) => ({ type: "assistant.view", payload: { view } }));
    assert.deepEqual(folded(new OpenViews(), logOf(events)).validateAction(action), problems);
  });
}

test("what is no message of A2UI is refused", () => {
  const wrong = [
    { messages: "no list" },
    { messages: ["text"] },
    { messages: [{ version: "v0.9" }] },
    { messages: [{ version: "v0.9", createSurface: null }] },
    { messages: [message("createSurface", {}), message("updateComponents", { components: [{ id: 1 }] })] },
    { messages: [message("createSurface", {}), message("updateDataModel", { path: 5 })] },
    { messages: [message("createSurface", {}), message("updateDataModel", { path: "/__proto__/x", value: 1 })] },
  ];
  for (const tree of wrong) assert.deepEqual(foldEvents([tree]).refused, [0], JSON.stringify(tree));
  assert.equal({}.x, undefined);
});

test("the limits of a surface hold for all its messages", () => {
  const text = (number) => ({ id: `t${number}`, component: "Text", text: "" });
  const full = [...Array(2000).keys()].map(text);
  const begin = { messages: [message("createSurface", {}), message("updateComponents", { components: full })] };
  const more = { messages: [message("updateComponents", { components: [text(2000)] })] };
  assert.deepEqual(foldEvents([begin, more]).refused, [1]);
  const long = (path) => ({ messages: [message("updateDataModel", { path, value: "x".repeat(100_000) })] });
  assert.deepEqual(foldEvents([{ messages: CREATION }, long("/a"), long("/b"), long("/a")]).refused, [2]);
  assert.equal(measure({ ab: ["ä", null] }), 7);
});

test("a click marks its surface as used, an update keeps that, and no mistake of a fold is swallowed", () => {
  const { action } = vectors("a2ui/actions").cases[0];
  const update = { messages: [message("updateDataModel", { path: "/a", value: 1 })] };
  const log = [
    shows({ tree: { messages: CREATION } }),
    { type: "ui.action", payload: action },
    shows({ tree: update }),
  ];
  const [view] = folded(new OpenViews(), logOf(log)).open.values();
  assert.deepEqual([view.event_id, [...view.used], view.surface.data], ["evt_0", ["go"], { a: 1 }]);
  const broken = { get messages() { throw new TypeError("a mistake"); } }; // biome-ignore format: short
  assert.throws(() => folded(new OpenViews(), logOf([shows({ tree: broken })])), TypeError);
});

test("an update belongs to the entry of its surface, a deletion closes it, and a lone update is no entry", () => {
  const update = { messages: [message("updateDataModel", { path: "/a", value: 1 })] };
  const end = { messages: [message("deleteSurface", {})] };
  const events = [shows({ tree: update }), shows({ tree: { messages: CREATION } }), shows({ tree: update })];
  const [entry, ...others] = chatOf(logOf(events)).entries;
  assert.deepEqual([others, entry.event_id, entry.updates, entry.over], [[], "evt_1", [update], null]);
  assert.equal(chatOf(logOf([...events, shows({ tree: end })])).entries[0].over, "closed");
});

test("the server's schema is the published one", () => {
  const published = "../node_modules/@a2ui/web_core/src/v0_9/schemas";
  for (const [own, name] of [
    ["server_to_client.json", "server_to_client.json"],
    ["common_types.json", "common_types.json"],
    ["catalog.json", "catalogs/basic/catalog.json"],
  ]) {
    assert.equal(readText(`../../src/turnlog/events/a2ui_schema/${own}`), readText(`${published}/${name}`));
  }
});

test("patterns that people write are run, and those that never end are refused", () => {
  const email = "^[a-zA-Z0-9._%+-]+@[a-zA-Z0-9.-]+\\.[a-zA-Z]{2,}$";
  for (const pattern of [
    "^\\+?[0-9]{10,15}$",
    "^[0-9]{5}$",
    email,
    "^(?:ab|cd)$",
    "a(b)?",
    "(a){3}",
    "[(+*]{2}",
    "\\(+",
  ])
    assert.ok(isBounded(pattern), pattern);
  const endless = [
    "(a+)+$",
    "(a|a)*$",
    "(a?){30}",
    "((a*)b)*",
    "(?:a+)*",
    "a*a*a*a*$",
    "a?".repeat(9),
    "(a)\\1",
    "(?=a)",
  ];
  for (const pattern of [...endless, "(?<n>a)\\k<n>", "a".repeat(201), "(a{1,9}){9}"])
    assert.ok(!isBounded(pattern), pattern);
  assert.deepEqual(
    [testPattern(email, "a@example.com"), testPattern(email, "a"), testPattern("[", "a"), testPattern("(a+)+$", "a")],
    [true, false, false, false],
  );
  assert.equal(testPattern("a", "a".repeat(201)), false);
  assert.equal(isBounded(")"), true); // `RegExp` refuses it
});
