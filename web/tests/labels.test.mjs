// The words of the chat: names, arguments, events, answers, risks and problems, for people.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Conflict, HttpError, Invalid, Unreachable } from "../client/api/errors.js";
import { errorMessage } from "../console/app/error-messages.js";
import {
  actionLabel,
  answerLabel,
  callSummary,
  commandLabel,
  endLabel,
  eventLabel,
  humanizeName,
  riskLabel,
  submittedValues,
  valueText,
  workLabel,
} from "../console/store/labels.js";
import { displayText } from "../console/views/values.js";

for (const [name, title] of [
  ["weight_entry_delete", "Weight entry delete"],
  ["getWeather", "Get weather"],
  ["mcp__files.read", "Mcp files read"],
  ["look-up", "Look up"],
  ["Größe (kg)", "Größe (kg)"],
  ["_", "_"],
]) {
  test(`humanizeName: ${name}`, () => assert.equal(humanizeName(name), title));
}

for (const [args, gist] of [
  [{ place: "Göreme" }, "Göreme"],
  [{ id: "evt_0a09462b9b16", question: "Shall I go?" }, "Shall I go?"],
  [{ content: "x".repeat(500), path: "notes/ships.html" }, "notes/ships.html"],
  [{ content: "x".repeat(500) }, `Content: ${"x".repeat(159)}…`],
  [{ entry: { day: "today", weight: 187.6, notes: null } }, "Entry: today, 187.6"],
  [{ ids: ["a", "b"], deep: true }, "Ids: a, b"],
  [{ rows: [{}, {}] }, "Rows: 2 items"],
  [{ deep: true }, "Deep: yes"],
  [{}, ""],
  [null, ""],
]) {
  test(`callSummary: ${JSON.stringify(args)}`, () => assert.equal(callSummary(args), gist));
}

for (const [type, payload, title, said] of [
  ["broker.record_vulnerability_indicators", { indicators: [] }, "Record vulnerability indicators", ""],
  [
    "broker.waterfall_step",
    { lender: "Northgate Bank", position: "Prime 1" },
    "Waterfall step",
    "Northgate Bank, Prime 1",
  ],
  ["roster.join", { name: "Lyra", seat: 1 }, "Lyra", "joined"],
  ["process.end", { process: "model", reason: "user_ended" }, "The model process ended", "user ended"],
  ["new.thing", { deep: { a: [1, { b: 1 }] }, no: null }, "Thing", "1 value"],
]) {
  test(`eventLabel: ${type}`, () => assert.deepEqual(eventLabel({ type, payload }), { title, detail: said }));
}

const TREE = {
  type: "screen",
  children: [
    {
      type: "form",
      id: "f",
      title: "Weighing",
      fields: [
        { type: "field.number", name: "weight_lbs", label: "Weight (lbs)" },
        { type: "field.select", name: "unit", label: "Unit", options: [{ value: "kg", label: "Kilograms" }] },
      ],
    },
    { type: "button", id: "agree", label: "I agree" },
  ],
};

for (const [action, words] of [
  [{ kind: "button.click", button_id: "agree" }, "Sarah chose “I agree”"],
  [{ kind: "button.click", button_id: "other_one" }, "Sarah chose Other one"],
  [{ kind: "form.submit", form_id: "f", values: {} }, "Sarah sent “Weighing”"],
  [{ kind: "table.save", table_id: "t", rows: [{}] }, "Sarah saved the table: 1 row"],
  [{ kind: "new.deed" }, "Sarah did new.deed"],
]) {
  test(`actionLabel: ${words}`, () => assert.equal(actionLabel("Sarah", action, TREE), words));
}

test("submittedValues gives what was sent by the labels of the form", () => {
  const values = { weight_lbs: 187, unit: "kg", more_of_it: null };
  assert.deepEqual(submittedValues({ kind: "form.submit", form_id: "f", values }, TREE), [
    ["Weight (lbs)", 187],
    ["Unit", "Kilograms"],
    ["More of it", null],
  ]);
  assert.deepEqual(submittedValues({ kind: "button.click", button_id: "agree" }, TREE), []);
});

for (const [result, question, words] of [
  [true, {}, "Yes"],
  [false, {}, "No"],
  ["b", { options: [{ value: "b", label: "Bergen" }] }, "Bergen"],
  ["b", { choices: ["a", "b"] }, "b"],
  [{ a: 1 }, {}, "1"],
  ["", {}, "none"],
]) {
  test(`answerLabel: ${words}`, () =>
    assert.equal(answerLabel({ input: null, question, result: { ok: true, result } }), words));
}

test("answerLabel says that a person could not answer, and that one gave fields", () => {
  assert.equal(answerLabel({ input: null, question: {}, result: { ok: false } }), "Not answered");
  assert.equal(answerLabel({ input: { a: 1 }, question: {}, result: null }), "Answered");
});

test("endLabel says who stopped an agent, and that a restart cut it off", () => {
  const end = (fields) => endLabel({ agent_name: "Lead", by: null, isRestart: false, ...fields });
  assert.equal(end({ stop_reason: "cancelled", by: "ada" }), "Lead was stopped by ada");
  assert.equal(end({ stop_reason: "error", isRestart: true }), "Lead was cut off by a restart");
  assert.equal(end({ stop_reason: "other" }), "Lead ended: other");
});

test("workLabel counts calls, agents, thoughts and failures", () => {
  const call = { kind: "call", state: "done", agents: [] };
  assert.equal(workLabel([call, { kind: "thinking", state: "done" }]), "1 call, 1 thought");
  assert.equal(
    workLabel([
      { ...call, agents: [{}, {}] },
      { ...call, state: "error" },
    ]),
    "2 calls, 2 agents, 1 failed",
  );
});

test("commandLabel names what was asked", () => {
  assert.equal(commandLabel("ada", { kind: "offer_work" }), "ada asked: offer work");
});

for (const [risk, words, isSafe] of [
  ["read", "It reads data and changes nothing", true],
  ["db_write", "It changes the database", false],
  ["It cannot be undone.", "It cannot be undone.", false],
  ["money_moves", "Money moves", false],
]) {
  test(`riskLabel: ${risk}`, () => assert.deepEqual(riskLabel(risk), { words, isSafe }));
}

test("valueText says nothing, lists and objects in few words", () => {
  assert.deepEqual(
    [null, "", [1, 2], [{}], {}].map((value) => valueText(value)),
    ["none", "none", "1, 2", "1 item", "0 values"],
  );
});

for (const [type, value, text] of [
  ["field.datetime", "2026-11-16T12:00:00-05:00", "2026-11-16 12:00 -05:00"],
  ["field.datetime", "2026-11-16T12:00", "2026-11-16 12:00"],
  ["field.datetime", "2026-11-16", "2026-11-16"],
  ["field.datetime", "soon", "soon"],
  ["field.text", "2026-11-16T12:00", "2026-11-16T12:00"],
  ["field.number", null, ""],
]) {
  test(`shownText: ${type} ${value}`, () => assert.equal(displayText({ type }, value), text));
}

test("shownText says the label of what was chosen", () => {
  const field = { type: "field.select", options: [{ value: "kg", label: "Kilograms" }, { value: "lbs" }] };
  assert.deepEqual(
    ["kg", "lbs"].map((value) => displayText(field, value)),
    ["Kilograms", "lbs"],
  );
});

for (const [error, words, detail] of [
  [new Unreachable("no answer from /api/sessions: Failed to fetch"), /does not answer/, /Failed to fetch/],
  [new Conflict("taken", 409), /already/, /taken/],
  [new HttpError("store is full", 507), /could not do this/, /store is full/],
  [new TypeError("x is undefined"), /could not do this/, /x is undefined/],
]) {
  test(`errorMessage: ${error.name} is told in words, with its message as the detail`, () => {
    const problem = errorMessage(error);
    assert.match(problem.words, words);
    assert.match(problem.detail, detail);
  });
}

test("errorMessage: what a person entered wrong is said at once, and so is a sentence of our own", () => {
  assert.deepEqual(errorMessage(new Invalid("at most 100000 characters", 400)), {
    words: "This was not accepted: at most 100000 characters",
    detail: null,
  });
  assert.deepEqual(errorMessage({ message: "The log was replaced." }), {
    words: "The log was replaced.",
    detail: null,
  });
});

for (const name of ["constructor", "__proto__", "hasOwnProperty", "toString"]) {
  test(`words of a log that uses the name ${name} are words`, () => {
    assert.equal(eventLabel({ type: name, payload: {} }).detail, "");
    assert.equal(typeof riskLabel(name).words, "string");
    assert.match(actionLabel("Sarah", { kind: name }), /^Sarah did /);
    assert.match(endLabel({ agent_name: "Lead", payload: { stop_reason: name }, by: null }), /^Lead ended: /);
  });
}
