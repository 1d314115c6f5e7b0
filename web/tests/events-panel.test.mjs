// Lines of the list of events, the filter over them, and where the rows of a long list are.

import assert from "node:assert/strict";
import { readFileSync, readdirSync } from "node:fs";
import { test } from "node:test";

import { EventFacets, EventFilter, NO_AGENT, NO_FILTER, nextOfType } from "../console/store/event-filter.js";
import { compactJson, eventFamily, summarizeEvent } from "../console/store/event-summary.js";
import { indexOfSeq } from "../console/store/session-log.js";
import { VirtualScroll } from "../console/ui/virtual-scroll.js";
import { folded, logOf } from "./vectors.mjs";

for (const [type, payload, line] of [
  ["ui.message", { text: "Hello\n  you", target: "Aide" }, "to Aide · Hello you"],
  ["agent.start", { name: "A", via: "call", prompt: "Go" }, "call · Go"],
  ["agent.end", { stop_reason: "end_turn", steps: 1, result: "Done" }, "end_turn · 1 step · Done"],
  ["agent.usage", { model: "m", usage: { input_tokens: 2, output_tokens: 3 } }, "m · 2 in, 3 out"],
  ["block.retract", { block_ids: ["b", "c"], reason: "busy" }, "2 blocks · busy"],
  ["tool.call", { call_id: "c", tool: "grep", args: { for: ["x", 1, null] } }, 'grep {"for":["x",1,null]}'],
  ["tool.call", { call_id: "c", tool: "grep", args: {}, incomplete: '{"fo' }, 'grep {"fo'],
  ["tool.result", { call_id: "c", tool: "grep", ok: true, result: "so", error: null }, 'grep "so"'],
  ["tool.result", { tool: "grep", ok: false, result: null, error: { code: "X", message: "no" } }, "grep X: no"],
  ["tool.await", { calls: [{ call_id: "c", tool: "ask", args: {} }] }, "ask {}"],
  ["session.member", { principal: "ada" }, "ada: no role"],
  ["broker.agree", { granted: true, note: "a" }, '{"granted":true,"note":"a"}'],
]) {
  test(`${type} in a line: ${line}`, () => assert.equal(summarizeEvent({ type, payload }), line));
}

test("every event of the shared vectors has a line, and none is long", () => {
  const folder = new URL("../../tests/vectors/state/", import.meta.url);
  const texts = readdirSync(folder).map((name) => readFileSync(new URL(name, folder), "utf8"));
  const cases = texts.flatMap((text) => JSON.parse(text).cases ?? []);
  const events = cases.flatMap(({ events }) => (events ? logOf(events) : []));
  assert.ok(events.length > 100);
  for (const event of events) {
    const line = summarizeEvent(event);
    assert.ok(line.length <= 240 && !line.includes("\n"), line);
  }
});

test("a line looks at what is shown of it, however much there is", () => {
  let looks = 0;
  const get = (list, key) => {
    looks += 1;
    return list[key];
  };
  const result = new Proxy(
    Array.from({ length: 100_000 }, (_, index) => index),
    { get },
  );
  assert.equal(summarizeEvent({ type: "tool.result", payload: { tool: "t", ok: true, result } }).length, 240);
  assert.ok(looks < 1000, `${looks} looks`);
});

test("compact JSON is JSON as long as there is room", () => {
  for (const value of [{ a: [1, { b: "c\n" }], d: {}, e: [] }, [], "x", 1.5, null, true]) {
    assert.equal(compactJson(value), JSON.stringify(value));
  }
  assert.equal(compactJson({ a: "xxxxxxxx", b: 1 }, 8), '{"a":"xxxxxxx",');
});

for (const [type, payload, expected] of [
  ["tool.call", {}, "tool"],
  ["tool.result", { ok: true }, "tool"],
  ["tool.result", { ok: false }, "error"],
  ["agent.end", { stop_reason: "timeout" }, "error"],
  ["agent.end", { stop_reason: "end_turn" }, "agent"],
  ["parse.reject", {}, "error"],
  ["broker.agree", {}, "own"],
  ["roster.join", {}, "own"],
]) {
  test(`${type} ${JSON.stringify(payload)} is of the family ${expected}`, () => {
    assert.equal(eventFamily({ type, payload }), expected);
  });
}

const lead = { trace_id: "tr_1", agent_id: "agt_1", agent_name: "Lead", depth: 0 };
const aide = { trace_id: "tr_1", agent_id: "agt_2", agent_name: "Aide", depth: 1 };
const LOG = logOf([
  { type: "ui.message", trace_id: "tr_1", payload: { text: "Find Ärger" } },
  { type: "agent.start", ...lead, payload: { name: "Lead", via: "prompt" } },
  { type: "tool.call", ...lead, payload: { call_id: "c", tool: "aide", args: {} } },
  { type: "agent.start", ...aide, payload: { name: "Aide", via: "call", parent_id: "agt_1", call_id: "c" } },
  { type: "tool.await", ...aide, payload: { calls: [{ call_id: "d", tool: "ask", args: {} }] } },
  { type: "ui.message", trace_id: "tr_2", payload: { text: "tool" } },
]);
const never = () => false;
const seqs = (events) => events.map(({ seq }) => seq - LOG[0].seq);

for (const [filter, expected] of [
  [{}, [0, 1, 2, 3, 4, 5]],
  [{ type: "tool." }, [2, 4]],
  [{ type: "tool.call" }, [2]],
  [{ type: "tool" }, []],
  [{ agent: "Aide" }, [3, 4]],
  [{ agent: NO_AGENT }, [0, 5]],
  [{ depth: "0" }, [0, 1, 2, 5]],
  [{ depth: "1" }, [0, 1, 2, 3, 4, 5]],
  [{ turn: "tr_2" }, [5]],
  [{ invocation: "agt_1" }, [1, 2, 3]],
  [{ call: "c" }, [2, 3]],
  [{ call: "d" }, [4]],
  [{ text: "ÄRGER" }, [0]],
  [{ text: "TOOL" }, [2, 4, 5]],
  [{ text: "tool", agent: "Aide", turn: "tr_1" }, [4]],
]) {
  test(`the filter ${JSON.stringify(filter)} lets the right events pass`, () => {
    const matches = new EventFilter({ ...NO_FILTER, ...filter });
    assert.equal(matches.run(LOG, never), true);
    assert.deepEqual(seqs(matches.events), expected);
  });
}

test("a search stops when it is late, goes on where it was, and takes what comes", () => {
  const [event] = logOf([{ type: "ui.message", payload: { text: "yes" } }]);
  const events = Array.from({ length: 1000 }, (_, seq) => ({ ...event, seq }));
  const matches = new EventFilter({ ...NO_FILTER, text: "yes" });
  let portions = 0;
  while (!matches.run(events, () => true)) portions += 1;
  assert.ok(portions > 10, "it looked at everything at once");
  assert.equal(matches.events.length, 1000);
  events.push({ ...event, seq: 1000 });
  assert.equal(matches.run(events, never), true);
  assert.deepEqual(matches.events, events);
});

test("an event is found by its seq, or the one before it", () => {
  const events = [2, 3, 7].map((seq) => ({ seq }));
  assert.deepEqual(
    [1, 2, 5, 7, 99].map((seq) => indexOfSeq(events, seq)),
    [-1, 0, 1, 2, 2],
  );
});

test("the neighbours of the same type are found", () => {
  assert.equal(nextOfType(LOG, 1, 1), LOG[3]);
  assert.equal(nextOfType(LOG, 3, -1), LOG[1]);
  assert.equal(nextOfType(LOG, 2, 1), undefined);
  assert.equal(nextOfType(LOG, 2, -1), undefined);
});

test("what occurs is counted, families first where there are several types", () => {
  const facets = folded(new EventFacets(), LOG);
  const types = [
    ["agent.start", 2],
    ["tool.", 2],
    ["tool.await", 1],
    ["tool.call", 1],
    ["ui.message", 2],
  ];
  assert.deepEqual(facets.choices, types);
  assert.deepEqual(
    [...facets.agents],
    [
      [NO_AGENT, 2],
      ["Lead", 2],
      ["Aide", 2],
    ],
  );
  assert.equal(facets.depth, 1);
});

test("a track draws the rows in view and a few around them", () => {
  const track = new VirtualScroll(1000, 20, 100);
  assert.deepEqual(track.rowsAt(0), { first: 0, end: 10, offset: 0 });
  assert.deepEqual(track.rowsAt(1010), { first: 45, end: 61, offset: 900 });
  assert.deepEqual(track.rowsAt(19_900), { first: 990, end: 1000, offset: 19_800 });
  assert.deepEqual(new VirtualScroll(0, 20, 100).rowsAt(0), { first: 0, end: 0, offset: 0 });
});

test("a track that would be too high reaches every row all the same", () => {
  const track = new VirtualScroll(10_000, 20, 100, 50_000);
  assert.equal(track.height, 50_000);
  assert.equal(track.rowsAt(0).first, 0);
  assert.equal(track.rowsAt(50_000 - 100).end, 10_000);
  for (const row of [0, 1, 777, 5000, 9999]) {
    const scroll = track.reveal(row, 25_000);
    assert.ok(track.shows(row, scroll), `row ${row}`);
    const { first, offset } = track.rowsAt(scroll);
    const above = offset + (row - first) * 20 - scroll;
    assert.ok(above > -1 && above <= 81, `row ${row} is drawn ${above} px below the top`);
  }
});

for (const [row, from, to, why] of [
  [52, 1000, 1000, "is in view"],
  [49, 1000, 980, "is just above"],
  [55, 1000, 1020, "is just below"],
  [500, 1000, 9960, "is far"],
  [0, 9000, 0, "is the first"],
  [999, 0, 19_900, "is the last"],
]) {
  test(`a row that ${why} is scrolled to from ${from} px at ${to} px`, () => {
    assert.equal(new VirtualScroll(1000, 20, 100).reveal(row, from), to);
  });
}
