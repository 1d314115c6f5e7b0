/**
 * `Client`: every request to a server except the event stream (`transport/connect.js`).
 *
 * A request that changes something carries an idempotency key or event ids, so that it can be sent again when no
 * answer came and still takes effect once. A refusal is thrown as an `HttpError` (`errors.js`).
 */

import type { ApprovalRequest, ErrorInfo, EventType, Json, LogEvent, Payloads } from "../events.js";
import type { MetersReport } from "../folds/meters.js";
import type { Pending } from "../folds/pending.js";
import type { TranscriptMessage } from "../folds/transcript.js";
import type { SessionDocument } from "../team/documents.js";
import type { Team } from "../team/roster.js";
import { newId } from "../shared/ids.js";
import { baseUrl, buildUrl, type QueryValue } from "../shared/urls.js";
import { type ConnectOptions, type EventOptions, type Feed, openFeed, type TextOptions } from "../transport/connect.js";
import { createSender, type RequestOptions, type SendRequest } from "../transport/credentials.js";
import type { Action } from "../views/views.js";
import { createHttpError, HttpError, Unreachable } from "./errors.js";
import { fetchWithProgress, type UploadedFile, type UploadOptions } from "./upload.js";

const MAX_ATTEMPTS = 4;
const RETRY_STATUSES = new Set([429, 502, 503, 504]); // the same request may succeed later
const MAX_WAIT_MS = 10_000;

/** An event that a page posts. With an `id` it can be posted again and is appended once. */
export type PostedEvent = { [Type in EventType]: { type: Type; payload: Payloads[Type]; id?: string } }[EventType];

/** The position of a sent message; `session` only if the request named none. */
export interface SendResult {
  eventId: number;
  id: string;
  turn: string;
  session?: string;
}

/** An event of the application by its bare name. With an `id`, which may be a UUID, it is appended once. */
export interface DirectEvent {
  type: string;
  data?: { [name: string]: Json };
  id?: string;
}

/**
 * What came of a chat: the state after it, the text to show ("" if the turn has events alone), the application's events of
 * the turn, and the conversation.
 */
export interface ChatResult<State = Json> {
  turn: string;
  seq: number;
  state: State;
  displayText: string;
  events: Array<{ type: string; data: { [name: string]: Json }; origin: LogEvent["origin"] }>;
  messages: TranscriptMessage[];
}

/** The files that a message may have: the types, and the most bytes of a file by its kind. */
export interface AttachmentLimits {
  media_types: string[];
  max_bytes: number;
  max_image_bytes: number;
  max_text_bytes: number;
  max_count: number;
}

export interface SessionInfo {
  session_id: string;
  app: string;
  title: string;
  state: "idle" | "running" | "waiting" | "closed";
  roles: string[];
  members: number;
  created: string;
  last_activity: string;
  /** The roles that the member may invite. */
  invites: string[];
  /** What the member may do with the session. */
  may: Array<"rename" | "close" | "delete">;
  /** Only for members who see every channel. */
  last?: number;
  /** Only in the answer about one session. */
  attachments?: AttachmentLimits;
}

/** An application: `guide` is Markdown, `types` are its own event types; with `process` it takes commands. */
export interface AppInfo {
  name: string;
  title: string;
  guide: string;
  tries: string[];
  types: string[];
  agents: string[];
  channels: string[];
  process: boolean;
}

export interface StateResponse<State = Json> {
  seq: number;
  state: State;
  transcript?: TranscriptMessage[];
  meters?: MetersReport;
  open?: Pending;
  roster?: Team[];
}

/** An open invite; without a `principal` it is a link. */
export interface InviteInfo {
  session_id: string;
  invite: string;
  app: string;
  title: string;
  roles: string[];
  by: string;
  expires: string;
  principal?: string;
  /** What the creator of a link calls it. */
  name?: string;
}

/** Identifies a call: an item of `tool.await`, of `tool.call` or of `Pending.calls`. */
export interface CallReference {
  call_id: string;
  tool: string;
}

export interface ClientOptions extends RequestOptions {
  /** The first delay before a request is sent again. */
  retryMs?: number;
}

/** `connect` of a client has its url and its credentials. */
type WithoutRequest<Options> = Options extends unknown ? Omit<Options, keyof RequestOptions> : never;

interface ApiRequest {
  parameters?: { [name: string]: QueryValue };
  body?: object;
  headers?: { [name: string]: string };
  /** The answer to a request that is sent again, if it took effect before. */
  repeatedStatus?: number;
}

/** The requests of a page to a server. A change takes effect once, however often it is sent. */
export class Client {
  #options: ClientOptions;
  #send: SendRequest;

  constructor(options: ClientOptions = {}, send: SendRequest = createSender(options)) {
    this.#options = options;
    this.#send = send;
  }

  /** Return a client whose requests and feeds `signal` aborts, with the same credentials. */
  withSignal(signal: AbortSignal): Client {
    return new Client({ ...this.#options, signal }, this.#send);
  }

  /** Follow sessions with this client's credentials. */
  connect(options: WithoutRequest<EventOptions>): Feed;
  connect(options: WithoutRequest<TextOptions>): Feed;
  connect(options: WithoutRequest<ConnectOptions>): Feed {
    return openFeed({ ...this.#options, ...options } as ConnectOptions, this.#send);
  }

  /** Send a message; without a session to the caller's own session of the application. */
  send(
    message: string,
    options: {
      session?: string;
      app?: string;
      channel?: string;
      target?: string;
      /** Files that `upload` has stored, with their names for people. */
      attachments?: Array<{ blob: string; name: string }>;
      key?: string;
    } = {},
  ): Promise<SendResult> {
    const { session, app, channel, target, attachments, key = newId() } = options;
    const body = { message, session, app, channel, targetAgent: target, attachments };
    return this.#post("api/send", body, { "idempotency-key": key });
  }

  /** Send the events and the message of a role's page; return what came of the turn when it has ended or waits. */
  chat<State = Json>(
    role: string,
    options: { sessionId: string; message?: string; directEvents?: DirectEvent[]; key?: string },
  ): Promise<ChatResult<State>> {
    const { sessionId, message, directEvents, key = newId() } = options;
    const body = { sessionId, userMessage: message, directEvents };
    return this.#post(`api/chat/${encodeURIComponent(role)}`, body, { "idempotency-key": key });
  }

  /** Append events, all or none; return their seqs. */
  async dispatch(session: string, events: PostedEvent[]): Promise<number[]> {
    const withIds = events.map((event) => ({ ...event, id: event.id ?? `evt_${newId()}` }));
    return (await this.#post<{ seqs: number[] }>("api/events", { session, events: withIds })).seqs;
  }

  /** Upload a file for a message of a session. It is sent once: a caller may try again. */
  async upload(session: string, file: Blob, options: UploadOptions & { type?: string } = {}): Promise<UploadedFile> {
    const { onProgress, signal = this.#options.signal, type = file.type } = options;
    const send = onProgress
      ? createSender({ ...this.#options, fetch: fetchWithProgress(onProgress, this.#options.fetch) })
      : this.#send;
    const url = buildUrl(baseUrl(this.#options.url), "api/blobs", { session, media_type: type });
    const headers = { "content-type": "application/octet-stream" };
    const request: RequestInit = { method: "POST", headers, body: file, ...(signal && { signal }) };
    return parseResponse(await fetchText(send, url, request)) as UploadedFile;
  }

  /** Return a file of a session by the `src` of its part. Throws a `TypeError` for an address that is no blob of the server. */
  async readFile(src: string): Promise<Blob> {
    const { signal } = this.#options;
    const root = baseUrl(this.#options.url);
    const url = buildUrl(root, src.replace(/^\//, ""));
    // members write addresses: a request to another server would have the caller's token
    if (!url.startsWith(`${root}api/blobs/`)) throw new TypeError(`expected a file of the server, got ${src}`);
    const response = await this.#send(url, signal ? { signal } : {});
    if (!response.ok) throw createHttpError(response.status);
    return response.blob();
  }

  /** Stop all agents of a session, or one turn or agent. */
  stop(session: string, { turn, agent }: { turn?: string; agent?: string } = {}): Promise<number> {
    const command = { kind: "stop" as const, ...(turn && { turn }), ...(agent && { agent_id: agent }) };
    return this.#dispatchOne(session, "ui.command", { command });
  }

  /** Answer a call that waits for the page. */
  answer(session: string, { call_id, tool }: CallReference, result: Json): Promise<number> {
    return this.#dispatchOne(session, "tool.result", { call_id, tool, ok: true, result, error: null });
  }

  /** Answer a call with an error. */
  fail(session: string, { call_id, tool }: CallReference, fault: ErrorInfo): Promise<number> {
    return this.#dispatchOne(session, "tool.result", { call_id, tool, ok: false, result: null, error: fault });
  }

  /** Decide an `approval.request`: "approve" or "deny". */
  decide(
    session: string,
    { call_id, args_hash }: Pick<ApprovalRequest, "call_id" | "args_hash">,
    decision: "approve" | "deny",
    notes?: string,
  ): Promise<number> {
    const payload = { call_id, args_hash, decision, ...(notes !== undefined && { notes }) };
    return this.#dispatchOne(session, "approval.decision", payload);
  }

  /** Submit an action on a view; `shown` is the id of the `assistant.view` that the person saw. */
  submitView(session: string, view_id: string, action: Action, { shown }: { shown?: string } = {}): Promise<number> {
    return this.#dispatchOne(session, "ui.action", { action, view_id, ...(shown !== undefined && { shown }) });
  }

  /** Submit the input that a call asked for. */
  submitInput(session: string, { call_id }: { call_id: string }, values: { [name: string]: Json }): Promise<number> {
    return this.#dispatchOne(session, "ui.action", { action: { kind: "input.submit", values }, call_id });
  }

  /**
   * Create a link that makes one person a member with these roles; return its path. It works once, within 7 days.
   * `name` is what its creator calls it.
   */
  async link(session: string, roles: string[], options: { name?: string; key?: string } = {}): Promise<string> {
    const { name, key = newId() } = options;
    const made = await this.#post<{ path: string }>("api/links", { session, roles, name }, { "idempotency-key": key });
    return made.path;
  }

  /** Return the caller's open invitations, or with a session its open links and invitations. */
  async listInvites({ session }: { session?: string } = {}): Promise<InviteInfo[]> {
    return (await this.#get<{ invites: InviteInfo[] }>("api/invites", { session })).invites;
  }

  /** Accept an invitation of the caller. */
  acceptInvite(session: string, invite: string): Promise<{ eventId: number }> {
    return this.#post("api/invites/accept", { session, invite });
  }

  /** Decline an invitation of the caller. */
  declineInvite(session: string, invite: string): Promise<{ eventId: number }> {
    return this.#post("api/invites/decline", { session, invite });
  }

  /** Revoke an unused link or invitation. */
  revokeInvite(session: string, invite: string): Promise<{ eventId: number }> {
    return this.#post("api/invites/revoke", { session, invite });
  }

  async createSession(options: { app?: string; title?: string; key?: string } = {}): Promise<string> {
    const { app, title, key = newId() } = options;
    const headers = { "idempotency-key": key };
    return (await this.#post<{ session_id: string }>("api/sessions", { app, title }, headers)).session_id;
  }

  /** Give a session another title. */
  renameSession(
    session: string,
    title: string,
    { key = newId() }: { key?: string } = {},
  ): Promise<{ eventId: number }> {
    return this.#post("api/sessions/rename", { session, title }, { "idempotency-key": key });
  }

  /** Stop what runs or waits in a session, and close it. Its members see the reason, one line. */
  async closeSession(session: string, reason?: string): Promise<void> {
    await this.#post("api/sessions/close", { session, ...(reason && { reason }) });
  }

  /** Close a session and erase what it has. Its id is never used again. */
  async deleteSession(session: string): Promise<void> {
    await this.#requestWithRetry("POST", "api/sessions/delete", { body: { session }, repeatedStatus: 404 });
  }

  /**
   * Return a page of the caller's sessions, the last active first, or the named session. `next` is the `after` of the
   * next page. With `search` only those whose title contains it: a page may then be empty and have a `next`.
   */
  listSessions(
    options: { session?: string; limit?: number; after?: string; search?: string } = {},
  ): Promise<{ sessions: SessionInfo[]; next?: string }> {
    const { session, limit, after, search } = options;
    return this.#get("api/sessions", { session, limit, after, search });
  }

  /** Return the state now, or at a seq. */
  state<State = Json>(
    session: string,
    options: { at?: number | string; include?: Array<"transcript" | "meters" | "open" | "roster"> } = {},
  ): Promise<StateResponse<State>> {
    const { at, include = [] } = options;
    return this.#get("api/state", { session, at, include: include.join(",") });
  }

  /** Return the documents of a session, or of a page of the caller's sessions. */
  documents(
    options: { session?: string; type?: string; category?: string; limit?: number; after?: string } = {},
  ): Promise<{ documents: Array<SessionDocument & { session_id: string }>; next?: string }> {
    const { session, type, category, limit, after } = options;
    return this.#get("api/documents", { session, type, category, limit, after });
  }

  /** Return the log as lines of JSON: the first describes the session, each other one is an event. */
  log(session: string, { after }: { after?: number | string } = {}): Promise<string> {
    return this.#get("api/log", { session, after });
  }

  /** Sign this browser out. */
  signOut(): Promise<unknown> {
    return this.#post("api/sign-out", {});
  }

  /** Return the caller; `roles` are the server roles. A guest has the session of its invitation and creates none. */
  me(): Promise<{ name: string; roles: string[]; apps: string[]; may_create_sessions: boolean; session?: string }> {
    return this.#get("api/me");
  }

  /** Return the applications of the server, the default one first. */
  async apps(): Promise<AppInfo[]> {
    return (await this.#get<{ apps: AppInfo[] }>("api/apps")).apps;
  }

  async #dispatchOne<Type extends EventType>(session: string, type: Type, payload: Payloads[Type]): Promise<number> {
    const [seq] = await this.dispatch(session, [{ type, payload } as unknown as PostedEvent]);
    return seq as number;
  }

  #get<Content>(path: string, parameters: { [name: string]: QueryValue } = {}): Promise<Content> {
    return this.#requestWithRetry("GET", path, { parameters });
  }

  #post<Content>(path: string, body: object, headers: { [name: string]: string } = {}): Promise<Content> {
    return this.#requestWithRetry("POST", path, { body, headers });
  }

  /** Send a request until it is answered, with exponential backoff. */
  async #requestWithRetry<Content>(method: string, path: string, request: ApiRequest): Promise<Content> {
    const { retryMs = 500, signal } = this.#options;
    for (let attempt = 1; ; attempt += 1) {
      try {
        return (await this.#requestOnce(method, path, request)) as Content;
      } catch (error) {
        const refusal = error instanceof HttpError ? error : null;
        if (attempt > 1 && refusal !== null && refusal.status === request.repeatedStatus) return undefined as Content;
        const isPassing = error instanceof Unreachable || (refusal !== null && RETRY_STATUSES.has(refusal.status));
        if (!isPassing || attempt === MAX_ATTEMPTS || signal?.aborted) throw error;
        await sleep(Math.max(refusal?.retryAfterMs ?? 0, retryMs * 2 ** attempt * (0.5 + Math.random() / 2)));
      }
    }
  }

  async #requestOnce(method: string, path: string, { parameters, body, headers = {} }: ApiRequest): Promise<unknown> {
    const { signal } = this.#options;
    // here, so that a header that no request can hold is an error of the caller
    const sent = new Headers({ ...headers, ...(body && { "content-type": "application/json" }) });
    const request: RequestInit = { method, headers: sent, ...(signal && { signal }) };
    if (body) request.body = JSON.stringify(body);
    const url = buildUrl(baseUrl(this.#options.url), path, parameters);
    return parseResponse(await fetchText(this.#send, url, request));
  }
}

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, Math.min(ms, MAX_WAIT_MS)));

interface TextResponse {
  response: Response;
  text: string;
}

/** Throws `Unreachable` without an answer, and the reason of the signal if that aborts the request. */
async function fetchText(send: SendRequest, url: string, request: RequestInit): Promise<TextResponse> {
  try {
    const response = await send(url, request);
    return { response, text: await response.text() };
  } catch (error) {
    if (request.signal?.aborted) throw request.signal.reason;
    const why = error instanceof Error ? error.message : String(error);
    throw new Unreachable(`no answer from ${new URL(url).pathname}: ${why}`, { cause: error });
  }
}

/** Return the JSON of a response, or its text. Throws an `HttpError` for a refusal. */
function parseResponse({ response, text }: TextResponse): unknown {
  const isJson = /^application\/json(;|$)/.test(response.headers.get("content-type") ?? "");
  const content = isJson && text ? JSON.parse(text) : text;
  if (response.ok) return content;
  const retryAfterMs = 1000 * (Number(response.headers.get("retry-after")) || 0);
  throw createHttpError(response.status, content?.error, { fault: content?.fault, retryAfterMs });
}
