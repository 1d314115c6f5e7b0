// SessionStore: what a page sees while events come, what it sends, and which objects a change replaces.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";

import { Conflict, NotSignedIn } from "../client/api/errors.js";
import { Batch } from "../client/shared/ownership.js";
import { emptyState, reduceEvents, resetState, SessionStore } from "../client/store/index.js";
import { logOf, vectors } from "./vectors.mjs";

const AGENT = { trace_id: "tr_1", agent_id: "agt_1", agent_name: "Guide" };
const SUB = { trace_id: "tr_1", agent_id: "agt_2", agent_name: "Scout", depth: 1 };
const start = (agent = AGENT, payload = {}) => ({
  type: "agent.start",
  ...agent,
  payload: { name: agent.agent_name, via: "prompt", ...payload },
});
const end = (agent = AGENT, stop_reason = "end_turn") => ({ type: "agent.end", ...agent, payload: { stop_reason } });
const says = (text, turn = "tr_1") => ({
  type: "ui.message",
  trace_id: turn,
  origin: "ui",
  actor: "ada",
  payload: { text },
});
const block = (block_id, kind = "text", agent = AGENT, more = {}) => ({
  type: "block.start",
  ...agent,
  payload: { block_id, kind, ...more },
});
const delta = (block_id, text, agent = AGENT) => ({ type: "block.delta", ...agent, payload: { block_id, text } });
const message = (block_id, text, agent = AGENT) => ({
  type: "assistant.message",
  ...agent,
  payload: { block_id, text },
});
const call = (call_id, tool, args = {}, more = {}, agent = AGENT) => ({
  type: "tool.call",
  ...agent,
  payload: { call_id, tool, args, ...more },
});
const result = (call_id, tool, value, more = {}) => ({
  type: "tool.result",
  ...AGENT,
  ...more,
  payload: { call_id, tool, ok: true, result: value, error: null },
});
const usage = (agent = AGENT) => ({
  type: "agent.usage",
  ...agent,
  payload: { model: "m", usage: { input_tokens: 1, output_tokens: 1 } },
});

const fold = (...entries) => reduceEvents(emptyState("sess_1"), logOf(entries));
const shown = ({ snapshot }) =>
  snapshot.messages.map(({ role, parts }) => [role, ...parts.map(({ type, text, state }) => text ?? state ?? type)]);

/** All objects of a snapshot that a page may compare, by path. */
function objectsOf(value, path = "$", found = new Map()) {
  if (typeof value !== "object" || value === null) return found;
  found.set(path, value);
  const entries = value instanceof Map ? [...value] : Object.entries(value);
  for (const [name, inner] of entries) objectsOf(inner, `${path}.${name}`, found);
  return found;
}

function replaced(before, after) {
  const old = objectsOf(before.snapshot);
  return [...objectsOf(after.snapshot)].filter(([path, value]) => old.get(path) !== value).map(([path]) => path);
}

test("one delta replaces its part, its message and the lists on the path, and nothing else", () => {
  const log = logOf([
    ...Array.from({ length: 500 }, (_, turn) => [
      says(`Question ${turn}`, `tr_${turn}`),
      start({ ...AGENT, trace_id: `tr_${turn}`, agent_id: `agt_${turn}` }),
      message(`b_${turn}`, "Yes.", { ...AGENT, trace_id: `tr_${turn}`, agent_id: `agt_${turn}` }),
      end({ ...AGENT, trace_id: `tr_${turn}`, agent_id: `agt_${turn}` }),
    ]).flat(),
    says("Oslo?", "tr_x"),
    start({ ...AGENT, trace_id: "tr_x" }),
    block("b1", "thinking", { ...AGENT, trace_id: "tr_x" }),
    block("b2", "text", { ...AGENT, trace_id: "tr_x" }),
    delta("b2", "Ye", { ...AGENT, trace_id: "tr_x" }),
    delta("b2", "s.", { ...AGENT, trace_id: "tr_x" }),
  ]);
  const before = reduceEvents(emptyState("sess_1"), log.slice(0, -1));
  const after = reduceEvents(before, log.slice(-1));
  const at = after.snapshot.messages.length - 1;
  assert.deepEqual(replaced(before, after), [
    "$",
    "$.messages",
    `$.messages.${at}`,
    `$.messages.${at}.parts`,
    `$.messages.${at}.parts.1`,
  ]);
  assert.equal(before.snapshot.messages.at(-1).parts[1].text, "Ye");
  assert.equal(after.snapshot.messages.at(-1).parts[1].text, "Yes.");
});

test("a delta of a called agent replaces the parts around it only", () => {
  const log = logOf([
    says("Find it"),
    start(),
    call("c1", "scout"),
    start(SUB, { via: "call", parent_id: "agt_1", call_id: "c1" }),
    block("s1", "text", SUB),
    delta("s1", "I", SUB),
  ]);
  const before = reduceEvents(emptyState("sess_1"), log.slice(0, -1));
  const after = reduceEvents(before, log.slice(-1));
  const path = "$.messages.1";
  assert.deepEqual(replaced(before, after), [
    "$",
    "$.messages",
    path,
    `${path}.parts`,
    `${path}.parts.1`,
    `${path}.parts.1.parts`,
    `${path}.parts.1.parts.0`,
  ]);
});

/** Count the objects that folding copies. */
function countCopies(t, log) {
  const { own } = Batch.prototype;
  let copies = 0;
  t.mock.method(Batch.prototype, "own", function count(value) {
    const owned = own.call(this, value);
    if (owned !== value) copies += 1;
    return owned;
  });
  reduceEvents(emptyState("sess_1"), log);
  t.mock.restoreAll();
  return copies;
}

test("a batch copies each object once: 20,000 deltas copy as many objects as 1,000 for each thousand", (t) => {
  const deltas = (count) => [
    says("Go"),
    start(),
    block("b1"),
    ...Array.from({ length: count }, () => delta("b1", "x")),
  ];
  const few = countCopies(t, logOf(deltas(1000)));
  const many = countCopies(t, logOf(deltas(20_000)));
  assert(few < 30, `${few} copies of 1,000 deltas`);
  assert(many <= 21 * few, `${many} copies of 20,000 deltas`);
});

test("retracted blocks go, with their calls, questions and agents", () => {
  const state = fold(
    says("Go"),
    start(),
    block("b1"),
    message("b1", "One"),
    block("b2", "tool_call", AGENT, { call_id: "c1", tool: "ask" }),
    call("c1", "ask", {}, { block_id: "b2", executor: "frontend" }),
    { type: "tool.await", ...AGENT, payload: { calls: [{ call_id: "c1", tool: "ask", args: {} }] } },
    { type: "block.retract", ...AGENT, payload: { block_ids: ["b1", "b2"], reason: "overloaded" } },
    message("b3", "Again"),
  );
  assert.deepEqual(shown(state), [
    ["user", "Go"],
    ["assistant", "Again"],
  ]);
  assert.deepEqual(state.snapshot.pending, []);
});

for (const [reason, aborted] of [
  ["stopped", "stop"],
  ["interrupted", "restart"],
  ["timeout", "timeout"],
  [undefined, "error"],
]) {
  test(`a block that ${reason ?? "fails"} keeps its text`, () => {
    const ended = { block_id: "b1", status: "aborted", text: "Half", ...(reason && { reason }) };
    const state = fold(start(), block("b1"), delta("b1", "Hal"), { type: "block.end", ...AGENT, payload: ended });
    const [part] = state.snapshot.messages[0].parts;
    assert.deepEqual([part.text, part.state, part.aborted], ["Half", "aborted", aborted]);
  });
}

test("a call is written, queued, run and answered", () => {
  const log = logOf([
    start(),
    block("b1", "tool_call", AGENT, { call_id: "c1", tool: "look" }),
    delta("b1", '{"a'),
    call("c1", "look", { a: 1 }, { block_id: "b1" }),
    usage(),
    { type: "tool.progress", ...AGENT, payload: { call_id: "c1", text: "…" } },
    result("c1", "look", 42),
  ]);
  const states = log.map((_, at) => {
    const part = reduceEvents(emptyState("s"), log.slice(0, at + 1)).snapshot.messages[0].parts[0];
    return part && [part.state, part.written, part.progress, part.result];
  });
  assert.deepEqual(states, [
    undefined,
    ["writing", "", "", null],
    ["writing", '{"a', "", null],
    ["queued", "", "", null],
    ["running", "", "", null],
    ["running", "", "…", null],
    ["done", "", "", 42],
  ]);
});

test("a question waits, and is answered by whichever tab is first", () => {
  const asks = [
    says("Go"),
    start(),
    call("c1", "confirm", { question: "Sure?" }, { executor: "frontend" }),
    usage(),
    {
      type: "tool.await",
      ...AGENT,
      payload: { calls: [{ call_id: "c1", tool: "confirm", args: { question: "Sure?" } }] },
    },
  ];
  const waiting = fold(...asks).snapshot;
  assert.deepEqual([waiting.status, waiting.pending.map(({ call_id }) => call_id)], ["waiting", ["c1"]]);
  const [asked, question] = waiting.messages[1].parts;
  assert.deepEqual(
    [asked.state, question.type, question.state, question.wants],
    ["waiting", "question", "open", "result"],
  );
  const { messages, pending, status } = fold(
    ...asks,
    result("c1", "confirm", true, { origin: "ui", actor: "grace" }),
  ).snapshot;
  const { state, answer } = messages[1].parts[1];
  assert.deepEqual([state, answer.actor, answer.value, pending, status], ["answered", "grace", true, [], "running"]);
});

test("an approval is decided once, and the call runs", () => {
  const request = { call_id: "c1", tool: "delete", args_hash: "h", risk: "write" };
  const asks = [start(), call("c1", "delete"), usage(), { type: "approval.request", ...AGENT, payload: request }];
  const [, approval] = fold(...asks).snapshot.messages[0].parts;
  assert.deepEqual([approval.type, approval.state, approval.request], ["approval", "open", request]);
  const decision = { call_id: "c1", args_hash: "h", decision: "deny", notes: "No" };
  const parts = fold(...asks, { type: "approval.decision", ...AGENT, actor: "ada", payload: decision }).snapshot
    .messages[0].parts;
  assert.deepEqual([parts[0].state, parts[1].state, parts[1].answer.notes], ["running", "deny", "No"]);
});

test("a message behind a running turn is queued until its own turn starts", () => {
  const other = { ...AGENT, trace_id: "tr_2", agent_id: "agt_2" };
  const busy = [says("One"), start(), says("Two", "tr_2")];
  assert.deepEqual(
    fold(...busy).snapshot.queue.map(({ state }) => state),
    ["queued"],
  );
  const state = fold(...busy, message("b1", "First."), end(), start(other), message("b2", "Second.", other));
  assert.deepEqual(shown(state), [
    ["user", "One"],
    ["assistant", "First."],
    ["user", "Two"],
    ["assistant", "Second."],
  ]);
  assert.deepEqual(state.snapshot.queue, []);
});

test("the target of a hand-off has a message of its own", () => {
  const target = { ...AGENT, agent_id: "agt_2", agent_name: "Clerk" };
  const state = fold(
    start(),
    message("b1", "Wait."),
    { type: "agent.handoff", ...AGENT, payload: { to: "Clerk", to_agent_id: "agt_2" } },
    end(AGENT, "handoff"),
    start(target, { via: "handoff" }),
    message("b2", "Hello.", target),
  );
  assert.deepEqual(
    state.snapshot.messages.map(({ agent_name, parts }) => [agent_name, parts.map(({ type }) => type)]),
    [
      ["Guide", ["text", "handoff"]],
      ["Clerk", ["text"]],
    ],
  );
});

test("a view is replaced, closed, and has its actions", () => {
  const view = (tree, view_id = "v1") => ({
    type: "assistant.view",
    ...AGENT,
    payload: { view: { kind: "a2ui.v1", view_id, tree } },
  });
  const form = { type: "form", id: "f", fields: [] };
  const act = {
    type: "ui.action",
    origin: "ui",
    actor: "ada",
    payload: { view_id: "v1", action: { kind: "form.submit", form_id: "f", values: {} } },
  };
  const { parts } = fold(start(), view(form), view(form), act, view({})).snapshot.messages[0];
  assert.deepEqual(
    parts.map(({ state, actions }) => [state, actions.map(({ actor }) => actor)]),
    [
      ["replaced", []],
      ["closed", ["ada"]],
    ],
  );
});

test("who stopped an agent is in its ending", () => {
  const stop = { type: "ui.command", actor: "ada", origin: "ui", payload: { command: { kind: "stop" } } };
  const { ending, state } = fold(start(), stop, end(AGENT, "cancelled")).snapshot.messages[0];
  assert.deepEqual([state, ending.stop_reason, ending.actor], ["done", "cancelled", "ada"]);
});

test("title, members and files", () => {
  const { title, members, messages } = fold(
    { type: "session.title", payload: { title: "Oslo" } },
    { type: "session.member", payload: { principal: "ada", roles: ["owner"], name: "Ada" } },
    { type: "session.member", payload: { principal: "ada", roles: [] } },
    {
      type: "assistant.files",
      payload: { files: [{ file_id: "f", filename: "a.pdf", storage_location: "api/blobs/x" }] },
    },
  ).snapshot;
  assert.deepEqual([title, members], ["Oslo", [{ principal: "ada", name: "Ada", roles: [] }]]);
  assert.deepEqual([messages[0].parts[0].type, messages[0].parts[0].src], ["file", "api/blobs/x"]);
});

test("who closed the session, and why", () => {
  const close = { type: "session.close", actor: "ada", payload: { by: "ada", reason: "Booked." } };
  const before = fold(says("Go"), start(), end(AGENT)).snapshot;
  const { status, ending, messages } = fold(says("Go"), start(), end(AGENT), close).snapshot;
  assert.deepEqual([before.status, before.ending], ["idle", null]);
  assert.deepEqual([status, ending.actor, ending.reason, ending.seq], ["closed", "ada", "Booked.", 3]);
  assert.equal(messages.length, before.messages.length);
  assert.equal(fold({ ...close, payload: { by: "ada" } }).snapshot.ending.reason, null);
});

test("every vector of endings folds to who closed the session, and why", () => {
  for (const { name, events, closed, ending } of vectors("state/endings").cases) {
    const { snapshot } = reduceEvents(emptyState("s"), logOf(events));
    assert.equal(snapshot.status === "closed", closed, name);
    const { actor, reason, seq } = snapshot.ending ?? {};
    assert.deepEqual(snapshot.ending && { actor, reason, seq }, ending, name);
  }
});

test("a reset drops everything but what this page sends", () => {
  const state = resetState(fold(says("Go"), start()));
  assert.deepEqual([state.snapshot.messages, state.tree.open.size, state.snapshot.last], [[], 0, -1]);
});

test("every vector of agents folds to the same, whole and event by event", () => {
  for (const { events } of vectors("state/tree").cases) {
    const log = logOf(events);
    const singly = log.reduce((state, event) => reduceEvents(state, [event]), emptyState("s"));
    assert.deepEqual(singly.snapshot, reduceEvents(emptyState("s"), log).snapshot);
  }
});

/** A server with one session: `append` adds an event and streams it; requests are answered by `answers`. */
async function serve(t, { token = () => true } = {}) {
  const log = [];
  const streams = new Set();
  const posts = [];
  const refusals = [];
  const frame = (event) => `id: ${event.seq}:k1\ndata: ${JSON.stringify(event)}\n\n`;
  const append = (entry) => {
    const [event] = logOf([entry]);
    const stored = { ...event, seq: log.length, id: entry.id ?? `evt_${log.length}` };
    log.push(stored);
    for (const stream of streams) stream.write(frame(stored));
    return stored.seq;
  };
  const stream = (request, response) => {
    const after = Number.parseInt(new URL(request.url, "http://x").searchParams.get("after"), 10);
    response.writeHead(200, { "content-type": "text/event-stream" });
    response.write(
      log
        .slice(after + 1)
        .map(frame)
        .join("") + "event: caught-up\ndata: {}\n\n",
    );
    streams.add(response);
    response.on("close", () => streams.delete(response));
  };
  const server = createServer(async (request, response) => {
    if (!token(request.headers.authorization)) {
      refusals.push(request.url);
      response.writeHead(401, { "content-type": "application/json" }).end('{"error":"expired"}');
      return;
    }
    if (request.method === "GET") {
      stream(request, response);
      return;
    }
    const body = JSON.parse(((await Array.fromAsync?.(request)) ?? (await collect(request))).join(""));
    posts.push(body);
    const answer = serve.answer?.(body) ?? {
      status: 202,
      seqs: body.events.map((event) => append({ ...event, origin: "ui" })),
    };
    response.writeHead(answer.status, { "content-type": "application/json" }).end(JSON.stringify(answer));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const url = `http://127.0.0.1:${server.address().port}/`;
  return { url, append, posts, streams, refusals, log };
}

async function collect(request) {
  const chunks = [];
  for await (const chunk of request) chunks.push(chunk);
  return chunks;
}

/** Open a store, and wait until a condition holds of its snapshot. */
function open(t, options) {
  const store = new SessionStore({ session: "sess_1", retryMs: 1, timing: { retryMs: 2, maxRetryMs: 5 }, ...options });
  const until = (holds) =>
    new Promise((resolve) => {
      const look = () => {
        if (!holds(store.getSnapshot())) return;
        setTimeout(() => unsubscribe());
        resolve(store.getSnapshot());
      };
      const unsubscribe = store.subscribe(look);
      look();
    });
  t.after(() => store.close());
  return { store, until };
}

const texts = ({ messages }) => messages.flatMap(({ parts }) => parts.map(({ text }) => text));

test("a store without the id of a session is refused at once", () => {
  for (const session of [undefined, ""])
    assert.throws(() => new SessionStore({ session }), { name: "TypeError", message: /expected the id of a session/ });
});

test("a store can be made and read without a server and a document", () => {
  const store = new SessionStore({ session: "sess_1" });
  assert.equal(store.getSnapshot(), store.getSnapshot());
  assert.deepEqual([store.getSnapshot().messages, store.getSnapshot().connection], [[], "connecting"]);
});

test("history comes, then live events; the snapshot stays the same between changes", async (t) => {
  const server = await serve(t);
  server.append(says("Hello"));
  const { store, until } = open(t, { url: server.url });
  const first = await until(({ hasHistory }) => hasHistory);
  assert.deepEqual([texts(first), first.connection], [["Hello"], "live"]);
  assert.equal(store.getSnapshot(), first);
  server.append(says("Bye", "tr_2"));
  const { messages } = await until((snapshot) => snapshot.last === 1);
  assert.equal(messages[0], first.messages[0]);
});

test("a message appears at once and is replaced by its event, once", async (t) => {
  const server = await serve(t);
  const { store, until } = open(t, { url: server.url, principal: "ada" });
  await until(({ hasHistory }) => hasHistory);
  const sending = store.send("Oslo");
  const [message] = store.getSnapshot().messages;
  assert.deepEqual([message.state, message.author, texts(store.getSnapshot())], ["sending", "ada", ["Oslo"]]);
  const id = await sending;
  const { messages } = await until(({ last }) => last === 0);
  assert.deepEqual([messages.length, messages[0].id, messages[0].state], [1, id, "sent"]);
});

test("a message that the server refuses stays as failed, and can be sent again under its id", async (t) => {
  const server = await serve(t);
  const { store, until } = open(t, { url: server.url });
  await until(({ hasHistory }) => hasHistory);
  serve.answer = () => ({ status: 409, error: "too late" });
  t.after(() => (serve.answer = undefined));
  await assert.rejects(store.send("Oslo"), Conflict);
  const [{ id, state, error }] = store.getSnapshot().messages;
  assert.deepEqual([state, error.message], ["failed", "too late"]);
  serve.answer = undefined;
  await store.retry(id);
  await until(({ last }) => last === 0);
  assert.deepEqual(
    store.getSnapshot().messages.map((each) => [each.id, each.state]),
    [[id, "sent"]],
  );
  assert.deepEqual(new Set(server.posts.map(({ events }) => events[0].id)), new Set([id]));
  await assert.rejects(async () => store.retry(id), TypeError);
});

test("a failed message can be discarded", async (t) => {
  const server = await serve(t);
  const { store } = open(t, { url: server.url });
  serve.answer = () => ({ status: 400, error: "no" });
  t.after(() => (serve.answer = undefined));
  await assert.rejects(store.send("Oslo"));
  store.discard(store.getSnapshot().messages[0].id);
  assert.deepEqual(store.getSnapshot().messages, []);
});

test("a token that expires in mid-stream is renewed; nothing is lost and nothing doubled", async (t) => {
  let valid = "one";
  const server = await serve(t, { token: (header) => header === `Bearer ${valid}` });
  server.append(says("One"));
  const asked = [];
  const token = async () => {
    asked.push(valid);
    return valid;
  };
  const { store, until } = open(t, { url: server.url, token });
  await until(({ hasHistory }) => hasHistory);
  valid = "two";
  for (const stream of server.streams) stream.destroy(); // as the server ends the stream of an expired token
  server.append(says("Two", "tr_2"));
  await until(({ last }) => last === 1);
  await store.send("Three");
  await until(({ last }) => last === 2);
  assert.deepEqual(
    [...texts(store.getSnapshot()), ...store.getSnapshot().queue.map(({ parts }) => parts[0].text)].sort(),
    ["One", "Three", "Two"],
  );
  assert.deepEqual(asked, ["one", "two"]);
  assert.equal(server.refusals.length, 1);
});

test("control: a fixed token that expires ends the feed", async (t) => {
  let valid = "one";
  const server = await serve(t, { token: (header) => header === `Bearer ${valid}` });
  const { store, until } = open(t, { url: server.url, token: "one" });
  await until(({ hasHistory }) => hasHistory);
  valid = "two";
  for (const stream of server.streams) stream.destroy();
  const { error } = await until(({ connection }) => connection === "refused");
  assert(error instanceof NotSignedIn);
  await assert.rejects(store.send("Lost"), NotSignedIn);
});

test("a store that was refused connects again when it is opened or gets a first subscriber", async (t) => {
  let valid = "one";
  const server = await serve(t, { token: (header) => header === `Bearer ${valid}` });
  server.append(says("One"));
  let token = "wrong";
  const { store } = open(t, { url: server.url, token: () => token });
  const wait = (holds) =>
    new Promise((resolve) => {
      const leave = store.subscribe(() => {
        if (!holds(store.getSnapshot())) return;
        leave();
        resolve(store.getSnapshot());
      });
    });
  const isRefused = ({ connection }) => connection === "refused";
  const isLive = ({ connection }) => connection === "live";
  assert((await wait(isRefused)).error instanceof NotSignedIn);
  store.close();
  assert.equal(store.getSnapshot().connection, "refused");

  token = "one";
  const { error, messages } = await wait(isLive);
  assert.equal(error, null);
  assert.equal(messages.length, 1);

  valid = "two";
  for (const stream of server.streams) stream.destroy();
  await wait(isRefused);
  token = "two";
  store.open();
  await wait(isLive);
});

test("a store that was left goes on from where it was", async (t) => {
  const server = await serve(t);
  server.append(says("One"));
  const { store, until } = open(t, { url: server.url });
  const { messages } = await until(({ hasHistory }) => hasHistory);
  store.close();
  assert.equal(store.getSnapshot().connection, "closed");
  server.append(says("Two", "tr_2"));
  const later = await until(({ last }) => last === 1);
  assert.equal(later.messages[0], messages[0]);
});
