// Views and pending calls of the console, without a browser.

import assert from "node:assert/strict";
import { test } from "node:test";

import { OpenViews } from "../client/views/views.js";
import { PageStorage, openDraft, removeDrafts } from "../console/app/storage.js";
import {
  inputFields,
  parseChoices,
  pendingCallKind,
  promptText,
  questionKey,
} from "../console/chat/pending-call-kinds.js";
import { formErrors, responseProblems, tableErrors, withLabel } from "../console/views/errors.js";
import { headingLevels } from "../console/views/headings.js";
import { Submissions } from "../console/views/submissions.js";
import { TableEdits, buildSave, cellText, currentRows, firstText, pageSize } from "../console/views/table-edits.js";
import * as values from "../console/views/values.js";
import { folded, logOf } from "./vectors.mjs";

const TEXT = { type: "field.text", name: "notes", label: "Notes" };
const NUMBER = { type: "field.number", name: "weight_lbs", label: "Weight (lbs)" };
const TIME = { type: "field.datetime", name: "measured_at", label: "Measured" };
const PICK = {
  type: "field.select",
  name: "size",
  label: "Size",
  options: [{ value: "s", label: "Small" }, { value: "l" }],
};

// values

for (const [field, text, value] of [
  [NUMBER, "187.6", 187.6],
  [NUMBER, " -3 ", -3],
  [NUMBER, "+.5e1", 5],
  [NUMBER, "7.", 7],
  [NUMBER, " ", null],
  [NUMBER, "187,6", "187,6"],
  [NUMBER, "1e999", "1e999"],
  [NUMBER, "0x10", "0x10"],
  [NUMBER, "Infinity", "Infinity"],
  [TEXT, " a ", " a "],
  [TEXT, "\n ", null],
  [TEXT, "12", "12"],
  [TIME, " 2026-01-08 ", "2026-01-08"],
  [TIME, "soon", "soon"],
  [PICK, "l", "l"],
  [PICK, "", null],
]) {
  test(`${field.type} sends ${JSON.stringify(value)} for ${JSON.stringify(text)}`, () => {
    assert.equal(values.parseValue(field, text), value);
  });
}

test("a value comes back as it was", () => {
  for (const value of [187.6, 0, -0.001, 1e21, 5e-324]) {
    assert.equal(values.parseValue(NUMBER, values.inputText(NUMBER, value)), value);
  }
  assert.equal(values.inputText(TEXT, null), "");
  assert.equal(values.inputText(TEXT, undefined), "");
  assert.equal(values.inputText(TEXT, "a\r\nb\rc"), "a\nb\nc");
  assert.equal(values.inputText(PICK, "l"), "l");
  assert.equal(values.inputText(PICK, "xl"), "", "what cannot be chosen is not chosen");
});

for (const [text, day, time, zone] of [
  ["", "", "", ""],
  ["2026-01-08", "2026-01-08", "", ""],
  ["2026-01-08T12:30", "2026-01-08", "12:30", ""],
  ["2026-01-08T12:30:05-05:00", "2026-01-08", "12:30:05", "-05:00"],
  ["2026-01-08T12:30Z", "2026-01-08", "12:30", "Z"],
]) {
  test(`${text || "nothing"} has a day and a time, and is put together again`, () => {
    assert.deepEqual(values.parseMoment(text), { day, time, zone });
    assert.equal(values.joinMoment({ day, time, zone }), text);
  });
}

for (const text of [
  "today",
  "2026-02-30",
  "2026-01-08T24:00",
  "2026-01-08T12:60",
  "2026-01-08T12:30:05.5",
  "0000-01-01",
]) {
  test(`no picker holds ${text}: it is edited as text`, () => {
    assert.equal(values.parseMoment(text), null);
    assert.equal(values.inputKind(TIME, text), "text");
  });
}

test("the input of a field follows from its type and what it begins with", () => {
  const kinds = [
    [TEXT, "", "text"],
    [{ ...TEXT, multiline: true }, "", "area"],
    [TEXT, "two\nlines", "area"],
    [NUMBER, "1", "number"],
    [PICK, "s", "select"],
    [TIME, "2026-01-08", "moment"],
    [{ ...TIME, picks: "date" }, "2026-01-08", "date"],
    [{ ...TIME, picks: "date" }, "2026-01-08T12:30", "text"],
  ];
  for (const [field, first, kind] of kinds) assert.equal(values.inputKind(field, first), kind);
});

// rows

const TABLE = {
  type: "table_editor",
  id: "t",
  can_add: true,
  can_delete: true,
  columns: [
    { ...NUMBER, value: 5 },
    { ...TEXT, name: "toString" },
  ],
  rows: [
    { row_id: "a", values: { weight_lbs: 1, toString: "one" } },
    { row_id: "b", values: { weight_lbs: 2 }, error: "no" },
  ],
};
const KNOWN = new Set(["a", "b"]);
const keysOf = (rows) => rows.map(({ key }) => key);

test("rows are edited, added, deleted and taken back, and saved whole", () => {
  const edits = new TableEdits();
  edits.write("b", "weight_lbs", "2.5");
  const key = edits.add();
  edits.write(key, "toString", "new");
  edits.remove("a");
  const rows = currentRows(TABLE, KNOWN, null, edits);
  assert.deepEqual(keysOf(rows), ["a", "b", "+1"]);
  assert.equal(firstText(rows[1], TABLE.columns[0]), "2");
  assert.equal(cellText(rows[1], TABLE.columns[0], edits), "2.5");
  const { action, keys } = buildSave(TABLE, rows, edits);
  assert.deepEqual(keys, ["b", "+1"]);
  assert.deepEqual(action, {
    kind: "table.save",
    table_id: "t",
    rows: [
      { row_id: "b", weight_lbs: 2.5, toString: null },
      { weight_lbs: 5, toString: "new" },
    ],
    deleted: ["a"],
  });
  edits.restore("a");
  edits.remove(key);
  assert.deepEqual(buildSave(TABLE, currentRows(TABLE, KNOWN, null, edits), edits).keys, ["a", "b"]);
});

test("edits outlive a reload; what is not edits is none", () => {
  const edits = new TableEdits();
  edits.write("a", "weight_lbs", "9");
  edits.remove("b");
  edits.add();
  edits.add();
  const again = TableEdits.fromJson(JSON.parse(JSON.stringify(edits)));
  assert.deepEqual(again.toJSON(), edits.toJSON());
  assert.ok(again.isRemoved("b"));
  assert.equal(again.add(), "+3");
  for (const json of [null, {}, { cells: 3 }, { cells: [], added: "x", removed: [] }]) {
    assert.deepEqual(TableEdits.fromJson(json).toJSON(), new TableEdits().toJSON());
  }
});

test("a table shows what was saved, without what is gone", () => {
  const saved = { rows: [{ row_id: "a", weight_lbs: 7 }, { row_id: "b", weight_lbs: 8 }, { weight_lbs: 9 }] };
  const rows = currentRows(TABLE, new Set(["b"]), saved, new TableEdits());
  assert.deepEqual(keysOf(rows), ["b", "=2"]);
  assert.equal(firstText(rows[0], TABLE.columns[0]), "8");
  assert.equal(rows[0].error, null);
});

test("a table with many options shows fewer rows at first", () => {
  assert.ok(pageSize([NUMBER, TEXT]) > 200);
  assert.ok(pageSize([NUMBER, TIME]) > 50);
  const wide = { ...PICK, options: Array(1000).fill({ value: "v" }) };
  assert.equal(pageSize([wide, wide]), 10);
});

// problems

const invalid = (message, ...path) => ({ kind: "invalid", message, path });
const late = (message, ...path) => ({ kind: "conflict", message, path });

test("problems stand at their fields and cells, the first of each", () => {
  const form = formErrors([
    invalid("a is required", "values", "a"),
    invalid("again", "values", "a"),
    invalid("odd", "kind"),
  ]);
  assert.deepEqual(
    [...form],
    [
      ["a", "a is required"],
      ["", "odd"],
    ],
  );
  const table = tableErrors(
    [
      invalid("no", "rows", 1, "n"),
      late("row b of t has been deleted already", "rows", 0, "row_id"),
      invalid("far", "rows", 9),
    ],
    ["a", "+1"],
  );
  assert.deepEqual(
    [...table],
    [
      ["+1 n", "no"],
      ["a ", "This row was already deleted."],
      ["", "far"],
    ],
  );
});

test("what comes too late is said in plain words", () => {
  for (const [path, words] of [
    ["view_id", /closed/],
    ["shown", /shown below/],
    ["form_id", /already/],
    ["button_id", /already/],
    ["table_id", /already saved/],
    ["other", /Too late: so/],
  ]) {
    assert.match(formErrors([late("so", path)]).get(""), words);
  }
});

test("a refusal of the server stands where a check of the page would", () => {
  const details = { problems: [{ path: ["values", "a"], message: "a must be > 0" }] };
  assert.equal(formErrors(responseProblems({ status: 400, fault: { details } })).get("a"), "a must be > 0");
  const shown = { problems: [{ path: ["shown"], message: "x" }] };
  assert.match(formErrors(responseProblems({ status: 409, fault: { details: shown } })).get(""), /shown below/);
  assert.equal(formErrors(responseProblems({ status: 403, message: "no", fault: null })).get(""), "Not sent: no");
});

test("a message has the label, not the name", () => {
  assert.equal(withLabel("weight_lbs must be > 0", NUMBER), "Weight (lbs) must be > 0");
  assert.equal(withLabel("weight_lbs_2 is odd", NUMBER), "weight_lbs_2 is odd");
});

// what was sent

test("the last action of each part is known until the view is shown again, also with strange ids", () => {
  const show = (view_id) => ({
    type: "assistant.view",
    payload: { view: { view_id, tree: { type: "text", text: "" } } },
  });
  const act = (view_id, action) => ({ type: "ui.action", payload: { view_id, action } });
  const submit = { kind: "form.submit", form_id: "f", values: { a: 1 } };
  const erase = { kind: "table.delete_row", table_id: "t", row_id: "r" };
  const save = { kind: "table.save", table_id: "t", rows: [] };
  const log = [
    show("__proto__"),
    act("__proto__", submit),
    act("__proto__", save),
    act("__proto__", erase),
    act("no", submit),
  ];
  const sent = folded(new Submissions(), logOf(log));
  assert.deepEqual(
    [...sent.forView("__proto__").actions],
    [
      ["f", submit],
      ["t", save],
    ],
  );
  assert.equal(sent.forView("no").actions.size, 0);
  const { version } = sent.forView("__proto__");
  const again = folded(sent, logOf([show("__proto__")]));
  assert.equal(again.forView("__proto__").actions.size, 0);
  assert.notEqual(again.forView("__proto__").version, version);
});

test("the check of the client knows where the console's own saves are wrong", () => {
  const views = folded(
    new OpenViews(),
    logOf([
      {
        type: "assistant.view",
        payload: { view: { kind: "a2ui.v1", view_id: "v", tree: { ...TABLE, columns: [NUMBER], rows: [] } } },
      },
    ]),
  );
  const edits = new TableEdits();
  const key = edits.add();
  edits.write(key, "weight_lbs", "heavy");
  const table = { ...TABLE, columns: [NUMBER], rows: [] };
  const { action, keys } = buildSave(table, currentRows(table, new Set(), null, edits), edits);
  const places = tableErrors(views.validateAction({ view_id: "v", action }), keys);
  assert.deepEqual([...places], [["+1 weight_lbs", "weight_lbs must be a number"]]);
});

// headings

test("headings go down one level at a time, whatever a view says", () => {
  const small = () => ({ type: "text", text: "small", style: "subheading" });
  const big = { type: "text", text: "big", style: "heading" };
  const inner = { type: "section", title: "inner", children: [big, small()] };
  const tree = {
    type: "screen",
    children: [small(), { type: "section", children: [inner] }, { type: "form", title: "f" }],
  };
  assert.deepEqual(
    [...headingLevels(tree, 2, null)].map(([, level]) => level),
    [3, 3, 4, 5],
  );
  assert.deepEqual(
    [...headingLevels(tree, 2, "title")].map(([node, level]) => [node?.text ?? node?.title, level]),
    [
      [undefined, 3],
      ["small", 4],
      ["inner", 4],
      ["big", 5],
      ["small", 6],
    ],
  );
});

test("no heading is deeper than six", () => {
  let tree = { type: "text", text: "deep", style: "subheading" };
  for (let level = 0; level < 8; level += 1) tree = { type: "section", title: "s", children: [tree] };
  assert.equal(Math.max(...headingLevels(tree, 2, "title").values()), 6);
});

// asking

const asks = (args, more = {}) => ({
  tool: "ask",
  executor: "frontend",
  approval: null,
  awaited: { args, seq: 7 },
  ...more,
});

for (const [name, call, kind] of [
  ["an approval", asks({}, { approval: { args_hash: "h" }, awaited: null }), "approval"],
  ["an input", asks({ question: "Where?" }, { executor: "backend" }), "input"],
  ["a choice", asks({ question: "Which?", options: ["a", "b"] }), "choice"],
  ["a yes or no", asks({ question: "Go?" }), "confirm"],
  ["a tool named so", asks({ what: "all" }, { tool: "confirm" }), "confirm"],
  ["anything", asks({ what: "all" }), "answer"],
  ["an odd question", asks({ question: 3, options: [] }), "answer"],
]) {
  test(`${name} is asked as ${kind}`, () => assert.equal(pendingCallKind(call), kind));
}

test("a second question of a call is another one", () => {
  assert.equal(questionKey(asks({})), "answer 7");
  assert.equal(questionKey(asks({}, { approval: { args_hash: "h" }, awaited: null })), "approval h");
});

test("choices are texts, or values with labels", () => {
  assert.deepEqual(parseChoices({ choices: ["a", 2, true] }), [
    { value: "a", label: "a" },
    { value: 2, label: "2" },
    { value: true, label: "true" },
  ]);
  assert.deepEqual(parseChoices({ options: [{ value: "x", label: "Ex" }, { value: "y" }] }), [
    { value: "x", label: "Ex" },
    { value: "y", label: "y" },
  ]);
  for (const options of [[], [null], [{}], ["a", ["b"]], Array(51).fill("a"), "ab"]) {
    assert.deepEqual(parseChoices({ options }), []);
  }
});

test("the words of a question", () => {
  assert.equal(promptText({ args: { message: "Hm?" } }), "Hm?");
  assert.equal(promptText({ args: { what: "all" } }), null);
  assert.equal(promptText({ args: JSON.parse('{"__proto__": {"question": "Not mine"}}') }), null);
});

test("the questions of an input become fields", () => {
  const names = (args) => inputFields(args).map(({ type, name, label }) => [type, name, label]);
  assert.deepEqual(names({ question: "Where?" }), [["field.text", "answer", "Where?"]]);
  assert.deepEqual(names({ street: "Which street?", zip: "Which code?" }), [
    ["field.text", "street", "Which street?"],
    ["field.text", "zip", "Which code?"],
  ]);
  assert.deepEqual(names({}), [["field.text", "answer", "Answer"]]);
  assert.deepEqual(names({ question: "Which?", options: ["a"] }), [["field.select", "answer", "Which?"]]);
  assert.deepEqual(names({ size: ["s", "l"] }), [["field.select", "size", "size"]]);
  assert.deepEqual(names({ age: { type: "field.number", label: "Age", min: 0 } }), [["field.number", "age", "Age"]]);
  assert.deepEqual(names({ age: { type: "field.html", label: "Age" }, odd: 3, none: null }), [
    ["field.text", "age", "age"],
    ["field.text", "odd", "odd"],
    ["field.text", "none", "none"],
  ]);
});

// drafts

test("a draft is kept, cleared, and forgotten with its event", () => {
  const storage = new PageStorage(() => null);
  const one = openDraft("s", "evt_1", "f", storage);
  assert.equal(one.read(), null);
  one.write([["a", "x"]]);
  openDraft("s", "evt_1", "g", storage).write([]);
  const other = openDraft("s", "evt_12", "f", storage);
  other.write([["b", "y"]]);
  assert.deepEqual(one.read(), [["a", "x"]]);
  one.clear();
  assert.equal(one.read(), null);
  removeDrafts("s", "evt_1", storage);
  assert.equal(openDraft("s", "evt_1", "g", storage).read(), null);
  assert.deepEqual(other.read(), [["b", "y"]]);
});

test("a draft that is no JSON is none", () => {
  const storage = new PageStorage(() => ({ getItem: () => "{" }));
  assert.equal(openDraft("s", "e", "f", storage).read(), null);
});
