// Files of messages: uploaded with or without progress, named by a message, read with the caller's token.

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";

import { Client, HttpError, SessionStore, TooMany, Unreachable } from "../client/index.js";

const STORED = { blob: "sess_1/abc", media_type: "text/plain", size_bytes: 5, url: "api/blobs/sess_1/abc" };

/** The requests of a browser with their progress, sent by `fetch`: Node has no `XMLHttpRequest`. */
class BrowserRequest {
  upload = {};
  #headers = {};
  #abort = new AbortController();

  open(method, url) {
    Object.assign(this, { method, url });
  }

  setRequestHeader(name, text) {
    this.#headers[name] = text;
  }

  getAllResponseHeaders() {
    return this.headers;
  }

  abort() {
    this.#abort.abort();
    this.onabort();
  }

  async send(body) {
    this.upload.onprogress({ loaded: 0, total: 0 });
    this.upload.onprogress({ loaded: body.size / 2, total: body.size });
    try {
      const { method } = this;
      const response = await fetch(this.url, { method, body, headers: this.#headers, signal: this.#abort.signal });
      this.status = response.status;
      this.responseText = await response.text();
      this.headers = [...response.headers].map(([name, text]) => `${name}: ${text}\r\n`).join("");
      this.onload();
    } catch {
      if (!this.#abort.signal.aborted) this.onerror();
    }
  }
}

/** A server that answers each request by `answer`, and the requests that it got. */
async function serving(t, answer) {
  const requests = [];
  const server = createServer(async (request, response) => {
    const { method, url, headers } = request;
    const text = (await request.setEncoding("utf-8").toArray()).join("");
    requests.push({ method, url, headers, text });
    answer(response, requests.at(-1));
  });
  await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
  t.after(() => {
    server.closeAllConnections();
    server.close();
  });
  const url = `http://127.0.0.1:${server.address().port}/below/`;
  return { client: new Client({ url, token: "secret", retryMs: 1 }), requests };
}

const json = (response, status, body, headers = {}) =>
  response.writeHead(status, { "content-type": "application/json", ...headers }).end(JSON.stringify(body));

function withBrowserRequest(t) {
  globalThis.XMLHttpRequest = BrowserRequest;
  t.after(() => delete globalThis.XMLHttpRequest);
}

const FILE = new Blob(["Hello"], { type: "text/plain" });

test("file is uploaded as bytes with its type and the token", async (t) => {
  const { client, requests } = await serving(t, (response) => json(response, 201, STORED));
  assert.deepEqual(await client.upload("sess_1", FILE), STORED);
  await client.upload("sess_1", new Blob(["# Hi"]), { type: "text/markdown", onProgress: () => {} });
  const [{ method, url, headers, text }, other] = requests;
  assert.deepEqual([method, url], ["POST", "/below/api/blobs?session=sess_1&media_type=text%2Fplain"]);
  assert.deepEqual(
    [headers["content-type"], headers.authorization, text],
    ["application/octet-stream", "Bearer secret", "Hello"],
  );
  assert.match(other.url, /media_type=text%2Fmarkdown/); // where nothing tells the progress it is uploaded all the same
});

test("upload tells its progress, its refusal, that no answer came, and can be stopped", async (t) => {
  withBrowserRequest(t);
  const answers = [
    (response) => json(response, 201, STORED),
    (response) => json(response, 429, { error: "too many uploads" }, { "retry-after": "7" }),
    (response) => response.destroy(),
    () => {},
  ];
  const { client, requests } = await serving(t, (response) => answers[requests.length - 1](response));
  const shares = [];
  const onProgress = (share) => shares.push(share);
  assert.deepEqual(await client.upload("sess_1", FILE, { onProgress }), STORED);
  assert.deepEqual(shares, [0, 0.5]);
  assert.equal(requests[0].headers.authorization, "Bearer secret");
  await assert.rejects(client.upload("sess_1", FILE, { onProgress }), (error) => {
    return error instanceof TooMany && error.retryAfterMs === 7000;
  });
  await assert.rejects(client.upload("sess_1", FILE, { onProgress }), Unreachable);
  const stop = new AbortController();
  const stopped = client.upload("sess_1", FILE, { onProgress, signal: stop.signal });
  stop.abort(new Error("removed"));
  await assert.rejects(stopped, /removed/);
});

test("file is read with the token, by an address with or without a slash", async (t) => {
  const { client, requests } = await serving(t, (response, { url }) =>
    url.endsWith("none") ? json(response, 404, {}) : response.end("Hello"),
  );
  assert.equal(await (await client.readFile("api/blobs/sess_1/abc")).text(), "Hello");
  assert.equal(await (await client.readFile("/api/blobs/sess_1/abc")).text(), "Hello");
  assert.deepEqual(new Set(requests.map(({ url }) => url)), new Set(["/below/api/blobs/sess_1/abc"]));
  assert.equal(requests[0].headers.authorization, "Bearer secret");
  await assert.rejects(client.readFile("api/blobs/sess_1/none"), HttpError);
});

test("address of another server, or of no blob, is not requested: members write it", async (t) => {
  const { client, requests } = await serving(t, (response) => response.end("Hello"));
  const addresses = ["http://127.0.0.1:9/api/blobs/a/b", "///127.0.0.1:9/api/blobs/a", "api/blobs/../log", "api/me"];
  for (const src of addresses) await assert.rejects(client.readFile(src), /expected a file of the server/);
  assert.deepEqual(requests, []);
});

test("message names its files, shows them at once, and names them again when it is retried", async (t) => {
  const answers = [400, 202];
  const { client, requests } = await serving(t, (response) =>
    json(response, answers[requests.length - 1], { seqs: [1] }),
  );
  const store = new SessionStore({ client, session: "sess_1" });
  const attachments = [
    { ...STORED, name: "notes.txt" },
    { ...STORED, media_type: "image/png", name: "harbour.png" },
  ];
  await assert.rejects(store.send("", { attachments }), HttpError);
  const [message] = store.getSnapshot().messages;
  assert.deepEqual(
    message.parts.map(({ type, filename, src }) => [type, filename, src]),
    [
      ["file", "notes.txt", STORED.url],
      ["file", "harbour.png", STORED.url],
    ],
  );
  await store.retry(message.id);
  const payloads = requests.map(({ text }) => JSON.parse(text).events[0].payload);
  const named = [
    { blob: "sess_1/abc", name: "notes.txt" },
    { blob: "sess_1/abc", name: "harbour.png" },
  ];
  assert.deepEqual(payloads, [
    { text: "", attachments: named },
    { text: "", attachments: named },
  ]);
});

test("message with a text has its text before its files", async (t) => {
  const { client } = await serving(t, (response) => json(response, 202, { seqs: [1] }));
  const store = new SessionStore({ client, session: "sess_1" });
  await store.send("Look", { attachments: [{ ...STORED, name: "notes.txt" }] });
  const [{ parts }] = store.getSnapshot().messages;
  assert.deepEqual(
    parts.map(({ type }) => type),
    ["text", "file"],
  );
});
