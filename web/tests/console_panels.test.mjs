// The folds and formats of the console's panels, without a browser.

import assert from "node:assert/strict";
import { test } from "node:test";

import { collectDocuments } from "../client/team/documents.js";
import { DocumentIndex, documentTitle, matchesQuery, queryWords } from "../console/store/document-index.js";
import { Invocations, invocationStatus } from "../console/store/invocations.js";
import { diffJson } from "../console/store/json-diff.js";
import { LatestRequest } from "../console/store/latest-request.js";
import {
  escapeControls,
  escapeInline,
  escapeText,
  exportFileName,
  exportMarkdown,
  fenceCode,
  neutralizeMarkdown,
} from "../console/store/markdown-export.js";
import {
  ProcessStatus,
  offerWorkCommand,
  safeColor,
  sleepingMembers,
  startSessionCommand,
  wakeCommand,
} from "../console/store/team-commands.js";
import { formatBytes, formatCost, formatCount, formatDuration } from "../console/ui/format.js";
import { chatOf } from "./chat.mjs";
import { folded, logOf, vectors } from "./vectors.mjs";

for (const [meter, said] of [
  [{ cost_usd: 0, unpriced: 0, completions: 0 }, "–"],
  [{ cost_usd: 0, unpriced: 2, completions: 2 }, "–"],
  [{ cost_usd: 0, unpriced: 0, completions: 2 }, "$0.0000"],
  [{ cost_usd: 0.00001, unpriced: 0, completions: 1 }, "< $0.0001"],
  [{ cost_usd: 0.0123, unpriced: 0, completions: 1 }, "$0.0123"],
  [{ cost_usd: 12.3, unpriced: 1, completions: 2 }, "$12.30, partly unknown"],
]) {
  test(`a cost is ${said}`, () => assert.equal(formatCost(meter), said));
}

for (const [ms, said] of [
  [null, "–"],
  [0, "0 ms"],
  [999, "999 ms"],
  [1000, "1.0 s"],
  [59_949, "59.9 s"],
  [59_950, "1 min 0 s"],
  [125_400, "2 min 5 s"],
  [3_599_400, "59 min 59 s"],
  [3_600_000, "1 h 0 min"],
  [90_000_000, "1 d 1 h"],
]) {
  test(`${ms} ms are ${said}`, () => assert.equal(formatDuration(ms), said));
}

for (const [bytes, said] of [
  [0, "0 bytes"],
  [999, "999 bytes"],
  [1500, "1.5 kB"],
  [2_000_000, "2.0 MB"],
  [4e12, "4000.0 GB"],
]) {
  test(`${bytes} bytes are ${said}`, () => assert.equal(formatBytes(bytes), said));
}

test("large numbers have groups", () => assert.equal(formatCount(1234567), "1,234,567"));

for (const [name, before, after, expected] of [
  ["nothing", { a: [1, { b: null }] }, { a: [1, { b: null }] }, []],
  ["a change", { a: { b: 1 } }, { a: { b: 2 } }, [{ path: "a.b", kind: "changed", before: 1, after: 2 }]],
  [
    "an addition and a removal, in order",
    { a: 1, c: [] },
    { c: [5], d: null },
    [
      { path: "a", kind: "removed", before: 1 },
      { path: "c[0]", kind: "added", after: 5 },
      { path: "d", kind: "added", after: null },
    ],
  ],
  [
    "names that are no words",
    { "a b": { x: 1 } },
    { "a b": { x: 2 } },
    [{ path: '["a b"].x', kind: "changed", before: 1, after: 2 }],
  ],
  ["another kind", { a: [] }, { a: {} }, [{ path: "a", kind: "changed", before: [], after: {} }]],
  ["the whole", null, { a: 1 }, [{ path: "all", kind: "changed", before: null, after: { a: 1 } }]],
  [
    "what objects inherit",
    {},
    JSON.parse('{"__proto__": 1, "toString": 2}'),
    [
      { path: "__proto__", kind: "added", after: 1 },
      { path: "toString", kind: "added", after: 2 },
    ],
  ],
]) {
  test(`changes: ${name}`, () => assert.deepEqual(diffJson(before, after), expected));
}

test("changes are bounded", () => {
  const many = Array.from({ length: 1000 }, (_, index) => index);
  assert.equal(diffJson([], many).length, 200);
});

test("only what was wanted last is asked for, one at a time", async () => {
  const asked = [];
  let answer;
  const latest = new LatestRequest(
    (wanted) =>
      new Promise((resolve) => {
        asked.push(wanted);
        answer = resolve;
      }),
  );
  for (const wanted of [1, 2, 3]) latest.request(wanted);
  assert.deepEqual(asked, [1]);
  answer();
  await new Promise(setImmediate);
  assert.deepEqual(asked, [1, 3]);
  answer();
  await new Promise(setImmediate);
  latest.request(4);
  assert.deepEqual(asked, [1, 3, 4]);
});

const agent = (agent_id, type, payload, more = {}) => ({ type, agent_id, trace_id: "tr_1", payload, ...more });
const TURN = [
  { type: "ui.message", trace_id: "tr_1", payload: { text: "Look\n at this" } },
  agent("agt_1", "agent.start", { name: "Guide", via: "prompt", model: "m" }),
  agent("agt_2", "agent.start", { name: "Reader", via: "call", parent_id: "agt_1", call_id: "c1" }),
  agent("agt_2", "agent.handoff", { to: "Writer", to_agent_id: "agt_3" }),
  agent("agt_2", "agent.end", { stop_reason: "handoff" }),
  agent("agt_3", "agent.start", { name: "Writer", via: "handoff", parent_id: "agt_1", resumes: "agt_0" }),
  agent("agt_3", "agent.end", { stop_reason: "error" }),
];

/** Names with what is below them. */
const shape = (agents) => agents.map(({ name, agents: below }) => [name, shape(below)]);

test("invocations are nested by their callers, a successor beside its predecessor", () => {
  const fold = folded(new Invocations(), logOf(TURN));
  const [{ number, words, seq, agents }] = fold.turns.values();
  assert.deepEqual([number, words, seq], [1, "Look at this", 0]);
  assert.deepEqual(shape(agents), [
    [
      "Guide",
      [
        ["Reader", []],
        ["Writer", []],
      ],
    ],
  ]);
  assert.equal(fold.byId.get("agt_2").to, "agt_3");
  assert.equal(fold.byId.get("agt_3").from, "agt_2");
  assert.equal(fold.byId.get("agt_3").resumes, "agt_0");
});

test("an invocation runs, waits or has ended for a reason", () => {
  const events = logOf(TURN);
  const openAgents = (log) => chatOf(log).snapshot.agents;
  const { byId } = folded(new Invocations(), events);
  const said = [...byId.values()].map((one) => invocationStatus(one, openAgents(events))[0]);
  assert.deepEqual(said, ["running", "handed over", "failed"]);
  const waits = { ...agent("agt_1", "tool.await", { calls: [{ call_id: "c9", tool: "ask", args: {} }] }), seq: 9 };
  const call = { call_id: "c9", tool: "ask", args: {}, executor: "frontend" };
  const waiting = openAgents([...events, { ...agent("agt_1", "tool.call", call), seq: 8 }, waits]);
  assert.deepEqual(invocationStatus(byId.get("agt_1"), waiting), ["waiting", "wait"]);
});

test("every invocation of the vectors is shown once", () => {
  for (const { events } of vectors("state/tree").cases) {
    const fold = folded(new Invocations(), logOf(events));
    const flat = (agents) => agents.flatMap((one) => [one.agent_id, ...flat(one.agents)]);
    const shown = [...fold.turns.values()].flatMap(({ agents }) => flat(agents));
    assert.deepEqual(shown.sort(), [...fold.byId.keys()].sort());
  }
});

test("a long beginning is cut between characters", () => {
  const long = { type: "ui.message", trace_id: "tr_1", payload: { text: "😀".repeat(200) } };
  const fold = folded(new Invocations(), logOf([long]));
  assert.equal(fold.turns.get("tr_1").words, `${"😀".repeat(79)}…`);
});

test("the library holds the documents that the client makes, on their byCategory", () => {
  for (const { events } of vectors("state/documents").cases) {
    const log = logOf(events);
    const library = folded(new DocumentIndex(), log);
    assert.deepEqual(library.byId, collectDocuments(log));
    let shelved = 0;
    for (const [category, shelf] of library.byCategory) {
      for (const one of shelf.values()) assert.equal(one.category, category);
      shelved += shelf.size;
    }
    assert.equal(shelved, library.byId.size);
    for (const one of library.byId.values())
      assert(
        documentTitle(one).every((text) => typeof text === "string"),
        one.id,
      );
  }
});

test("a document is found by all of the words", () => {
  const document = { id: "artifact:a.html", body: { filename: "a.html", path: "memory/Ships.html" } };
  assert(matchesQuery(document, queryWords(" ships  a.HTML ")));
  assert(!matchesQuery(document, queryWords("ships b.html")));
  assert(matchesQuery(document, queryWords("  ")));
});

test("commands say what the log knows", () => {
  const staff = folded(
    new ProcessStatus(),
    logOf([
      { type: "process.start", payload: { process: "server", pid: 1 } },
      { type: "process.start", payload: { process: "model", pid: 2, model: "m" } },
      { type: "ui.message", payload: { text: "Hello" } },
      { type: "assistant.message", payload: { text: "Here", speaker: "Lyra" } },
    ]),
  );
  assert.equal(staff.process.pid, 2);
  const looks = { state: "sleeping", color: "#fff", color_name: "white", eyes: "round" };
  const member = (name, seat, soul) => ({ name, seat, soul, ...looks });
  const awake = { ...member("Orin", 2, ""), state: "alive" };
  const asleep = sleepingMembers([member("Lyra", 0, "I sort."), null, awake, member("Wren", 3, "")]);
  const woken = (has_transcript) => ({
    kind: "wake",
    agents: [
      { name: "Lyra", color: "#fff", color_name: "white", seat: 0, has_soul: true, has_transcript },
      { name: "Wren", color: "#fff", color_name: "white", seat: 3, has_soul: false, has_transcript: false },
    ],
  });
  assert.deepEqual(wakeCommand(asleep, staff), woken(false), "what she said is of the session that runs");
  const start = { kind: "session.start", has_previous_transcript: true, has_artifact_catalog: false };
  assert.deepEqual(startSessionCommand(staff), start);
  assert.deepEqual(offerWorkCommand("Lyra", " a \n\nb"), { kind: "offer_work", agent: "Lyra", jobs: ["a", "b"] });
  staff.apply({ type: "process.end", payload: { process: "model", reason: "user_ended" } });
  assert.equal(staff.process, null);
  assert.deepEqual(wakeCommand(asleep, staff), woken(true), "there are messages of an earlier session");
});

for (const [text, painted] of [
  ["#c9b1ff", "#c9b1ff"],
  ["#FFF", "#FFF"],
  ["red", ""],
  ["url(//evil)", ""],
  ["#12345", ""],
  ["#fff;x:y", ""],
]) {
  test(`the colour ${text} is ${painted || "not painted"}`, () => assert.equal(safeColor(text), painted));
}

test("control characters are spelled out", () => {
  assert.equal(escapeControls("a\x1b[31m\u202eb\tc\r\nd\re\u0085"), "a\\x1b[31m\\u202eb\tc\nd\\x0de\\x85");
});

for (const text of ["plain", "```js\n1\n```", "a ````` b", "~~~", "", "ends\n"]) {
  test(`a fence holds ${JSON.stringify(text)}`, () => {
    const [first, ...rest] = fenceCode(text).split("\n");
    assert.match(first, /^`{3,}$/);
    assert.equal(rest.pop(), first);
    assert(!rest.some((line) => line.includes(first)));
    assert.equal(rest.join("\n"), text.replace(/\n$/, ""));
  });
}

test("names stay on their line, and say what they are", () => {
  assert.equal(escapeInline("a\n# <b> *c* `d` [e](f)"), "a \\# \\<b\\> \\*c\\* \\`d\\` \\[e\\](f)");
});

for (const [name, text, expected] of [
  ["prose", "# Title\n\n- *a* [b](c) 1 < 2", "# Title\n\n- *a* [b](c) 1 < 2"],
  ["HTML", "a <img src=x> </b> <!-- c --> <?d>", "a &lt;img src=x> &lt;/b> &lt;!-- c --> &lt;?d>"],
  ["images", "![a](http://evil/?q) [![b](c)](d)", "&#33;[a](http://evil/?q) [&#33;[b](c)](d)"],
  ["code", "`<b>` and ``![`]`` <b>", "`<b>` and ``![`]`` &lt;b>"],
  ["escaped marks of code", "\\`<b>`", "\\`&lt;b>`"],
  ["code over two cells of a table", "| ` | <b> ` |", "| ` | &lt;b> ` |"],
  ["code over two lines", "`a\n- <b> `", "`a\n- &lt;b> `"],
  ["unequal marks", "``<b>`", "``&lt;b>`"],
  ["a block", "```html\n<b>![\n```\n<b>", "```html\n<b>![\n```\n&lt;b>"],
  ["a block that stays open", "~~~\n<b>\n```", "~~~\n<b>\n```\n~~~"],
  ["a block with a longer end", "```\n<b>\n`````\n<b>", "```\n<b>\n`````\n&lt;b>"],
  ["no block: it has marks in its first line", "``` a`\n<b>", "``` a`\n&lt;b>"],
  ["a block inside a list, which the next line ends", "- a\n  ```\n<b>", "- a\n  ```\n&lt;b>"],
]) {
  test(`prose: ${name}`, () => assert.equal(neutralizeMarkdown(text), expected));
}

for (const [name, text, expected] of [
  ["lines", " a\n  b\n\nc ", "a\\\nb\n\nc"],
  ["marks", "- a\n1. b\n+ c\n===", "\\- a\\\n1\\. b\\\n\\+ c\\\n\\==="],
  ["Markdown", "# *a* <b>", "\\# \\*a\\* \\<b\\>"],
]) {
  test(`what a person wrote: ${name}`, () => assert.equal(escapeText(text), expected));
}

const people = { me: "ada", displayName: (principal) => (principal === "guest_1" ? "Sarah" : principal) };

test("a conversation as Markdown calls people by their names", () => {
  const by = (actor, type, payload) => ({ type, trace_id: "tr_1", actor, payload });
  const chat = chatOf(
    logOf([
      by("guest_1", "ui.command", { command: { kind: "stop" } }),
      by("ada", "ui.message", { text: "Hello" }),
      by("guest_1", "ui.message", { text: "Good morning" }),
      by("bob", "ui.message", { text: "Here I am" }),
    ]),
  );
  const text = exportMarkdown(chat, "Talk", people);
  assert.match(text, /\*\*You\*\*\n\nHello\n/);
  assert.match(text, /\*\*Sarah\*\*\n\nGood morning\n/);
  assert.match(text, /\*\*bob\*\*\n\nHere I am\n/);
  assert.match(text, /_Sarah asked: stop/);
  assert.doesNotMatch(text, /guest_1/);
});

test("a conversation as Markdown, nested as it was", () => {
  const chat = chatOf(
    logOf([
      { type: "ui.message", trace_id: "tr_1", payload: { text: "Hello" } },
      agent("agt_1", "agent.start", { name: "Guide", via: "prompt" }, { agent_name: "Guide" }),
      agent("agt_1", "tool.call", { call_id: "c1", tool: "ask_reader", args: { prompt: "Tin" } }),
      agent("agt_2", "agent.start", { name: "Reader", via: "call", parent_id: "agt_1", call_id: "c1" }),
      agent("agt_2", "assistant.message", { text: "A metal\n\nThat is all." }, { agent_name: "Reader" }),
      agent("agt_2", "agent.end", { stop_reason: "end_turn" }, { agent_name: "Reader" }),
      agent("agt_1", "tool.result", { call_id: "c1", tool: "ask_reader", ok: true, result: "A metal", error: null }),
      agent("agt_1", "assistant.message", { text: "Tin is a metal." }, { agent_name: "Guide" }),
      agent("agt_1", "agent.end", { stop_reason: "end_turn" }),
    ]),
  );
  const text = exportMarkdown(chat, "Metals", people);
  assert(text.startsWith("# Metals\n\n**You**\n\nHello\n\n"), text);
  assert(text.includes("> **Reader**\n>\n> A metal\n>\n> That is all.\n"), text);
  assert(text.endsWith("**Guide**\n\nTin is a metal.\n"), text);
});

test("every entry that a conversation can hold has Markdown", () => {
  const error = { code: "NO", message: "no" };
  const one = (type, payload) => ({ type, trace_id: "tr_1", payload });
  const chat = chatOf(
    logOf([
      agent("agt_1", "agent.start", { name: "Guide", via: "prompt" }),
      agent("agt_5", "agent.start", { name: "Nested", via: "call", parent_id: "agt_1" }),
      agent("agt_5", "assistant.thinking", { text: "Hm" }),
      one("assistant.view", { view: { kind: "a2ui.v1", view_id: "v", tree: { type: "text", text: "x" } } }),
      agent("agt_1", "agent.handoff", { to: "Writer", to_agent_id: "agt_9" }),
      one("session.error", { code: "e", message: "Broken" }),
      one("assistant.files", { files: [{ file_id: "f", filename: "a_b.txt", storage_location: "s" }] }),
      agent("agt_1", "tool.call", { call_id: "c", tool: "t", args: {} }),
      agent("agt_1", "tool.result", { call_id: "c", tool: "t", ok: false, result: null, error }),
      agent("agt_1", "agent.end", { stop_reason: "error" }),
      one("broker.agree", { granted: true }),
      one("ui.action", { action: { kind: "button.click", button_id: "b" }, view_id: "v" }),
    ]),
  );
  const text = exportMarkdown(chat, "All", people);
  for (const part of [
    "**Nested**",
    "> > Hm",
    "**v**",
    "handed over to Writer",
    "**e** Broken",
    "a\\_b.txt",
    "**T** (t) Error",
    "**NO** no",
    "ended with an error",
    "**broker.agree**",
    "chose B",
  ]) {
    assert(text.includes(part), `${part} in ${text}`);
  }
  assert(!text.includes("undefined"), text);
});

for (const [title, name] of [
  ["Ships & tin", "Ships-tin.md"],
  ["../../x", "x.md"],
  ["", "session.md"],
  ["é", "e.md"],
  ["Can we fly from Göreme?", "Can-we-fly-from-Goreme.md"],
  ["a".repeat(99), `${"a".repeat(60)}.md`],
]) {
  test(`the file of ${JSON.stringify(title)} is ${name}`, () => assert.equal(exportFileName(title, "md"), name));
}
