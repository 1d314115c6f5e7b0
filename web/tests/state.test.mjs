// The folds of the client on the vectors they share with Python.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Documents, collectDocuments, toDocument } from "../client/team/documents.js";
import { Meters } from "../client/folds/meters.js";
import { listPending } from "../client/folds/pending.js";
import { Roster } from "../client/team/roster.js";
import { Transcript } from "../client/folds/transcript.js";
import { Tree } from "../client/folds/tree.js";
import { roundCost } from "../client/shared/rounding.js";
import { folded, logOf, vectors } from "./vectors.mjs";

const seqs = (bubbles) => bubbles.map(({ seq }) => seq);

for (const vector of vectors("state/transcript").cases) {
  test(`transcript: ${vector.name}`, () => {
    const transcript = folded(new Transcript(), logOf(vector.events));
    assert.deepEqual(transcript.messages, vector.bubbles);
    assert.deepEqual(seqs(transcript.visibleTo(["customer"])), vector.customer);
    assert.deepEqual(seqs(transcript.visibleTo([])), vector.everybody);
  });
}

for (const [origin, texts] of [
  ["ui", ['[The user acted: {"type":"agree","data":{"granted":true}}]']],
  ["model", []],
  ["app", []],
]) {
  test(`an event of the application from ${origin} is noted if a page sent it`, () => {
    const [event] = logOf([{ type: "broker.agree", origin, trace_id: "tr_1", payload: { granted: true } }]);
    const mine = (type) => type.startsWith("broker.");
    assert.deepEqual(
      folded(new Transcript(mine), [event]).messages.map(({ text }) => text),
      texts,
    );
    assert.deepEqual(folded(new Transcript(), [event]).messages, []);
    assert.deepEqual([...folded(new Tree(mine), [event]).queuedTurns.keys()], origin === "ui" ? ["tr_1"] : []);
  });
}

for (const { name, events, session, turns, agents } of vectors("state/meters").cases) {
  test(`meters: ${name}`, () => {
    assert.deepEqual(folded(new Meters(), logOf(events)).report(), { session, turns, agents });
  });
}

for (const [value, expected] of [
  [0.1 + 0.2, 0.3],
  [0.0078125, 0.007812],
  [0.0234375, 0.023438],
  [5e-7, 0],
  [1.5e-6, 2e-6],
  [2.5e-6, 3e-6],
  [7, 7],
]) {
  test(`${value} is rounded as in Python`, () => assert.equal(roundCost(value), expected));
}

for (const { channel, stop, stopped } of vectors("state/tree").stops) {
  test(`tree: a stop ${JSON.stringify(stop)} in the channel ${channel}`, () => {
    const started = [undefined, "buyer", "seller"].map((where, number) => ({
      type: "agent.start",
      trace_id: `tr_${number + 1}`,
      agent_id: `agt_${number + 1}`,
      channel: where,
      payload: { name: "Guide", via: "prompt" },
    }));
    const command = { kind: "stop", ...stop };
    const told = { type: "ui.command", channel: channel ?? undefined, payload: { command } };
    const tree = folded(new Tree(), logOf([...started, told]));
    const marked = [...tree.open].filter(([, invocation]) => invocation.isStopped);
    assert.deepEqual(
      marked.map(([agentId]) => agentId),
      stopped,
    );
  });
}

for (const vector of vectors("state/tree").cases) {
  test(`tree: ${vector.name}`, () => {
    const tree = folded(new Tree(), logOf(vector.events));
    assert.equal(tree.last, vector.events.length - 1);
    assert.deepEqual([...tree.open.keys()], vector.open);
    assert.deepEqual([...tree.queuedTurns.keys()], vector.queue);
    assert.deepEqual(
      [...tree.open.keys()].filter((agentId) => tree.isWaiting(agentId)),
      vector.waits,
    );
    assert.deepEqual(tree.agentsAsking(), vector.waiting);
  });
}

test("tree: callers wait through any number of agents, the last of whom asks the page", () => {
  const levels = Array.from({ length: 5000 }, (_, level) => [
    {
      type: "agent.start",
      agent_id: `agt_${level}`,
      payload: { name: "A", via: "call", parent_id: `agt_${level - 1}`, call_id: "c" },
    },
    { type: "tool.call", agent_id: `agt_${level}`, payload: { call_id: "c", tool: "ask", args: {} } },
  ]);
  const asks = { type: "tool.await", agent_id: "agt_4999", payload: { calls: [{ call_id: "c" }] } };
  const tree = folded(new Tree(), logOf([...levels.flat(), asks]));
  assert.equal(tree.waitingAgents().size, 5000);
  assert.deepEqual(
    [tree.isWaiting("agt_0"), tree.isWaiting("agt_x"), tree.child("agt_7", "c")],
    [true, false, "agt_8"],
  );
  assert.deepEqual([tree.agentsAsking(), tree.isSettled("tr_1")], [["agt_4999"], true]);
  assert.deepEqual(listPending(tree).calls.at(0).waits_for, "agent");
});

const DOCUMENTS = vectors("state/documents");
const byId = (one, other) => (one.id < other.id ? -1 : 1);

/** The documents that the event of a row changes, when somebody has joined. */
function afterJoin({ event, payload }) {
  const joined = { type: "roster.join", payload: { name: "Lyra", seat: 0 } };
  const [first, second] = logOf([joined, { type: event, agent_id: "agt_1", payload }]);
  const kept = new Documents();
  kept.apply(first);
  return { changed: kept.apply(second), alone: toDocument(second) };
}

for (const row of DOCUMENTS.table) {
  test(`document: ${row.seed} as ${row.event}`, () => {
    const {
      changed: [made],
      alone,
    } = afterJoin(row);
    assert.deepEqual([made.type, made.category], [row.type, row.category]);
    for (const [name, value] of Object.entries(row.body)) assert.deepEqual(made.body[name], value);
    if (row.event !== "roster.status") assert.equal(alone.id, made.id);
  });
}

for (const row of DOCUMENTS.none) {
  test(`no document: ${row.seed}`, () => assert.deepEqual(afterJoin(row), { changed: [], alone: null }));
}

for (const vector of DOCUMENTS.cases) {
  test(`documents: ${vector.name}`, () => {
    const expected = vector.documents.map((made) => ({ ...made, body: JSON.parse(made.body) }));
    assert.deepEqual([...collectDocuments(logOf(vector.events)).values()].sort(byId), expected.sort(byId));
  });
}

test("a document does not change after it was handed out", () => {
  const events = logOf([
    { type: "roster.join", payload: { name: "Lyra", seat: 0 } },
    { type: "process.end", payload: { process: "model", reason: "user_ended" } },
  ]);
  const kept = new Documents();
  const [joined] = kept.apply(events[0]);
  kept.apply(events[1]);
  assert.equal(joined.body.status, "alive");
});

for (const { name, events, teams } of vectors("roster/cases").cases) {
  test(`roster: ${name}`, () => {
    const roster = folded(new Roster(), logOf(events));
    const kept = ({ seats, ...team }) => ({ ...team, seats: Object.fromEntries(seats) });
    const mine = [...roster.teams].map(([channel, team]) => [channel, kept(team)]);
    assert.deepEqual(Object.fromEntries(mine), teams);
    const told = Object.keys(teams)
      .sort()
      .map((channel) => ({
        channel: channel || null,
        hatching: teams[channel].hatching,
        grid: Array.from({ length: 9 }, (_, seat) => teams[channel].seats[seat] ?? null),
      }));
    assert.deepEqual(roster.report(), told);
  });
}
