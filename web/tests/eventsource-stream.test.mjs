// The source over `EventSource`, with a browser's class replaced by one that the test drives.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";

import { eventSourceStream } from "../client/transport/eventsource-stream.js";

class FakeEventSource extends EventTarget {
  static CLOSED = 2;
  static last;
  readyState = 0;

  constructor(url) {
    super();
    this.url = url;
    FakeEventSource.last = this;
  }

  close() {
    this.readyState = FakeEventSource.CLOSED;
  }

  send(type, data, lastEventId) {
    this.dispatchEvent(Object.assign(new Event(type), { data, lastEventId }));
  }
}

/** Open a source; `calls` are the hooks that it called, `ended` is fulfilled with its end. */
function open(t, url = "http://127.0.0.1:9/") {
  t.mock.method(globalThis, "EventSource", FakeEventSource);
  const calls = [];
  let end;
  const ended = new Promise((resolve) => {
    end = resolve;
  });
  const close = eventSourceStream()(url, {
    onOpen: () => calls.push("open"),
    onAlive: () => calls.push("alive"),
    onItems: (items) => calls.push(...items),
    onEnd: end,
  });
  return { calls, ended, close, source: FakeEventSource.last };
}

/** The address of a server that answers every request with a status. */
async function answering(t, status) {
  const server = createServer((_, response) => response.writeHead(status).end());
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  return `http://127.0.0.1:${server.address().port}/`;
}

if (!("EventSource" in globalThis)) globalThis.EventSource = FakeEventSource;

test("eventSourceStream hands on messages, heartbeats and resets with their ids", (t) => {
  const { calls, source } = open(t);
  source.onopen();
  source.send("message", "{}", "0:k1");
  source.send("heartbeat", "", "0:k1");
  source.send("reset", "{}", "");
  source.send("unheard", "{}", "");
  assert.deepEqual(
    calls.filter((call) => call !== "alive"),
    [
      "open",
      { event: "message", data: "{}", id: "0:k1" },
      { event: "heartbeat", data: "", id: "0:k1" },
      { event: "reset", data: "{}", id: "" },
    ],
  );
});

test("eventSourceStream that breaks ends without a status, and does not reconnect by itself", async (t) => {
  const { ended, source } = open(t);
  source.onerror();
  assert.deepEqual(await ended, { status: 0 });
  assert.equal(source.readyState, FakeEventSource.CLOSED);
});

for (const [status, expected] of [
  [404, 404],
  [200, 0],
]) {
  test(`eventSourceStream that was refused asks why: ${status} is ${expected}`, async (t) => {
    const { ended, source } = open(t, await answering(t, status));
    source.close();
    source.onerror();
    assert.deepEqual(await ended, { status: expected });
  });
}

test("eventSourceStream that was refused by a server that is gone ends without a status", async (t) => {
  const { ended, source } = open(t);
  source.close();
  source.onerror();
  assert.deepEqual(await ended, { status: 0 });
});

test("eventSourceStream that is closed while it asks why it was refused is silent", async (t) => {
  const { ended, close, source } = open(t);
  source.close();
  const asked = source.onerror();
  close();
  await asked;
  assert.equal(await Promise.race([ended, "silent"]), "silent");
});
