// The hooks of @turnlog/react as a server renders them: without a document, and without a connection.

import assert from "node:assert/strict";
import { test } from "node:test";

import { createElement } from "react";
import { renderToString } from "react-dom/server";

import { Client } from "../client/index.js";
import * as hooks from "../react/index.js";

const { TurnlogProvider } = hooks;
const requests = [];
const fetch = (url) => {
  requests.push(url);
  return new Promise(() => {});
};
const client = new Client({ url: "http://127.0.0.1:1/", fetch });

/** Return what a hook returns in a component below a provider. */
function read(useValue, props = { client }) {
  const values = [];
  const Reader = () => {
    values.push(useValue());
    return null;
  };
  renderToString(createElement(TurnlogProvider, props, createElement(Reader)));
  assert.equal(values.length, 1);
  assert.deepEqual(requests, [], "nothing connects");
  return values[0];
}

test("a session without events", () => {
  const session = read(() => hooks.useSession("sess_1"));
  const { messages, pending, status, connection, hasHistory } = session;
  assert.deepEqual(
    { messages, pending, status, connection, hasHistory },
    { messages: [], pending: [], status: "idle", connection: "connecting", hasHistory: false },
  );
  for (const name of ["send", "retry", "discard", "stop", "answer", "fail", "decide", "act"]) {
    assert.equal(typeof session[name], "function", name);
  }
  assert.equal(session.store.session, "sess_1");
});

test("single values, messages and parts of a session without events", () => {
  assert.equal(
    read(() => hooks.useSessionValue("sess_1", (snapshot) => snapshot.last)),
    -1,
  );
  assert.deepEqual(
    read(() => hooks.useMessageIds("sess_1")),
    [],
  );
  assert.deepEqual(
    read(() => hooks.usePartIds("sess_1", "msg_1")),
    [],
  );
  assert.equal(
    read(() => hooks.useMessage("sess_1", "msg_1")),
    undefined,
  );
  assert.equal(
    read(() => hooks.usePart("sess_1", "msg_1", "part_1", ({ type }) => type)),
    undefined,
  );
  assert.equal(typeof read(() => hooks.useSessionActions("sess_1")).send, "function");
});

test("the client of the provider, or one with its options", () => {
  assert.equal(read(hooks.useClient), client);
  assert(read(hooks.useClient, { url: "http://127.0.0.1:1/", fetch }) instanceof Client);
});

test("a hook without a provider names what is missing", () => {
  const Lost = () => hooks.useSession("sess_1").status;
  assert.throws(() => renderToString(createElement(Lost)), /expected a <TurnlogProvider>/);
});
