// Tabs of one browser that share a connection: Web Locks and the BroadcastChannel are those of a browser in one
// process, and the connections are driven by the test.

import assert from "node:assert/strict";
import { test } from "node:test";
import { setImmediate as turn } from "node:timers/promises";

import { Cursors, parseCursor } from "../client/transport/cursor.js";
import { SharedConnection } from "../client/transport/shared-connection.js";
import { Subscription } from "../client/transport/subscription.js";

/** Exclusive locks by name, given in the order in which they were asked for. */
class FakeLocks {
  #queues = new Map();

  async request(name, ...rest) {
    const given = rest.pop();
    const { ifAvailable = false, signal } = rest[0] ?? {};
    const queue = this.#queues.get(name) ?? [];
    this.#queues.set(name, queue);
    if (ifAvailable && queue.length > 0) return given(null);

    const before = queue.at(-1);
    let release;
    const released = new Promise((resolve) => {
      release = resolve;
    });
    queue.push(released);
    try {
      if (before) await Promise.race([before, rejection(signal)]);
      return await given({ name });
    } finally {
      queue.splice(queue.indexOf(released), 1);
      release();
    }
  }

  async query() {
    return { held: [...this.#queues].filter(([, queue]) => queue.length > 0).map(([name]) => ({ name })) };
  }
}

const rejection = (signal) =>
  new Promise((_, reject) => signal?.addEventListener("abort", () => reject(signal.reason)));

/** A browser: `open` opens a tab, whose `connections` are the streams that it opened. */
function browser(t) {
  const channels = new Set();
  class Channel {
    constructor() {
      channels.add(this);
    }

    postMessage(message) {
      const copy = structuredClone(message);
      for (const other of channels) if (other !== this) other.onmessage({ data: copy });
    }

    close() {
      channels.delete(this);
    }
  }
  lend(t, "navigator", { locks: new FakeLocks() });
  lend(t, "BroadcastChannel", Channel);
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const open = async (...sessions) => {
    const tab = new FakeTab(sessions);
    t.after(() => tab.close());
    await turn();
    return tab;
  };
  return { open };
}

function lend(t, name, value) {
  const before = Object.getOwnPropertyDescriptor(globalThis, name);
  Object.defineProperty(globalThis, name, { value, configurable: true });
  t.after(() => (before ? Object.defineProperty(globalThis, name, before) : delete globalThis[name]));
}

class FakeTab {
  connections = [];
  seqs = [];
  errors = [];

  constructor(sessions) {
    const hooks = { onEvent: ({ seq }) => this.seqs.push(seq), onError: ({ status }) => this.errors.push(status) };
    this.subscription = new Subscription({ sessions, parse: JSON.parse, hooks });
    const connect = (places, streamHooks) => {
      const connection = new FakeConnection(places, streamHooks);
      this.connections.push(connection);
      return connection;
    };
    this.tab = new SharedConnection({ name: "shared", subscription: this.subscription, connect, timeoutMs: 60_000 });
  }

  get open() {
    return this.connections.filter(({ isOpen }) => isOpen);
  }

  close() {
    this.tab.close();
    this.subscription.close();
  }
}

class FakeConnection {
  isOpen = true;
  state = "connecting";

  constructor(places, hooks) {
    this.cursors = new Cursors([...places.keys()]);
    for (const [session, place] of places) this.cursors.set(session, place);
    this.hooks = hooks;
  }

  close() {
    this.isOpen = false;
  }

  reconnectNow() {}

  says(state) {
    this.state = state;
    this.hooks.onState(state);
  }

  sends(session, ...seqs) {
    const records = seqs.map((seq) => {
      const [before, at] = [this.cursors.at(session), parseCursor(`${seq}:k1`)];
      this.cursors.set(session, at);
      return { session, before, at, data: JSON.stringify({ seq }) };
    });
    this.hooks.onRecords(records);
  }
}

/** Two tabs that follow one session over the connection of the first. */
async function sharing(t) {
  const { open } = browser(t);
  const leader = await open("sess_1");
  const [line] = leader.connections;
  line.says("catching-up");
  line.sends("sess_1", 0);
  line.says("live");
  const follower = await open("sess_1");
  const [own] = follower.connections;
  own.says("catching-up");
  own.sends("sess_1", 0);
  return { open, leader, line, follower };
}

test("a Tab that has what the leader has lets go of its own connection", async (t) => {
  const { line, leader, follower } = await sharing(t);
  assert.deepEqual([leader.open.length, follower.open.length, follower.subscription.state], [1, 0, "live"]);
  line.sends("sess_1", 1, 2);
  assert.deepEqual(
    [leader.seqs, follower.seqs],
    [
      [0, 1, 2],
      [0, 1, 2],
    ],
  );
});

test("a Tab that missed a record opens a connection of its own, and lets go of it again", async (t) => {
  const { line, follower } = await sharing(t);
  line.cursors.set("sess_1", parseCursor("1:k1"));
  line.sends("sess_1", 2);
  assert.deepEqual([follower.seqs, follower.open.length], [[0], 1]);
  const own = follower.open[0];
  own.says("catching-up");
  own.sends("sess_1", 1, 2);
  assert.deepEqual([follower.seqs, follower.open.length], [[0, 1, 2], 0]);
});

test("a Tab leads when the leader closes, from where it is", async (t) => {
  const { leader, follower } = await sharing(t);
  leader.close();
  await turn();
  await turn();
  const [line] = follower.open;
  assert.equal(line.cursors.text, "0:k1");
  line.sends("sess_1", 1);
  assert.deepEqual(follower.seqs, [0, 1]);
});

test("a Tab whose leader is silent reads by itself", async (t) => {
  const { follower } = await sharing(t);
  t.mock.method(performance, "now", () => Number.MAX_SAFE_INTEGER);
  t.mock.timers.tick(60_000);
  assert.deepEqual(
    follower.open.map(({ cursors }) => cursors.text),
    ["0:k1"],
  );
});

test("a Tab with another session is taken into the connection of the leader", async (t) => {
  const { open, leader } = await sharing(t);
  const other = await open("sess_2");
  other.connections[0].says("catching-up");
  t.mock.timers.tick(30);
  await turn();
  const [line, ...more] = leader.open;
  assert.deepEqual([line.cursors.sessions, line.cursors.text, more], [["sess_1", "sess_2"], "0:k1,-1", []]);
  assert.equal(other.open.length, 0);
  line.sends("sess_2", 0);
  assert.deepEqual([other.seqs, leader.seqs], [[0], [0]]);
});

test("a Tab that closed before the leader gathers is not read for", async (t) => {
  const { open, leader } = await sharing(t);
  const gone = await open("sess_2");
  gone.connections[0].says("catching-up");
  gone.close();
  await turn();
  t.mock.timers.tick(30);
  await turn();
  assert.deepEqual(
    leader.open.map(({ cursors }) => cursors.sessions),
    [["sess_1"]],
  );
});

test("a Tab for which one stream has no room reads by itself", async (t) => {
  const { open, leader } = await sharing(t);
  const large = await open(...Array.from({ length: 32 }, (_, at) => `sess_x${at}`));
  large.connections[0].says("catching-up");
  t.mock.timers.tick(30);
  await turn();
  assert.deepEqual([leader.open[0].cursors.sessions, large.open.length], [["sess_1"], 1]);
});

test("a leading Tab that is refused lets every tab find out for itself", async (t) => {
  const { leader, line, follower } = await sharing(t);
  line.hooks.onRefused(403, "no");
  assert.deepEqual([leader.open.length, follower.open.length], [1, 1]);
  leader.open[0].hooks.onRefused(403, "no");
  assert.deepEqual([leader.errors, follower.errors, follower.open.length], [[403], [], 1]);
});

test("a Tab joins a new leader", async (t) => {
  const { open, leader } = await sharing(t);
  const third = await open("sess_1");
  third.connections[0].says("catching-up");
  third.connections[0].sends("sess_1", 0);
  assert.equal(third.open.length, 0);
  leader.close();
  await turn();
  await turn();
  assert.equal(third.open.length, 0, "it waits for the new leader");
  third.close();
});
