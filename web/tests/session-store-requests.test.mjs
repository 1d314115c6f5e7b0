// What SessionStore and the client send: answers by their kind, signals, headers, and events as an iterator.

import assert from "node:assert/strict";
import { test } from "node:test";

import { Client } from "../client/api/client.js";
import { Conflict, NotFound, Unreachable } from "../client/api/errors.js";
import { SessionStore } from "../client/store/index.js";
import { followEvents } from "../client/transport/follow-events.js";
import { logOf } from "./vectors.mjs";

const URL_ROOT = "http://127.0.0.1/";
const json = (body, status = 200) =>
  new Response(JSON.stringify(body), { status, headers: { "content-type": "application/json" } });
const stream = (text) => new Response(new Blob([text]).stream(), { status: 200 });
const frame = (event) => `id: ${event.seq}:k1\ndata: ${JSON.stringify(event)}\n\n`;
const OPEN = new ReadableStream({ start() {} }); // a stream that stays

const AGENT = { trace_id: "tr_1", agent_id: "agt_1", agent_name: "Guide" };
const LOG = logOf([
  { type: "agent.start", ...AGENT, payload: { name: "Guide", via: "prompt" } },
  { type: "tool.call", ...AGENT, payload: { call_id: "c1", tool: "ask", args: {}, executor: "frontend" } },
  { type: "tool.call", ...AGENT, payload: { call_id: "c2", tool: "input", args: {} } },
]);

/** A store with the events of LOG, and the bodies that it posts. */
async function openStore(t) {
  const posts = [];
  const fetch = async (_url, { method = "GET", body }) => {
    if (method === "GET") return stream(`${LOG.map(frame).join("")}event: caught-up\ndata: {}\n\n`);
    posts.push(JSON.parse(body).events[0]);
    return json({ seqs: [9] }, 202);
  };
  const store = new SessionStore({ session: "sess_1", url: URL_ROOT, fetch, timing: { retryMs: 60_000 } });
  t.after(() => store.close());
  await new Promise((resolve) => {
    const unsubscribe = store.subscribe(() => {
      if (store.getSnapshot().hasHistory) resolve(unsubscribe);
    });
  });
  return { store, posts };
}

test("an answer is a result for a tool of the page, and an action for a tool of the server", async (t) => {
  const { store, posts } = await openStore(t);
  await store.answer({ call_id: "c1", tool: "ask" }, true);
  await store.answer({ call_id: "c2", tool: "input" }, { name: "Ada" });
  await store.answer({ call_id: "gone", tool: "ask" }, 1);
  await store.fail({ call_id: "c1", tool: "ask" }, { code: "SKIPPED", message: "no" });
  assert.deepEqual(
    posts.map(({ type, payload }) => [type, payload.result ?? payload.action?.values ?? payload.error.code]),
    [
      ["tool.result", true],
      ["ui.action", { name: "Ada" }],
      ["tool.result", 1],
      ["tool.result", "SKIPPED"],
    ],
  );
  assert.equal(new Set(posts.map(({ id }) => id)).size, 4);
});

test("decisions, actions and stops are posted with what they are about", async (t) => {
  const { store, posts } = await openStore(t);
  const request = { call_id: "c1", tool: "t", args_hash: "h", risk: "write" };
  await store.decide({ request }, "approve");
  await store.decide({ approval: request }, "deny", "no");
  await assert.rejects(store.decide({ approval: null }, "approve"), Conflict);
  await store.act({ view_id: "v1", event_id: "evt_7" }, { kind: "button.click", button_id: "b" });
  await store.stop({ turn: "tr_1", agent: "agt_1" });
  assert.deepEqual(
    posts.map(({ payload }) => payload),
    [
      { call_id: "c1", args_hash: "h", decision: "approve" },
      { call_id: "c1", args_hash: "h", decision: "deny", notes: "no" },
      { action: { kind: "button.click", button_id: "b" }, view_id: "v1", shown: "evt_7" },
      { command: { kind: "stop", turn: "tr_1", agent_id: "agt_1" } },
    ],
  );
});

test("a subscriber that throws does not stop the others", async (t) => {
  const { store } = await openStore(t);
  const reported = [];
  globalThis.reportError = (error) => reported.push(error.message);
  t.after(() => delete globalThis.reportError);
  let calls = 0;
  store.subscribe(() => {
    throw new Error("broken");
  });
  const unsubscribe = store.subscribe(() => (calls += 1));
  const sending = store.send("Oslo", { channel: "customer", target: "Guide" });
  assert.deepEqual([reported, calls], [["broken"], 1]);
  await sending;
  unsubscribe();
  unsubscribe();
});

test("headers, credentials and fetch of the options are used, and a header of a request wins", async () => {
  const requests = [];
  const fetch = async (_url, request) => {
    requests.push(request);
    return json({ apps: [] });
  };
  const client = new Client({ url: URL_ROOT, fetch, headers: { "x-tenant": "a" }, credentials: "include" });
  await client.apps();
  const [{ headers, credentials, cache }] = requests;
  assert.deepEqual([headers.get("x-tenant"), credentials, cache], ["a", "include", "no-store"]);
});

test("requests that run at the same time share one renewal of the token", async () => {
  let [valid, asked] = ["old", 0];
  const token = async () => {
    asked += 1;
    return valid;
  };
  const fetch = async (_, { headers }) =>
    headers.get("authorization") === `Bearer ${valid}` ? json({ apps: [] }) : json({ error: "expired" }, 401);
  const client = new Client({ url: URL_ROOT, fetch, token });
  await client.apps();
  valid = "new";
  await Promise.all([client.apps(), client.apps(), client.apps()]);
  assert.equal(asked, 2);
});

test("a token function that fails is asked again by the next request", async () => {
  const answers = [new Error("offline"), "fresh"];
  const token = async () => {
    const answer = answers.shift();
    if (answer instanceof Error) throw answer;
    return answer;
  };
  const client = new Client({ url: URL_ROOT, token, retryMs: 1, fetch: async () => json({ apps: [] }) });
  assert.deepEqual(await client.apps(), []);
  assert.deepEqual(answers, []);
});

test("a signal aborts a request with its reason, and is not tried again", async () => {
  let tries = 0;
  const fetch = (_, { signal }) =>
    new Promise((_resolve, reject) => {
      tries += 1;
      signal.addEventListener("abort", () => reject(signal.reason));
    });
  const abort = new AbortController();
  const client = new Client({ url: URL_ROOT, fetch }).withSignal(abort.signal);
  const answer = client.apps();
  await new Promise((resolve) => setTimeout(resolve));
  abort.abort(new Error("left"));
  await assert.rejects(answer, /left/);
  assert.equal(tries, 1);
});

test("a client is made without a page; a request without a server's address is an error of the caller", async () => {
  await assert.rejects(new Client().apps(), /expected an absolute url/);
  await assert.rejects(
    new Client({ url: URL_ROOT, retryMs: 1, fetch: () => Promise.reject("no") }).apps(),
    (error) => error instanceof Unreachable && /no$/.test(error.message),
  );
});

test("events come as an iterator, each once, also when the reader is slower than the stream", async () => {
  const events = logOf(Array.from({ length: 2500 }, () => ({ type: "duo.note", payload: {} })));
  const afters = [];
  const fetch = async (url) => {
    const after = Number.parseInt(new URL(url).searchParams.get("after"), 10);
    afters.push(after);
    if (after === 2499) return new Response(null, { status: 204 });
    return stream(
      events
        .slice(after + 1)
        .map(frame)
        .join(""),
    );
  };
  const seqs = [];
  const states = [];
  const options = { session: "sess_1", url: URL_ROOT, fetch, timing: { retryMs: 1 } };
  for await (const { seq } of followEvents({ ...options, onState: (state) => states.push(state), onEvent() {} })) {
    seqs.push(seq);
  }
  assert.deepEqual(
    seqs,
    events.map(({ seq }) => seq),
  );
  assert(afters.length > 2, "the stream was closed while events waited");
  assert.equal(states.at(-1), "closed");
});

test("an iteration ends with its signal, with its reader, or with the error of the server", async () => {
  const abort = new AbortController();
  const fetch = async () => new Response(OPEN.tee()[0], { status: 200 });
  const options = { session: "sess_1", url: URL_ROOT, fetch, signal: abort.signal };
  const reading = (async () => {
    for await (const event of followEvents(options)) assert.fail(event);
  })();
  setTimeout(() => abort.abort());
  await reading;

  for await (const event of followEvents({ ...options, signal: undefined, fetch: async () => stream(frame(LOG[0])) })) {
    assert.equal(event.seq, 0);
    break;
  }

  const errors = [];
  const refused = followEvents({
    session: "sess_1",
    url: URL_ROOT,
    fetch: async () => json({ error: "no such session" }, 404),
    onError: (error) => errors.push(error),
  });
  await assert.rejects(refused.next(), NotFound);
  assert.equal(errors.length, 1);
});

test("a store passes its events on before its subscribers are called, also again after a reset", async (t) => {
  const heard = [];
  const again = LOG.map((event) => frame(event).replace(":k1", ":k2")).join("");
  const reset = `event: reset\ndata: ${JSON.stringify({ session_id: "sess_1", epoch: "k2", reason: "epoch" })}\n\n`;
  const text = `${LOG.map(frame).join("")}${reset}${again}event: caught-up\ndata: {}\n\n`;
  const store = new SessionStore({
    session: "sess_1",
    url: URL_ROOT,
    fetch: async () => stream(text),
    timing: { retryMs: 60_000 },
    onEvents: (events) => heard.push(...events.map(({ seq }) => seq)),
    onReset: () => heard.push("reset"),
  });
  t.after(() => store.close());
  await new Promise((resolve) => {
    store.subscribe(() => store.getSnapshot().hasHistory && resolve());
  });
  assert.deepEqual(heard.slice(heard.indexOf("reset")), ["reset", 0, 1, 2]);
  assert.equal(store.getSnapshot().last, 2);
});
