// The spans of turns, agents, completions and calls, whatever the clocks say.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Spans, axisTicks } from "../console/store/spans.js";
import { folded } from "./vectors.mjs";

const BEGIN = Date.parse("2026-01-08T12:00:00.000Z");

/** Events from rows [milliseconds, type, agent, payload], in one turn. */
const log = (rows) =>
  rows.map(([ms, type, agent_id, payload], seq) => ({
    type,
    seq,
    ts: new Date(BEGIN + ms).toISOString(),
    trace_id: "tr_1",
    payload,
    ...(agent_id ? { agent_id } : {}),
  }));

/** The spans as lines: depth, kind, name, start, end, state, then the waits. */
function drawn(rows) {
  const spans = folded(new Spans(), log(rows));
  return spans
    .rows("tr_1")
    .map(({ span, depth, trace }) => [
      depth,
      span.kind,
      span.name,
      span.start - BEGIN,
      spans.spanEnd(span, trace) - BEGIN,
      span.state,
      ...span.waits.map(([from, to]) => [from - BEGIN, to === null ? null : to - BEGIN]),
    ]);
}

const said = [0, "ui.message", null, { text: "Go" }];
const start = (ms, id, name, more = {}) => [ms, "agent.start", id, { name, via: "prompt", ...more }];
const end = (ms, id, stop_reason = "end_turn") => [ms, "agent.end", id, { stop_reason }];
const speak = (ms, id) => [ms, "block.start", id, { block_id: `b${ms}`, kind: "text" }];
const usage = (ms, id, more = {}) => [ms, "agent.usage", id, { model: "m", usage: {}, ...more }];
const call = (ms, id, call_id, more = {}) => [
  ms,
  "tool.call",
  id,
  { call_id, tool: `tool ${call_id}`, args: {}, ...more },
];
const result = (ms, id, call_id, ok = true, code = "X") => [
  ms,
  "tool.result",
  id,
  { call_id, ok, result: null, error: ok ? null : { code, message: "no" } },
];

for (const [name, rows, expected] of [
  [
    "a turn with a call: completions fill what is left",
    [
      said,
      start(10, "a", "Lead"),
      speak(30, "a"),
      call(40, "a", "c"),
      usage(50, "a"),
      result(90, "a", "c"),
      speak(120, "a"),
      usage(200, "a"),
      end(200, "a"),
    ],
    [
      [0, "turn", "Go", 0, 200, "ok"],
      [1, "agent", "Lead", 10, 200, "ok"],
      [2, "completion", "m", 10, 50, "ok"],
      [2, "call", "tool c", 40, 90, "ok"],
      [2, "completion", "m", 90, 200, "ok"],
    ],
  ],
  [
    "a call that starts an agent is that agent",
    [
      said,
      start(0, "a", "Lead"),
      call(10, "a", "c"),
      usage(10, "a"),
      start(20, "b", "Aide", { via: "call", parent_id: "a", call_id: "c" }),
      usage(60, "b"),
      end(70, "b"),
      result(70, "a", "c"),
    ],
    [
      [0, "turn", "Go", 0, 70, "open"],
      [1, "agent", "Lead", 0, 70, "open"],
      [2, "completion", "m", 0, 10, "ok"],
      [2, "agent", "Aide", 10, 70, "ok"],
      [3, "completion", "m", 20, 60, "ok"],
    ],
  ],
  [
    "who takes over stands beside who gave over, also below a caller",
    [
      said,
      start(0, "a", "Lead"),
      call(10, "a", "c"),
      start(20, "b", "Aide", { parent_id: "a", call_id: "c" }),
      end(30, "b", "handoff"),
      start(30, "d", "Next", { via: "handoff", parent_id: "a", call_id: "c" }),
      end(50, "d"),
      result(50, "a", "c"),
      end(60, "a", "error"),
    ],
    [
      [0, "turn", "Go", 0, 60, "error"],
      [1, "agent", "Lead", 0, 60, "error"],
      [2, "completion", "model", 0, 10, "ok"],
      [2, "agent", "Aide", 10, 30, "ok"],
      [2, "agent", "Next", 30, 50, "ok"],
    ],
  ],
  [
    "a completion lasts as long as the model says, but begins with its agent",
    [said, start(10, "a", "Lead"), usage(100, "a", { duration_ms: 20 }), usage(110, "a", { duration_ms: 500 })],
    [
      [0, "turn", "Go", 0, 110, "open"],
      [1, "agent", "Lead", 10, 110, "open"],
      [2, "completion", "m", 80, 100, "ok"],
      [2, "completion", "m", 10, 110, "ok"],
    ],
  ],
  [
    "what is taken back has failed, and the model is asked again",
    [
      said,
      start(0, "a", "Lead"),
      speak(10, "a"),
      [20, "block.retract", "a", { block_ids: ["b10"], reason: "busy" }],
      speak(50, "a"),
      usage(60, "a"),
    ],
    [
      [0, "turn", "Go", 0, 60, "open"],
      [1, "agent", "Lead", 0, 60, "open"],
      [2, "completion", "model", 0, 20, "error"],
      [2, "completion", "m", 20, 60, "ok"],
    ],
  ],
  [
    "waiting for a page, for an input and for an approval is part of a call",
    [
      said,
      start(0, "a", "Lead"),
      call(0, "a", "c"),
      call(0, "a", "d"),
      usage(0, "a"),
      [10, "approval.request", "a", { call_id: "c" }],
      [30, "approval.decision", "a", { call_id: "c", decision: "approve" }],
      [40, "tool.await", "a", { calls: [{ call_id: "c" }, { call_id: "d" }] }],
      [60, "ui.action", "a", { call_id: "c", action: {} }],
      result(80, "a", "c"),
      [90, "ui.message", null, { text: "?" }],
    ],
    [
      [0, "turn", "Go", 0, 90, "open"],
      [1, "agent", "Lead", 0, 90, "open"],
      [2, "completion", "m", 0, 0, "ok"],
      [2, "call", "tool c", 0, 80, "ok", [10, 30], [40, 60]],
      [2, "call", "tool d", 0, 90, "open", [40, null]],
    ],
  ],
  [
    "a provider's call is inside its completion",
    [
      said,
      start(0, "a", "Lead"),
      speak(10, "a"),
      call(20, "a", "c", { executor: "provider" }),
      result(30, "a", "c"),
      usage(50, "a"),
      end(50, "a"),
    ],
    [
      [0, "turn", "Go", 0, 50, "ok"],
      [1, "agent", "Lead", 0, 50, "ok"],
      [2, "completion", "m", 0, 50, "ok"],
      [2, "call", "tool c", 20, 30, "ok"],
    ],
  ],
  [
    "what was stopped is cancelled, what failed has failed",
    [
      said,
      start(0, "a", "Lead"),
      call(10, "a", "c"),
      call(10, "a", "d"),
      usage(10, "a"),
      result(20, "a", "c", false),
      result(30, "a", "d", false, "CANCELLED"),
      speak(40, "a"),
      end(50, "a", "cancelled"),
    ],
    [
      [0, "turn", "Go", 0, 50, "cancelled"],
      [1, "agent", "Lead", 0, 50, "cancelled"],
      [2, "completion", "m", 0, 10, "ok"],
      [2, "call", "tool c", 10, 20, "error"],
      [2, "call", "tool d", 10, 30, "cancelled"],
      [2, "completion", "model", 30, 50, "cancelled"],
    ],
  ],
  [
    "a clock that goes back stands still",
    [
      said,
      start(100, "a", "Lead"),
      call(200, "a", "c"),
      usage(200, "a"),
      result(-5000, "a", "c"),
      speak(150, "a"),
      usage(300, "a"),
      end(250, "a"),
    ],
    [
      [0, "turn", "Go", 0, 300, "ok"],
      [1, "agent", "Lead", 100, 300, "ok"],
      [2, "completion", "m", 100, 200, "ok"],
      [2, "call", "tool c", 200, 200, "ok"],
      [2, "completion", "m", 200, 300, "ok"],
    ],
  ],
]) {
  test(name, () => assert.deepEqual(drawn(rows), expected));
}

test("a result, an end or a wait that nobody knows the beginning of changes nothing", () => {
  const strangers = [
    end(5, "x"),
    usage(6, "x"),
    speak(7, "x"),
    call(8, "x", "c"),
    result(9, "x", "c"),
    [10, "tool.await", "x", { calls: [{ call_id: "c" }] }],
    [11, "approval.decision", "x", { call_id: "c" }],
    [12, "block.retract", "x", { block_ids: [] }],
    [13, "ui.action", null, { action: {} }],
  ];
  assert.deepEqual(drawn([said, start(1, "a", "Lead"), ...strangers]), [
    [0, "turn", "Go", 0, 13, "open"],
    [1, "agent", "Lead", 1, 13, "open"],
  ]);
});

test("endOf: what is open goes on until now, what has ended does not", () => {
  const spans = folded(new Spans(), log([said, start(10, "a", "Lead"), call(20, "a", "c"), usage(30, "a")]));
  const [turn, agent, completion] = spans.rows("tr_1").map(({ span }) => span);
  const ends = (now) => [turn, agent, completion].map((span) => spans.spanEnd(span, "tr_1", BEGIN + now) - BEGIN);
  assert.deepEqual(ends(20 * 60_000), [1_200_000, 1_200_000, 30]);
  assert.deepEqual(ends(5), [30, 30, 30], "a clock that is behind the log counts for nothing");
});

test("an agent has the subject that another one gave it, an agent of a person has none", () => {
  const rows = [
    said,
    start(0, "a", "Lead", { prompt: "Go" }),
    call(10, "a", "c"),
    start(20, "b", "Checker", { via: "call", parent_id: "a", call_id: "c", prompt: "the\n Moon" }),
  ];
  const spans = folded(new Spans(), log(rows)).rows("tr_1");
  assert.deepEqual(
    spans.filter(({ span }) => span.kind === "agent").map(({ span }) => span.subject),
    ["", "the Moon"],
  );
});

test("what is open ends with the last event of the log, whatever turn that is in", () => {
  const spans = folded(new Spans(), log([said, start(10, "a", "Lead")]));
  const [other] = log([[70, "ui.message", null, { text: "Later" }]]);
  spans.apply({ ...other, trace_id: "tr_2" });
  const [agent] = spans.turns.get("tr_1").children;
  assert.equal(spans.spanEnd(agent, "tr_1") - BEGIN, 70);
  spans.apply({ ...other, trace_id: undefined, ts: "not a time" });
  assert.equal(spans.spanEnd(agent, "tr_1") - BEGIN, 70);
  assert.deepEqual(
    spans.startedTurns.map(([trace]) => trace),
    ["tr_1"],
  );
});

test("a span knows its first and its last event", () => {
  const rows = [said, start(1, "a", "Lead"), call(2, "a", "c"), result(3, "a", "c"), end(4, "a")];
  const spans = folded(new Spans(), log(rows));
  const found = spans.rows("tr_1").map(({ span }) => [span.kind, span.seq, span.last]);
  assert.deepEqual(found, [
    ["turn", 0, 4],
    ["agent", 1, 4],
    ["completion", 2, 3],
    ["call", 2, 3],
  ]);
});

for (const [total, expected] of [
  [0, [0]],
  [1, [0, 1]],
  [3, [0, 1, 2, 3]],
  [10, [0, 2, 4, 6, 8, 10]],
  [3000, [0, 1000, 2000, 3000]],
  [7100, [0, 2000, 4000, 6000]],
  [150_000, [0, 30_000, 60_000, 90_000, 120_000, 150_000]],
  [864e6, [0, 1728e5, 3456e5, 5184e5, 6912e5, 864e6]],
]) {
  test(`an axis of ${total} ms has round ticks`, () => assert.deepEqual(axisTicks(total), expected));
}

test("who has nothing open but what waits, waits; who also works does not", () => {
  const waits = [[40, "tool.await", "a", { calls: [{ call_id: "c" }] }]];
  const resting = (rows) =>
    folded(new Spans(), log(rows))
      .rows("tr_1")
      .map(({ span }) => span.isResting);
  const begun = [said, start(0, "a", "Lead"), call(20, "a", "c"), usage(30, "a")];
  assert.deepEqual(resting(begun), [false, false, false, false]);
  assert.deepEqual(resting([...begun, ...waits]), [true, true, false, true]);
  assert.deepEqual(resting([...begun, call(35, "a", "d"), ...waits]).slice(0, 2), [false, false]);
  assert.deepEqual(resting([...begun, ...waits, result(50, "a", "c")]), [false, false, false, false]);
});
