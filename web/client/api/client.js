/**
 * `Client`: every request to a server except the event stream (`transport/connect.js`).
 *
 * A request that changes something carries an idempotency key or event ids, so that it can be sent again when no
 * answer came and still takes effect once. A refusal is thrown as an `HttpError` (`errors.js`).
 */

import { newId } from "../shared/ids.js";
import { authHeaders, baseUrl, buildUrl } from "../shared/urls.js";
import { Unreachable, createHttpError } from "./errors.js";

const MAX_ATTEMPTS = 4;
const RETRY_STATUSES = new Set([429, 502, 503, 504]); // the same request may succeed later
const MAX_WAIT_MS = 10_000;

export class Client {
  #root;
  #headers;
  #retryMs;

  constructor({ url, token, principal, retryMs = 500 } = {}) {
    this.#root = baseUrl(url);
    this.#headers = authHeaders({ token, principal });
    this.#retryMs = retryMs;
  }

  /** Send a message; without a session to the caller's own session of the application. */
  send(message, { session, app, channel, target, key = newId() } = {}) {
    const body = { message, session, app, channel, targetAgent: target };
    return this.#post("api/send", body, { "idempotency-key": key });
  }

  /** Send the events and the message of a role's page; return what came of the turn when it has ended or waits. */
  chat(role, { sessionId, message, directEvents, key = newId() }) {
    const body = { sessionId, userMessage: message, directEvents };
    return this.#post(`api/chat/${encodeURIComponent(role)}`, body, { "idempotency-key": key });
  }

  /** Append events, all or none; return their seqs. */
  async dispatch(session, events) {
    const withIds = events.map((event) => ({ ...event, id: event.id ?? `evt_${newId()}` }));
    return (await this.#post("api/events", { session, events: withIds })).seqs;
  }

  /** Stop all agents of a session, or one turn or agent. */
  stop(session, { turn, agent } = {}) {
    return this.#dispatchOne(session, "ui.command", { command: { kind: "stop", turn, agent_id: agent } });
  }

  /** Answer a call that waits for the page. */
  answer(session, { call_id, tool }, result) {
    return this.#dispatchOne(session, "tool.result", { call_id, tool, ok: true, result, error: null });
  }

  /** Answer a call with an error: `fault` is {code, message, details?}. */
  fail(session, { call_id, tool }, fault) {
    return this.#dispatchOne(session, "tool.result", { call_id, tool, ok: false, result: null, error: fault });
  }

  /** Decide an `approval.request`: "approve" or "deny". */
  decide(session, { call_id, args_hash }, decision, notes) {
    return this.#dispatchOne(session, "approval.decision", { call_id, args_hash, decision, notes });
  }

  /** Submit an action on a view; `shown` is the id of the `assistant.view` that the person saw. */
  submitView(session, view_id, action, { shown } = {}) {
    return this.#dispatchOne(session, "ui.action", { action, view_id, shown });
  }

  /** Submit the input that a call asked for. */
  submitInput(session, { call_id }, values) {
    return this.#dispatchOne(session, "ui.action", { action: { kind: "input.submit", values }, call_id });
  }

  /** Create a link that makes one person a member with these roles; return its path. It works once, within 7 days. */
  async link(session, roles, { key = newId() } = {}) {
    return (await this.#post("api/links", { session, roles }, { "idempotency-key": key })).path;
  }

  /** Return the caller's open invitations, or with a session its open links and invitations. */
  async listInvites({ session } = {}) {
    return (await this.#get("api/invites", { session })).invites;
  }

  /** Accept an invitation of the caller. */
  acceptInvite(session, invite) {
    return this.#post("api/invites/accept", { session, invite });
  }

  /** Decline an invitation of the caller. */
  declineInvite(session, invite) {
    return this.#post("api/invites/decline", { session, invite });
  }

  /** Revoke an unused link or invitation. */
  revokeInvite(session, invite) {
    return this.#post("api/invites/revoke", { session, invite });
  }

  async createSession({ app, title, key = newId() } = {}) {
    return (await this.#post("api/sessions", { app, title }, { "idempotency-key": key })).session_id;
  }

  /** Return {sessions, next}: a page of the caller's sessions, the last active first, or the named session. */
  listSessions({ session, limit, after } = {}) {
    return this.#get("api/sessions", { session, limit, after });
  }

  /** Return the state now, or at a seq. `include` may name transcript, meters, open and roster. */
  state(session, { at, include = [] } = {}) {
    return this.#get("api/state", { session, at, include: include.join(",") });
  }

  /** Return {documents, next} of a session, or of a page of the caller's sessions. */
  documents({ session, type, category, limit, after } = {}) {
    return this.#get("api/documents", { session, type, category, limit, after });
  }

  /** Return the log as lines of JSON: the first describes the session. */
  log(session, { after } = {}) {
    return this.#get("api/log", { session, after });
  }

  /** Sign this browser out. */
  signOut() {
    return this.#post("api/sign-out", {});
  }

  me() {
    return this.#get("api/me");
  }

  async apps() {
    return (await this.#get("api/apps")).apps;
  }

  async #dispatchOne(session, type, payload) {
    const [seq] = await this.dispatch(session, [{ type, payload }]);
    return seq;
  }

  #get(path, parameters) {
    return this.#requestWithRetry("GET", path, { parameters });
  }

  #post(path, body, headers) {
    return this.#requestWithRetry("POST", path, { body, headers });
  }

  /** Send a request until it is answered, with exponential backoff. */
  async #requestWithRetry(...request) {
    for (let attempt = 1; ; attempt += 1) {
      try {
        return await this.#requestOnce(...request);
      } catch (error) {
        const passing = error instanceof Unreachable || RETRY_STATUSES.has(error.status);
        if (!passing || attempt === MAX_ATTEMPTS) throw error;
        await sleep(Math.max(error.retryAfterMs ?? 0, this.#retryMs * 2 ** attempt * (0.5 + Math.random() / 2)));
      }
    }
  }

  async #requestOnce(method, path, { parameters, body, headers = {} }) {
    const merged = { ...this.#headers, ...headers, ...(body && { "content-type": "application/json" }) };
    const request = { method, headers: new Headers(merged), body: JSON.stringify(body), cache: "no-store" };
    return parseResponse(await fetchText(buildUrl(this.#root, path, parameters), request));
  }
}

const sleep = (ms) => new Promise((resolve) => setTimeout(resolve, Math.min(ms, MAX_WAIT_MS)));

async function fetchText(url, request) {
  try {
    const response = await fetch(url, request);
    return { response, text: await response.text() };
  } catch (error) {
    throw new Unreachable(`no answer from ${new URL(url).pathname}: ${error.message}`, { cause: error });
  }
}

/** Return the JSON of a response, or its text. Throws an `HttpError` for a refusal. */
function parseResponse({ response, text }) {
  const isJson = /^application\/json(;|$)/.test(response.headers.get("content-type"));
  const content = isJson && text ? JSON.parse(text) : text;
  if (response.ok) return content;
  const retryAfterMs = 1000 * (Number(response.headers.get("retry-after")) || 0);
  throw createHttpError(response.status, content?.error, { fault: content?.fault, retryAfterMs });
}
