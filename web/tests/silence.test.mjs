// A connection on which nothing comes, with the clock and the timers of the test.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Connection } from "../client/transport/connection.js";
import { Cursors } from "../client/transport/cursor.js";

const TIMING = { heartbeatMs: 1000, retryMs: 100, maxRetryMs: 100 };

/** A connection that is open; `pass` lets time pass, `closed` counts the sources that it closed. */
function opened(t) {
  let nowMs = 0;
  t.mock.timers.enable({ apis: ["setTimeout", "setInterval"] });
  t.mock.method(performance, "now", () => nowMs);
  const line = {
    opened: 0,
    closed: 0,
    states: [],
    pass(ms) {
      nowMs += ms;
      t.mock.timers.tick(ms);
    },
  };
  const open = (_, hooks) => {
    line.opened += 1;
    line.hooks = hooks;
    return () => {
      line.closed += 1;
    };
  };
  const hooks = { onRecords() {}, onState: (state) => line.states.push(state), onRefused() {} };
  line.connection = new Connection({
    open,
    buildUrl: () => "",
    cursors: new Cursors(["sess_1"]),
    timing: TIMING,
    hooks,
  });
  t.after(() => line.connection.close());
  return line;
}

test("Connection without a sign of life for 2.5 heartbeats is opened again", (t) => {
  const line = opened(t);
  line.hooks.onOpen();
  line.pass(2499);
  assert.deepEqual([line.opened, line.closed], [1, 0]);
  line.pass(1);
  assert.deepEqual([line.closed, line.states.at(-1)], [1, "reconnecting"]);
  line.pass(100);
  assert.equal(line.opened, 2);
});

test("Connection with a sign of life waits for 2.5 heartbeats more", (t) => {
  const line = opened(t);
  line.hooks.onOpen();
  line.pass(2000);
  line.hooks.onAlive();
  line.pass(2499);
  assert.equal(line.closed, 0);
  line.pass(1);
  assert.equal(line.closed, 1);
});

test("Connection whose server never answers is opened again", (t) => {
  const line = opened(t);
  line.pass(2500);
  line.pass(100);
  assert.deepEqual([line.opened, line.states], [2, ["reconnecting"]]);
});
