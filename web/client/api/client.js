/**
 * `Client`: what a page asks of a server besides following it.
 *
 * Whatever changes something is sent with an identity of its own, so that it can be sent again when no answer
 * came, and happens once. What is refused is thrown as a `HttpError` with its status (`errors.js`).
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

  /** Send a message; without a session to the caller's own one of the application. */
  send(message, { session, app, channel, target, key = newId() } = {}) {
    const body = { message, session, app, channel, targetAgent: target };
    return this.#post("api/send", body, { "idempotency-key": key });
  }

  /** Post events of a page, all or none; returns their seqs. */
  async dispatch(session, events) {
    const named = events.map((event) => ({ ...event, id: event.id ?? `evt_${newId()}` }));
    return (await this.#post("api/events", { session, events: named })).seqs;
  }

  /** Stop what runs in a session, or one turn or agent of it. */
  stop(session, { turn, agent } = {}) {
    return this.#dispatchOne(session, "ui.command", { command: { kind: "stop", turn, agent_id: agent } });
  }

  /** Answer a call that waits for the page. */
  answer(session, { call_id, tool }, result) {
    return this.#dispatchOne(session, "tool.result", { call_id, tool, ok: true, result, error: null });
  }

  /** Say that a call cannot be answered: `fault` is {code, message, details?}. */
  fail(session, { call_id, tool }, fault) {
    return this.#dispatchOne(session, "tool.result", { call_id, tool, ok: false, result: null, error: fault });
  }

  /** Decide about an `approval.request`: "approve" or "deny". */
  decide(session, { call_id, args_hash }, decision, notes) {
    return this.#dispatchOne(session, "approval.decision", { call_id, args_hash, decision, notes });
  }

  /** Act on a view; `shown` is the id of the `assistant.view` that the person saw. */
  submitView(session, view_id, action, { shown } = {}) {
    return this.#dispatchOne(session, "ui.action", { action, view_id, shown });
  }

  /** Give the input that a call asked for. */
  submitInput(session, { call_id }, values) {
    return this.#dispatchOne(session, "ui.action", { action: { kind: "input.submit", values }, call_id });
  }

  /** The path of a link that makes one person a member with these roles: once, within 7 days. */
  async link(session, roles, { key = newId() } = {}) {
    return (await this.#post("api/links", { session, roles }, { "idempotency-key": key })).path;
  }

  /** The open invitations of the caller, or with a session its open links and invitations. */
  async listInvites({ session } = {}) {
    return (await this.#get("api/invites", { session })).invites;
  }

  /** Become a member by an invitation of the caller's own. */
  acceptInvite(session, invite) {
    return this.#post("api/invites/accept", { session, invite });
  }

  /** Decline an invitation of the caller's own. */
  declineInvite(session, invite) {
    return this.#post("api/invites/decline", { session, invite });
  }

  /** End a link or an invitation that was not used. */
  revokeInvite(session, invite) {
    return this.#post("api/invites/revoke", { session, invite });
  }

  async createSession({ app, title, key = newId() } = {}) {
    return (await this.#post("api/sessions", { app, title }, { "idempotency-key": key })).session_id;
  }

  /** A page of the caller's sessions, the last active first: {sessions, next}; or the one that is named. */
  listSessions({ session, limit, after } = {}) {
    return this.#get("api/sessions", { session, limit, after });
  }

  /** The state now, or as of a seq; `include` some of transcript, meters, open, roster. */
  state(session, { at, include = [] } = {}) {
    return this.#get("api/state", { session, at, include: include.join(",") });
  }

  /** The documents of a session, or of a page of the caller's sessions: {documents, next}. */
  documents({ session, type, category, limit, after } = {}) {
    return this.#get("api/documents", { session, type, category, limit, after });
  }

  /** The log of a session as lines of JSON, the first of which describes it. */
  log(session, { after } = {}) {
    return this.#get("api/log", { session, after });
  }

  /** Forget who is signed in, in this browser. */
  signOut() {
    return this.#post("api/sign-out", {});
  }

  me() {
    return this.#get("api/me");
  }

  /** The applications that are served, as they describe themselves. */
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

  /** Ask until there is an answer, waiting longer each time. */
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

/** The JSON of an answer, or its text if it is something else. */
function parseResponse({ response, text }) {
  const isJson = /^application\/json(;|$)/.test(response.headers.get("content-type"));
  const content = isJson && text ? JSON.parse(text) : text;
  if (response.ok) return content;
  const retryAfterMs = 1000 * (Number(response.headers.get("retry-after")) || 0);
  throw createHttpError(response.status, content?.error, { fault: content?.fault, retryAfterMs });
}
