// A feed that is closed at any moment calls no hook, sends no request and leaves no timer behind.

import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";

import { connect } from "../client/transport/connect.js";
import { Connection } from "../client/transport/connection.js";
import { Cursors } from "../client/transport/cursor.js";
import { SharedConnection } from "../client/transport/shared-connection.js";
import { Subscription } from "../client/transport/subscription.js";
import { Watchdog } from "../client/transport/watchdog.js";

const TIMING = { heartbeatMs: 15_000, retryMs: 1000, maxRetryMs: 30_000 };

const at = (seq, epoch = "k1") => ({ epoch, seq: BigInt(seq), chunk: Infinity });
const record = (seq) => ({ session: "sess_1", before: at(seq - 1), at: at(seq), data: JSON.stringify({ seq }) });
const frame = (seq) => `id: ${seq}:k1\ndata: {"seq":${seq}}\n\n`;

/** A connection over a source that does as it is told; `hooks` are the last source's. */
function connection(t, onState = () => {}, options = {}) {
  t.mock.timers.enable({ apis: ["setTimeout", "setInterval"] });
  const told = { opened: 0, closed: 0, states: [], refused: [], records: [] };
  const open = (_, hooks) => {
    told.opened += 1;
    told.hooks = hooks;
    return () => (told.closed += 1);
  };
  const cursors = new Cursors(options.sessions ?? ["sess_1"]);
  const hooks = {
    onRecords: (records) => told.records.push(...records),
    onState: (state) => {
      told.states.push(state);
      onState(state, told);
    },
    onRefused: (status) => told.refused.push(status),
  };
  told.connection = new Connection({
    open,
    buildUrl: () => "",
    cursors,
    timing: { ...TIMING, ...options.timing },
    hooks,
  });
  return told;
}

for (const [state, reach] of [
  ["catching-up", (told) => told.hooks.onOpen()],
  ["reconnecting", (told) => told.hooks.onEnd({})],
]) {
  test(`a connection that is closed when it says ${state} does not go on`, (t) => {
    const told = connection(t, (said) => said === state && told.connection.close());
    reach(told);
    t.mock.timers.tick(100_000);
    assert.deepEqual([told.states, told.opened], [[state], 1]);
  });
}

test("a connection that was refused does not come back when the network does", (t) => {
  const told = connection(t);
  told.hooks.onEnd({});
  t.mock.timers.tick(1000);
  told.hooks.onEnd({ status: 401 });
  told.connection.reconnectNow();
  assert.deepEqual([told.opened, told.refused, told.connection.state], [2, [401], "refused"]);
});

test("a server that wants to be left alone for years is not asked at once", (t) => {
  const told = connection(t);
  told.hooks.onEnd({ status: 503, retryAfterMs: 1e12 });
  t.mock.timers.tick(1e9);
  assert.equal(told.opened, 1);
});

test("a watchdog that waits for ever does not look at the clock all the time", (t) => {
  const waits = t.mock.method(globalThis, "setTimeout", () => 0).mock;
  new Watchdog(Infinity, () => {}).start();
  assert.deepEqual(
    waits.calls.map(({ arguments: [, ms] }) => ms),
    [2 ** 31 - 1],
  );
});

test("an event belongs to the session of its envelope, whatever sessions it speaks of", (t) => {
  const told = connection(t, () => {}, { sessions: ["sess_1", "sess_2"] });
  const data = '{"seq":4,"session_id":"sess_2","payload":{"session_id":"sess_1"}}';
  told.hooks.onItems([{ event: "message", data, id: "0:k1,4:q7" }]);
  const [passed, said] = told.records;
  assert.deepEqual([passed.session, passed.data, said.session, said.data], ["sess_1", undefined, "sess_2", data]);
});

test("a feed that is closed in the middle of what came together tells nothing more", async (t) => {
  t.mock.method(globalThis, "fetch", async () => new Response(frame(0) + frame(1) + frame(2)));
  const told = [];
  const onState = (state) => told.push(state);
  const feed = connect({
    url: "http://127.0.0.1:1/",
    session: "sess_1",
    onState,
    onError: () => told.push("error"),
    onEvent({ seq }) {
      told.push(seq);
      if (seq === 1) feed.close();
    },
  });
  await turn();
  feed.close();
  assert.deepEqual([told, feed.cursor, feed.state], [["catching-up", 0, 1, "closed"], "1:k1", "closed"]);
});

/** The channel of a tab; the test speaks for the other tabs. */
class Channel {
  static last;
  #closed = false;

  constructor() {
    Channel.last = this;
  }

  postMessage() {
    if (this.#closed) throw new Error("the channel is closed");
  }

  close() {
    this.#closed = true;
  }
}

const lent = (t, name, value) => {
  const before = Object.getOwnPropertyDescriptor(globalThis, name);
  Object.defineProperty(globalThis, name, { value, configurable: true });
  t.after(() => (before ? Object.defineProperty(globalThis, name, before) : delete globalThis[name]));
};

/** A tab that follows: another one holds the lock. `streams` are the hooks of those that it has opened. */
async function follower(t, hooks) {
  const request = async (_name, options, given) => given && (options.ifAvailable ? given(null) : new Promise(() => {}));
  lent(t, "navigator", { locks: { request } });
  lent(t, "BroadcastChannel", Channel);
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const streams = [];
  const open = (_, stream) => {
    streams.push(stream);
    return { cursors: { places: new Map() }, state: "live", close() {}, reconnectNow() {} };
  };
  const subscription = new Subscription({ sessions: ["sess_1"], parse: JSON.parse, hooks });
  const tab = new SharedConnection({ name: "shared", subscription, connect: open, timeoutMs: 0 });
  await turn();
  const says = (type, content) => Channel.last.onmessage({ data: { type, ...content } });
  const close = () => {
    tab.close();
    subscription.close();
  };
  return { streams, says, close };
}

const places = (seq) => new Map([["sess_1", at(seq)]]);
const ALONE = ["its own stream says a state", (tab) => tab.streams[0].onState("catching-up")];
const HANDED = [
  "its own stream has caught up with the leader",
  (tab) => {
    tab.says("at", { places: places(0), state: "live" });
    tab.streams[0].onRecords([record(0), record(1)]);
  },
];
const FOLLOWS = [
  "the leader hands something on, and then more than it follows",
  (tab) => {
    tab.says("at", { places: new Map([["sess_1", at(-1, null)]]), state: "live" });
    tab.says("records", { records: [{ ...record(0), before: at(-1, null) }, record(5)] });
  },
];

for (const [when, happens] of [ALONE, HANDED, FOLLOWS]) {
  test(`a tab that is closed while ${when} is silent from then on`, async (t) => {
    const told = [];
    let tab = null;
    const leave = (what) => {
      told.push(what);
      if (what !== "live" && what !== "closed") tab.close();
    };
    tab = await follower(t, { onState: leave, onEvent: ({ seq }) => leave(seq) });
    assert.equal(tab.streams.length, 1);
    happens(tab);
    t.mock.timers.tick(60_000);
    assert.deepEqual([told.at(-1), told.filter((what) => what !== "live").length], ["closed", 2]);
    assert.equal(tab.streams.length, 1);
  });
}

test("a stream that loses its network is given up at once, and tried again by itself", (t) => {
  const told = connection(t);
  told.hooks.onOpen();
  told.connection.disconnect();
  assert.deepEqual([told.states, told.opened, told.closed], [["catching-up", "reconnecting"], 1, 1]);
  told.connection.disconnect(); // an attempt is due already
  t.mock.timers.tick(1000);
  assert.deepEqual([told.states, told.opened, told.closed], [["catching-up", "reconnecting"], 2, 1]);
});

test("a stream that has ended stays ended when the network goes", (t) => {
  const told = connection(t);
  told.hooks.onEnd({ status: 204 });
  told.connection.disconnect();
  t.mock.timers.tick(100_000);
  assert.deepEqual([told.states, told.opened], [["closed"], 1]);
});
