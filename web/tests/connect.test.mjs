// `connect` against small servers that say what a case wants: refusals, cuts, silence, repetitions.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";

import { NotFound, NotSignedIn } from "../client/api/errors.js";
import { connect } from "../client/transport/connect.js";

const TIMING = { retryMs: 2, maxRetryMs: 10 };

const event = (seq, session = "sess_1") => JSON.stringify({ type: "duo.note", seq, session_id: session });
const frame = (id, data) => `id: ${id}\ndata: ${data}\n\n`;
const frames = (...seqs) => seqs.map((seq) => frame(`${seq}:k1`, event(seq))).join("");
const reset = (epoch) =>
  `event: reset\ndata: ${JSON.stringify({ type: "reset", reason: "epoch", session_id: "sess_1", epoch })}\n\n`;

/** What a server does with a request: an answer with a status, a stream that ends, breaks or stays silent. */
const refuses =
  (status, headers = {}) =>
  (response) =>
    response.writeHead(status, headers).end("{}");
const ends = (body) => (response) => response.writeHead(200).end(body);
const breaks = (body) => (response) => response.writeHead(200).write(body, () => response.destroy());
const stays = (body) => (response) => response.writeHead(200).write(body);

/** Follow a server that answers its requests one after the other, until `until` holds. */
async function follow(t, answers, until, options = {}, onEvent = () => {}) {
  const requests = [];
  const server = createServer((request, response) => {
    requests.push({ query: new URL(request.url, "http://x").searchParams, headers: request.headers });
    answers[Math.min(requests.length, answers.length) - 1](response);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  const told = { events: [], states: [], resets: [], errors: [], requests };
  told.feed = await new Promise((resolve) => {
    const look = (list) => (item, place) => {
      told[list].push(item);
      if (list === "events") onEvent(item, place);
      if (until(told)) setTimeout(() => resolve(feed));
    };
    const feed = connect({
      url: `http://127.0.0.1:${server.address().port}/`,
      session: "sess_1",
      timing: TIMING,
      onState: look("states"),
      onReset: look("resets"),
      onError: look("errors"),
      ...options,
      onEvent: look("events"),
    });
    t.after(() => {
      feed.close();
      server.closeAllConnections();
      server.close();
    });
  });
  return told;
}

/** Record the delays of all timers, those of `fetch` too. A timer with a delay of `skipped` runs at once. */
function recordTimers(t, skipped) {
  const delaysMs = [];
  const setTimer = globalThis.setTimeout;
  t.mock.method(globalThis, "setTimeout", (work, ms, ...rest) => {
    delaysMs.push(ms);
    return setTimer(work, skipped.includes(ms) ? 0 : ms, ...rest);
  });
  return delaysMs;
}

const seqs = ({ events }) => events.map(({ seq }) => seq);
const afters = ({ requests }) => requests.map(({ query }) => query.get("after"));
const has =
  (count) =>
  ({ events }) =>
    events.length === count;

test("a stream that ends is continued from its last id", async (t) => {
  const told = await follow(t, [ends(frames(0, 1)), ends(frames(2)), stays(frames(3))], has(4));
  assert.deepEqual(seqs(told), [0, 1, 2, 3]);
  assert.deepEqual(afters(told), ["-1", "1:k1", "2:k1"]);
  assert.equal(told.feed.cursor, "3:k1");
});

test("what comes again is left out, also in pieces of an event", async (t) => {
  const again = frame("1.0:k1", "a") + frame("1.1:k1", "b") + frame("1:k1", "c");
  const told = await follow(
    t,
    [breaks(again), breaks(frame("1.1:k1", "b") + again + frame("2:k1", "d")), stays(frame("3:k1", "e"))],
    has(5),
    { dialect: "blocks" },
  );
  assert.deepEqual(told.events, ["a", "b", "c", "d", "e"]);
});

test("who has kept no cursor begins at the start", async (t) => {
  assert.deepEqual(afters(await follow(t, [stays(frames(0))], has(1), { after: null })), ["-1"]);
});

test("a reset is told, and everything comes again", async (t) => {
  const anew = reset("k2") + frame("0:k2", event(0)) + frame("1:k2", event(1));
  const told = await follow(t, [breaks(frames(0, 1, 2)), breaks(anew), stays(frame("2:k2", event(2)))], has(6));
  assert.deepEqual(seqs(told), [0, 1, 2, 0, 1, 2]);
  assert.deepEqual(
    told.resets.map(({ epoch }) => epoch),
    ["k2"],
  );
  assert.deepEqual(afters(told), ["-1", "2:k1", "1:k2"]);
});

test("a reset that nothing follows is continued in the new epoch", async (t) => {
  const told = await follow(t, [breaks(frames(0)), breaks(reset("k2")), stays(frame("0:k2", event(0)))], has(2));
  assert.deepEqual(afters(told), ["-1", "0:k1", "-1:k2"]);
});

test("ids without data move the cursor", async (t) => {
  const beat = 'event: heartbeat\ndata: {"type":"heartbeat"}\n\nid: 9:k1\n\n';
  const told = await follow(t, [ends(frames(0) + beat), stays(frames(10))], has(2));
  assert.deepEqual(afters(told), ["-1", "9:k1"]);
});

test("messages without an id, before the first event of a stream, leave the cursor where it is", async (t) => {
  const quiet = [
    'event: caught-up\ndata: {"type":"caught-up"}\n\n',
    'event: heartbeat\ndata: {"type":"heartbeat"}\n\n',
  ];
  const told = await follow(t, [ends(frames(0, 1)), ...quiet.map(ends), stays(frames(2))], has(3));
  assert.deepEqual(seqs(told), [0, 1, 2]);
  assert.deepEqual(afters(told), ["-1", "1:k1", "1:k1", "1:k1"]);
});

test("several sessions have a list of cursors, each its own", async (t) => {
  const both = [
    frame("0:k1,-1", event(0, "sess_1")),
    frame("0:k1,4:q7", event(4, "sess_2")),
    "id: 7:k1,4:q7\n\n",
    frame("7:k1,5:q7", event(5, "sess_2")),
  ];
  const places = [];
  const told = await follow(
    t,
    [ends(both.join("")), stays(frame("8:k1,5:q7", event(8)))],
    ({ events }) => events.length === 4,
    { session: undefined, sessions: ["sess_1", "sess_2"] },
    (_, { session, cursor }) => places.push(`${session} ${cursor}`),
  );
  assert.deepEqual(places, ["sess_1 0:k1", "sess_2 4:q7", "sess_2 5:q7", "sess_1 8:k1"]);
  assert.deepEqual(afters(told), ["-1,-1", "7:k1,5:q7"]);
});

for (const [status, kind] of [
  [401, NotSignedIn],
  [404, NotFound],
]) {
  test(`${status} ends it`, async (t) => {
    const told = await follow(t, [refuses(status)], ({ errors }) => errors.length > 0);
    assert(told.errors[0] instanceof kind);
    assert.deepEqual([told.errors[0].status, told.feed.state, told.requests.length], [status, "refused", 1]);
  });
}

for (const [body, message] of [
  ['{"error":"expected a dialect"}', "expected a dialect"],
  ["null", "the server answered 400"],
]) {
  test(`a refusal that says ${body} is told as it is`, async (t) => {
    const told = await follow(t, [(response) => response.writeHead(400).end(body)], ({ errors }) => errors.length > 0);
    assert.deepEqual(
      told.errors.map((error) => error.message),
      [message],
    );
  });
}

test("204 says that there will be no more", async (t) => {
  const told = await follow(t, [ends(frames(0)), refuses(204)], ({ states }) => states.includes("closed"));
  assert.deepEqual([told.feed.state, told.requests.length], ["closed", 2]);
});

test("connect asks for longer delays with every failure, and for those that the server names", async (t) => {
  const expected = [617, 1234, 1550, 7000];
  const delaysMs = recordTimers(t, expected);
  t.mock.method(Math, "random", () => 0); // half of the longest delay, always
  const answers = [refuses(503), refuses(500), refuses(502), refuses(429, { "retry-after": "7" }), stays(frames(0))];
  const timing = { retryMs: 1234, maxRetryMs: 3100 };
  const told = await follow(t, answers, has(1), { timing });
  assert.deepEqual(
    delaysMs.filter((ms) => expected.includes(ms)),
    expected,
  );
  assert.equal(told.requests.length, 5);
});

test("an error of the page is reported and stops nothing", async (t) => {
  const { mock } = t.mock.method(console, "error", () => {});
  const closed = ({ states }) => states.includes("closed");
  const told = await follow(t, [ends(frames(0, 1)), refuses(204)], closed, {}, ({ seq }) => {
    throw new Error(`page ${seq}`);
  });
  assert.deepEqual(seqs(told), [0, 1]);
  assert.deepEqual(
    mock.calls.map((call) => call.arguments[0].message),
    ["page 0", "page 1"],
  );
});

test("an error that the page throws about a refusal is reported like any other", async (t) => {
  const { mock } = t.mock.method(console, "error", () => {});
  const told = await follow(t, [refuses(404)], ({ states }) => states.includes("refused"), {
    onError() {
      throw new Error("page");
    },
  });
  assert.deepEqual([told.feed.state, mock.calls.map((call) => call.arguments[0].message)], ["refused", ["page"]]);
});

test("what is asked for stands in the address, the token does not", async (t) => {
  const told = await follow(t, [stays(frames(6))], has(1), {
    token: "secret",
    types: ["tool", "block"],
    depth: 0,
    after: "5:k1",
    parameters: { stream_tool_results: false },
  });
  const [{ query, headers }] = told.requests;
  assert.equal(headers.authorization, "Bearer secret");
  assert.deepEqual(Object.fromEntries(query), {
    session: "sess_1",
    dialect: "turnlog",
    types: "tool,block",
    depth: "0",
    after: "5:k1",
    stream_tool_results: "false",
  });
});

test("a cursor that is none is refused at once", () => {
  for (const after of ["x:y:z", "1:k1,2:k1", "1.5.2"]) {
    assert.throws(() => connect({ url: "http://127.0.0.1:1/", session: "sess_1", after }), TypeError);
  }
});

test("a token that no header can hold is refused at once", () => {
  assert.throws(() => connect({ url: "http://127.0.0.1:1/", session: "sess_1", token: "a\nb" }), TypeError);
});

test("a feed of no session is refused at once", () => {
  for (const wrong of [
    {},
    { session: "" },
    { sessions: [] },
    { sessions: ["sess_1", null] },
    { session: "sess_1,sess_2" },
  ]) {
    assert.throws(() => connect({ url: "http://127.0.0.1:1/", ...wrong }), /^TypeError: expected sessions, got/);
  }
});

for (const [name, told] of [
  ["caught-up", "event: caught-up\ndata: {}\n\n"],
  ["the heartbeat of an older server", "event: heartbeat\ndata: {}\n\n"],
]) {
  test(`connect is live with ${name}, when it has delivered the history`, async (t) => {
    const many = frames(...Array.from({ length: 500 }, (_, seq) => seq));
    const atLive = [];
    const seen = ({ events, states }) => {
      if (states.at(-1) === "live") atLive.push(events.length);
      return events.length === 501;
    };
    const { states } = await follow(t, [stays(many + told + frames(500))], seen);
    assert.deepEqual(states, ["catching-up", "live"]);
    assert(atLive[0] >= 500);
  });
}

test("connect is not live before the server says so", async (t) => {
  const { states } = await follow(t, [stays(frames(0))], has(1));
  assert.deepEqual(states, ["catching-up"]);
});

test("connect after end asks for new events only, and then continues from the first id", async (t) => {
  const told = await follow(t, [breaks("id: 4:k1\n\n"), stays(frames(5))], has(1), { after: "end" });
  assert.deepEqual(afters(told), ["end", "4:k1"]);
});
