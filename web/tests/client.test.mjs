// `Client` against a small server: what is sent again is the same, what is refused is thrown.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";

import { Client, Conflict, HttpError, Invalid, NotFound, TooMany, Unreachable } from "../client/index.js";

const says =
  (status, body = {}, headers = {}) =>
  (response) =>
    response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body));
const breaks = (response) => response.destroy();

/** A client of a server that answers its requests one after the other. */
async function serving(t, ...answers) {
  const requests = [];
  const server = createServer(async (request, response) => {
    const { method, url, headers } = request;
    const text = (await request.setEncoding("utf-8").toArray()).join("");
    requests.push({ method, url, headers, body: text && JSON.parse(text) });
    answers[Math.min(requests.length, answers.length) - 1](response);
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const url = `http://127.0.0.1:${server.address().port}/below`;
  return { client: new Client({ url, token: "secret", retryMs: 1 }), requests };
}

test("a message that got no answer is sent again under the same key", async (t) => {
  const sent = { eventId: 3, id: "evt_1", turn: "tr_1" };
  const { client, requests } = await serving(t, breaks, says(503), says(202, sent));
  assert.deepEqual(await client.send("Hello", { session: "sess_1", target: "Guide" }), sent);
  const keys = new Set(requests.map(({ headers }) => headers["idempotency-key"]));
  assert.deepEqual([requests.length, keys.size], [3, 1]);
  assert.deepEqual(requests[0].body, { message: "Hello", session: "sess_1", targetAgent: "Guide" });
  assert.deepEqual([requests[0].url, requests[0].headers.authorization], ["/below/api/send", "Bearer secret"]);
});

test("a new title and a deletion take effect once, also if the first answer was lost", async (t) => {
  const { client, requests } = await serving(t, breaks, says(202, { eventId: 4 }));
  await client.renameSession("sess_1", "Oslo");
  const keys = requests.map(({ headers }) => headers["idempotency-key"]);
  assert.ok(keys[0] && keys[0] === keys[1]);
  const deleting = await serving(t, breaks, says(404, { error: "no session sess_1" }));
  await deleting.client.deleteSession("sess_1");
  const unknown = await serving(t, says(404, { error: "no session sess_1" }));
  await assert.rejects(unknown.client.deleteSession("sess_1"), NotFound);
});

test("a message names its files", async (t) => {
  const { client, requests } = await serving(t, says(202, {}));
  const attachments = [{ blob: "blob_1", name: "a.png" }];
  await client.send("Look", { session: "sess_1", attachments });
  assert.deepEqual(requests[0].body, { message: "Look", session: "sess_1", attachments });
});

test("a chat is sent to its role, again under the same key if no answer came", async (t) => {
  const answer = { turn: "tr_1", seq: 9, state: {}, displayText: "Thanks.", events: [], messages: [] };
  const { client, requests } = await serving(t, breaks, says(504), says(200, answer));
  const directEvents = [{ type: "record_eligibility", data: { isOver18: true }, id: "evt_1" }];
  const asked = { sessionId: "sess_1", message: "That is me", directEvents };
  assert.deepEqual(await client.chat("a/b", asked), answer);
  const keys = new Set(requests.map(({ headers }) => headers["idempotency-key"]));
  assert.deepEqual([requests.length, keys.size], [3, 1]);
  const { method, url, body } = requests[0];
  assert.deepEqual([method, url], ["POST", "/below/api/chat/a%2Fb"]);
  assert.deepEqual(body, { sessionId: "sess_1", userMessage: "That is me", directEvents });
});

test("a chat without a message or events leaves the field out", async (t) => {
  const { client, requests } = await serving(t, says(200));
  await client.chat("customer", { sessionId: "sess_1", message: "Hello", key: "k" });
  await client.chat("customer", { sessionId: "sess_1", directEvents: [], key: "k" });
  assert.deepEqual(
    requests.map(({ body }) => body),
    [
      { sessionId: "sess_1", userMessage: "Hello" },
      { sessionId: "sess_1", directEvents: [] },
    ],
  );
});

const CALL = { call_id: "c1", tool: "confirm", args: {} };

for (const [name, ask, type, payload] of [
  [
    "answer",
    (client) => client.answer("sess_1", CALL, true),
    "tool.result",
    { call_id: "c1", tool: "confirm", ok: true, result: true, error: null },
  ],
  [
    "fail",
    (client) => client.fail("sess_1", CALL, { code: "NO", message: "no" }),
    "tool.result",
    { call_id: "c1", tool: "confirm", ok: false, result: null, error: { code: "NO", message: "no" } },
  ],
  [
    "decide",
    (client) => client.decide("sess_1", { call_id: "c1", args_hash: "h" }, "deny"),
    "approval.decision",
    { call_id: "c1", args_hash: "h", decision: "deny" },
  ],
  [
    "stop",
    (client) => client.stop("sess_1", { turn: "tr_1" }),
    "ui.command",
    { command: { kind: "stop", turn: "tr_1" } },
  ],
  [
    "submitView",
    (client) => client.submitView("sess_1", "v", { kind: "button.click", button_id: "b" }, { shown: "evt_1" }),
    "ui.action",
    { action: { kind: "button.click", button_id: "b" }, view_id: "v", shown: "evt_1" },
  ],
  [
    "submitInput",
    (client) => client.submitInput("sess_1", CALL, { a: 1 }),
    "ui.action",
    { action: { kind: "input.submit", values: { a: 1 } }, call_id: "c1" },
  ],
]) {
  test(`${name} is one event, with the same id when it is sent again`, async (t) => {
    const { client, requests } = await serving(t, breaks, says(202, { seqs: [7] }));
    assert.equal(await ask(client), 7);
    const [first, second] = requests.map(({ body }) => body);
    assert.match(first.events[0].id, /^evt_\d+(-\d+){3}$/);
    assert.deepEqual(first, second);
    assert.deepEqual(first, { session: "sess_1", events: [{ id: first.events[0].id, type, payload }] });
  });
}

for (const [status, kind] of [
  [400, Invalid],
  [404, NotFound],
  [409, Conflict],
  [413, HttpError],
]) {
  test(`${status} is thrown at once, with what the server said`, async (t) => {
    const fault = { code: "VALIDATION_ERROR", message: "a must be a text", details: {} };
    const { client, requests } = await serving(t, says(status, { error: "no", fault }));
    await assert.rejects(client.dispatch("sess_1", []), (error) => {
      assert(error instanceof kind);
      assert.deepEqual([error.name, error.message, error.status, error.fault], [kind.name, "no", status, fault]);
      return true;
    });
    assert.equal(requests.length, 1);
  });
}

test("what does not pass is given up after four times", async (t) => {
  const { client, requests } = await serving(t, says(429, { error: "too many" }));
  await assert.rejects(client.listSessions(), TooMany);
  assert.equal(requests.length, 4);
});

test("a server that is not there", async () => {
  await assert.rejects(new Client({ url: "http://127.0.0.1:9/", retryMs: 1 }).me(), Unreachable);
});

test("signOut asks the server to forget the cookie", async (t) => {
  const { client, requests } = await serving(t, says(204, ""));
  await client.signOut();
  assert.deepEqual([requests[0].method, requests[0].url], ["POST", "/below/api/sign-out"]);
});

test("the applications come without what they are wrapped in", async (t) => {
  const { client, requests } = await serving(t, breaks, says(200, { apps: [{ name: "tour" }] }));
  assert.deepEqual(await client.apps(), [{ name: "tour" }]);
  assert.deepEqual(
    requests.map(({ method, url }) => [method, url]),
    [
      ["GET", "/below/api/apps"],
      ["GET", "/below/api/apps"],
    ],
  );
});

for (const type of ["application/jsonl", "application/x-ndjson", "text/plain; charset=utf-8"]) {
  test(`a log that comes as ${type} is text`, async (t) => {
    const { client } = await serving(t, says(200, { session: "sess_1" }, { "content-type": type }));
    assert.equal(await client.log("sess_1"), '{"session":"sess_1"}');
  });
}

test("a link is asked for with its session and roles", async (t) => {
  const { client, requests } = await serving(t, says(201, { path: "/below/sign-in?code=abc" }));
  assert.equal(await client.link("sess_1", ["customer"], { name: "Sarah" }), "/below/sign-in?code=abc");
  const [{ method, url, body }] = requests;
  assert.deepEqual(
    [method, url, body],
    ["POST", "/below/api/links", { session: "sess_1", roles: ["customer"], name: "Sarah" }],
  );
});

test("invites are listed, answered and revoked by session and invite", async (t) => {
  const named = { session: "sess_1", invite: "inv_1" };
  const done = says(202, { eventId: 7 });
  const { client, requests } = await serving(t, says(200, { invites: [named] }), done, done, done);
  assert.deepEqual(await client.listInvites({ session: "sess_1" }), [named]);
  for (const method of ["acceptInvite", "declineInvite", "revokeInvite"]) {
    assert.deepEqual(await client[method]("sess_1", "inv_1"), { eventId: 7 });
  }
  const [listed, ...posted] = requests.map(({ method, url, body }) => [method, url, body]);
  assert.deepEqual(listed.slice(0, 2), ["GET", "/below/api/invites?session=sess_1"]);
  assert.deepEqual(
    posted,
    ["accept", "decline", "revoke"].map((verb) => ["POST", `/below/api/invites/${verb}`, named]),
  );
});

for (const [name, ask, answer] of [
  ["a session", (client) => client.createSession({ title: "A" }), { session_id: "sess_1" }],
  ["a link", (client) => client.link("sess_1", ["customer"]), { path: "/sign-in?code=abc" }],
]) {
  test(`${name} that got no answer is asked for again under the same key`, async (t) => {
    const { client, requests } = await serving(t, breaks, says(201, answer));
    assert.equal(await ask(client), Object.values(answer)[0]);
    const keys = requests.map(({ headers }) => headers["idempotency-key"]);
    assert.equal(keys.length, 2);
    assert.equal(keys[0], keys[1]);
    assert.match(keys[0], /^[\w-]{16,}$/);
  });
}

test("an event whose id is undefined gets one, in a page without randomUUID too", async (t) => {
  t.mock.method(crypto, "randomUUID", () => assert.fail("only there in a secure context"));
  const { client, requests } = await serving(t, says(202, { seqs: [1, 2] }));
  const event = { type: "duo.note", payload: {} };
  await client.dispatch("sess_1", [
    { ...event, id: undefined },
    { ...event, id: "evt_mine" },
  ]);
  const [first, second] = requests[0].body.events;
  assert.deepEqual([/^evt_[-0-9]{4,60}$/.test(first.id), second.id], [true, "evt_mine"]);
});

test("a key that no header can hold is the caller's fault, and nothing is sent", async (t) => {
  const { client, requests } = await serving(t, says(202));
  await assert.rejects(client.send("Hello", { key: "\u2603" }), TypeError);
  assert.equal(requests.length, 0);
});

test("a refusal that says it is JSON and says nothing is one", async (t) => {
  const empty = (response) => response.writeHead(502, { "content-type": "application/json" }).end();
  const { client, requests } = await serving(t, empty);
  await assert.rejects(
    client.me(),
    (error) => error instanceof HttpError && error.message === "the server answered 502",
  );
  assert.equal(requests.length, 4);
});

test("a session is closed with a reason", async (t) => {
  const { client, requests } = await serving(t, (response) => response.writeHead(204).end());
  await client.closeSession("sess_1", "Booked.");
  assert.deepEqual(requests[0].body, { session: "sess_1", reason: "Booked." });
});

test("a session is renamed, closed and deleted by its id", async (t) => {
  const { client, requests } = await serving(t, says(202, { eventId: 4 }), (response) => response.writeHead(204).end());
  assert.deepEqual(await client.renameSession("sess_1", "Oslo"), { eventId: 4 });
  await client.closeSession("sess_1");
  await client.deleteSession("sess_1");
  assert.deepEqual(
    requests.map(({ url, body }) => [url, body]),
    [
      ["/below/api/sessions/rename", { session: "sess_1", title: "Oslo" }],
      ["/below/api/sessions/close", { session: "sess_1" }],
      ["/below/api/sessions/delete", { session: "sess_1" }],
    ],
  );
});

test("questions stand in the address", async (t) => {
  const { client, requests } = await serving(t, says(200, {}));
  await client.state("sess_1", { at: 0, include: ["open", "meters"] });
  await client.documents({ session: "sess_1", type: "message" });
  await client.listSessions({ limit: 20, after: "7-sess_1", search: "a trip" });
  assert.deepEqual(
    requests.map(({ url }) => url),
    [
      "/below/api/state?session=sess_1&at=0&include=open%2Cmeters",
      "/below/api/documents?session=sess_1&type=message",
      "/below/api/sessions?limit=20&after=7-sess_1&search=a+trip",
    ],
  );
});
