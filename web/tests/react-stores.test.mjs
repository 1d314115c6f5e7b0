// The registry of stores behind the hooks of @turnlog/react, and its index of messages and parts.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Client, emptyState, reduceEvents } from "../client/index.js";
import { findMessage, findPart, listParts } from "../react/message-index.js";
import { isSameValue } from "../react/same-value.js";
import { SessionStores } from "../react/session-stores.js";
import { logOf } from "./vectors.mjs";

/** Return a registry whose requests get no answer. */
const createStores = () => new SessionStores({ url: "http://127.0.0.1:1/", fetch: () => new Promise(() => {}) });

/** Subscribe to sessions and leave them again, one after the other. */
function visit(stores, sessions) {
  for (const session of sessions) {
    const { store, subscribe } = stores.entry(session);
    subscribe(() => {})();
    store.close(); // else it lingers, and with it the test
  }
}

const sessionNames = (count) => Array.from({ length: count }, (_, number) => `sess_${number}`);

test("components of one session share its store and its functions", () => {
  const stores = createStores();
  assert.equal(stores.entry("sess_1"), stores.entry("sess_1"));
  assert.notEqual(stores.entry("sess_1"), stores.entry("sess_2"));
  assert.equal(stores.entry("sess_1").store.client, stores.client);
  const client = new Client({ url: "http://127.0.0.1:1/" });
  assert.equal(new SessionStores({ client }).entry("sess_1").store.client, client);
});

test("the actions are those of the store, bound to it", async () => {
  const requests = [];
  const fetch = async (_, { body }) => {
    requests.push(JSON.parse(body));
    return new Response(JSON.stringify({ seqs: [1] }), {
      status: 202,
      headers: { "content-type": "application/json" },
    });
  };
  const { actions, store } = new SessionStores({ url: "http://127.0.0.1:1/", fetch }).entry("sess_1");
  const { send, stop } = actions;
  await send("hello");
  await stop();
  assert.deepEqual(
    requests.map(({ session, events }) => [session, events[0].type]),
    [
      ["sess_1", "ui.message"],
      ["sess_1", "ui.command"],
    ],
  );
  assert.deepEqual(
    Object.keys(actions).filter((name) => typeof store[name] !== "function"),
    [],
  );
});

test("a server renders the snapshot without events, whatever the store has", async () => {
  const { store, actions, getSnapshot, getServerSnapshot } = createStores().entry("sess_1");
  const before = getServerSnapshot();
  actions.send("hello");
  assert.equal(getSnapshot().messages.length, 1);
  assert.equal(getServerSnapshot(), before);
  assert.deepEqual(before.messages, []);
  store.close();
});

test("a limited number of stores stays without a subscriber: those that were left last", () => {
  const stores = createStores();
  const first = stores.entry("sess_0");
  const used = stores.entry("used");
  const leave = used.subscribe(() => {});
  visit(stores, sessionNames(16));
  assert.equal(stores.entry("sess_0"), first, "16 stay");
  visit(stores, ["sess_0", "sess_16"]);
  assert.equal(stores.entry("sess_0"), first, "it was left after sess_1");
  assert.equal(stores.entry("used"), used, "a store with a subscriber stays");

  visit(stores, sessionNames(40).slice(20));
  assert.notEqual(stores.entry("sess_0"), first);
  assert.equal(stores.entry("used"), used);
  leave();
  used.store.close();
});

test("an entry stays while one of its subscribers does", () => {
  const stores = createStores();
  const entry = stores.entry("sess_x");
  const listener = () => {};
  const leaveFirst = entry.subscribe(listener);
  const leaveSecond = entry.subscribe(listener);
  leaveFirst();
  visit(stores, sessionNames(40));
  assert.equal(stores.entry("sess_x"), entry);
  leaveSecond();
  entry.store.close();
});

test("a subscriber of an entry that was dropped leaves without harm", () => {
  const stores = createStores();
  const entry = stores.entry("sess_x");
  visit(stores, sessionNames(40)); // sess_x was never subscribed, and is the first to go
  const replacement = stores.entry("sess_x");
  assert.notEqual(replacement, entry);
  entry.subscribe(() => {})();
  assert.equal(stores.entry("sess_x"), replacement);
  entry.store.close();
});

test("to leave twice is to leave once", () => {
  const stores = createStores();
  const entry = stores.entry("sess_x");
  const leaveFirst = entry.subscribe(() => {});
  const leaveSecond = entry.subscribe(() => {});
  leaveFirst();
  leaveFirst();
  visit(stores, sessionNames(40));
  assert.equal(stores.entry("sess_x"), entry);
  leaveSecond();
  entry.store.close();
});

const ITEM = {};
for (const [before, after, same] of [
  [ITEM, ITEM, true],
  [ITEM, {}, false],
  [[], [], true],
  [[ITEM, 1], [ITEM, 1], true],
  [[ITEM], [{}], false],
  [[ITEM], [ITEM, 1], false],
  [[], undefined, false],
  [Number.NaN, Number.NaN, true],
]) {
  test(`${JSON.stringify(before)} and ${JSON.stringify(after)} are ${same ? "" : "not "}the same`, () => {
    assert.equal(isSameValue(before, after), same);
  });
}

const LOG = logOf([
  { type: "ui.message", origin: "ui", trace_id: "tr_1", payload: { text: "Go" } },
  { type: "agent.start", trace_id: "tr_1", agent_id: "ag_1", depth: 0, payload: { name: "Lead", via: "prompt" } },
  {
    type: "tool.call",
    trace_id: "tr_1",
    agent_id: "ag_1",
    depth: 0,
    payload: { call_id: "call_1", tool: "scout", args: { prompt: "Look" } },
  },
  {
    type: "agent.start",
    trace_id: "tr_1",
    agent_id: "ag_2",
    depth: 1,
    payload: { name: "Scout", via: "call", call_id: "call_1", parent_id: "ag_1" },
  },
  {
    type: "assistant.message",
    origin: "model",
    trace_id: "tr_1",
    agent_id: "ag_2",
    depth: 1,
    payload: { text: "Seen", block_id: "blk_1" },
  },
  { type: "ui.message", origin: "ui", trace_id: "tr_2", payload: { text: "And then?" } },
]);

test("messages and parts are found by id, those of the queue and of called agents too", () => {
  const { snapshot } = reduceEvents(emptyState("sess_1"), LOG);
  const [first, second] = snapshot.messages;
  assert.equal(findMessage(snapshot, first.id), first);
  assert.equal(findMessage(snapshot, "none"), undefined);
  assert.equal(snapshot.queue.length, 1);
  assert.equal(findMessage(snapshot, snapshot.queue[0].id), snapshot.queue[0]);

  const agent = second.parts.find((part) => part.type === "agent");
  const [text] = agent.parts;
  assert.equal(text.text, "Seen");
  assert.equal(findPart(snapshot, second.id, agent.id), agent);
  assert.equal(findPart(snapshot, second.id, text.id), text);
  assert.equal(findPart(snapshot, first.id, text.id), undefined);
  assert.equal(findPart(snapshot, "none", text.id), undefined);

  assert.equal(listParts(snapshot, second.id), second.parts);
  assert.equal(listParts(snapshot, second.id, agent.id), agent.parts);
  assert.deepEqual(listParts(snapshot, second.id, text.id), []);
  assert.deepEqual(listParts(snapshot, "none"), []);
});
