// The fold of SessionStore: on the vectors that it shares with Python, and counted by identity.

import assert from "node:assert/strict";
import { test } from "node:test";

import { actionText, eventText } from "../client/folds/event-text.js";
import { reportMeters } from "../client/folds/meters.js";
import { listPending } from "../client/folds/pending.js";
import { Tree } from "../client/folds/tree.js";
import { isBlank } from "../client/shared/python-text.js";
import { emptyState, reduceEvents } from "../client/store/index.js";
import { written } from "./sequences.mjs";
import { folded, logOf, vectors } from "./vectors.mjs";

const fold = (log, isDeclared) => reduceEvents(emptyState("sess_1"), log, isDeclared);

/** The state after events that come one by one. */
const foldSingly = (log, isDeclared) =>
  log.reduce((state, event) => reduceEvents(state, [event], isDeclared), emptyState("sess_1"));

/** Return the lines of Python's transcript that the messages of a snapshot hold. */
function toTranscript({ messages, queue }) {
  const lines = [...messages, ...queue].flatMap((message) => linesOf(message, message, message.parts));
  return lines.filter(({ text }) => !isBlank(text)).sort((one, other) => one.seq - other.seq);
}

function linesOf(message, agent, parts) {
  return parts.flatMap((part) => {
    if (part.type === "agent") return linesOf(message, part, part.parts);
    if (part.type === "view") return part.actions.map((action) => noteOf(action, part.view_id));
    if (part.type === "event" && part.origin === "ui" && part.name === "ui.action" && !part.payload.call_id)
      return [noteLine(message, part, eventText({ type: part.name, payload: part.payload }))];
    return part.type === "text" && part.state !== "streaming" ? [textLine(message, agent, part)] : [];
  });
}

const noteOf = (action, view_id) => noteLine(action, action, actionText({ action: action.action, view_id }));

const known = (fields) => Object.fromEntries(Object.entries(fields).filter(([, value]) => value != null));

const noteLine = ({ turn, channel }, { seq, ts, actor }, text) =>
  known({ seq, ts, who: "note", text, turn, channel, speaker: actor });

function textLine({ role, turn, channel, author, speaker }, { agent_id, agent_name, depth }, part) {
  const { seq, ts, text } = part;
  if (role === "user") return known({ seq, ts, who: "user", text, turn, channel, speaker: speaker ?? author });
  const partial = part.state === "aborted" || null;
  const more = { speaker: part.speaker, agent_id, agent_name, depth: depth || null, partial };
  return known({ seq, ts, who: "assistant", text, turn, channel, ...more });
}

for (const way of [fold, foldSingly]) {
  for (const vector of vectors("state/transcript").cases) {
    test(`${way.name}: transcript: ${vector.name}`, () => {
      assert.deepEqual(toTranscript(way(logOf(vector.events)).snapshot), vector.bubbles);
    });
  }

  for (const { name, events, session, turns, agents } of vectors("state/meters").cases) {
    test(`${way.name}: usage: ${name}`, () => {
      assert.deepEqual(reportMeters(way(logOf(events)).snapshot.usage), { session, turns, agents });
    });
  }

  for (const vector of vectors("state/tree").cases) {
    test(`${way.name}: open work: ${vector.name}`, () => {
      const log = logOf(vector.events);
      const { tree, snapshot } = way(log);
      const python = folded(new Tree(), log);
      assert.deepEqual([...tree.open.keys()], vector.open);
      assert.deepEqual([...tree.queuedTurns.keys()], vector.queue);
      assert.deepEqual(listPending(tree), listPending(python));
      assert.deepEqual(snapshot.agents, listPending(python).agents);
      const forPeople = listPending(python).calls.filter(({ waits_for }) => /page|approval/.test(waits_for));
      assert.deepEqual(snapshot.pending, forPeople);
    });
  }
}

for (const vector of vectors("agents/sequences").cases) {
  test(`${vector.name}: the tree of every state is the one of Tree, whenever it is read`, () => {
    const log = written(vector);
    let [once, always] = [emptyState("sess_1"), emptyState("sess_1")];
    const tree = new Tree();
    for (const event of log) {
      tree.apply(event);
      once = reduceEvents(once, [event]);
      always = reduceEvents(always, [event]);
      assert.deepEqual(listPending(always.tree), listPending(tree));
      assert.equal(always.tree.last, event.seq);
    }
    assert.deepEqual(listPending(once.tree), listPending(tree));
  });
}

test("texts that stream beside each other are in the tree, also when there are many changes", () => {
  const agent = { trace_id: "tr_1", agent_id: "agt_1", agent_name: "Guide" };
  const entries = [
    { type: "agent.start", ...agent, payload: { name: "Guide", via: "prompt" } },
    ...Array.from({ length: 200 }, (_, at) => {
      const block_id = `b${at % 3}`;
      return { type: "block.delta", ...agent, payload: { block_id, text: `${at} ` } };
    }),
    { type: "block.end", ...agent, payload: { block_id: "b1", status: "complete" } },
  ];
  const log = logOf(entries);
  const { blocks } = listPending(folded(new Tree(), log));
  assert.deepEqual(
    blocks.map(({ block_id }) => block_id),
    ["b0", "b2"],
  );
  for (const way of [fold, foldSingly]) assert.deepEqual(listPending(way(log).tree).blocks, blocks);
});
