/**
 * `connect`: follow one or several sessions from a cursor, until the page closes the feed.
 *
 * Every event is delivered once and in order, or `onReset` announces that all events come again. A connection without
 * a sign of life for 2.5 heartbeats is replaced, and every connection when the browser goes offline. The tabs of a browser share one connection where the browser can
 * (`shared-connection.ts`). `followEvents` is the same as an async iterator.
 */

import type { HttpError } from "../api/errors.js";
import type { LogEvent } from "../events.js";
import { baseUrl, buildUrl } from "../shared/urls.js";
import { Connection, type MakeConnection } from "./connection.js";
import { createSender, type RequestOptions, type SendRequest } from "./credentials.js";
import { Cursors, formatCursor } from "./cursor.js";
import { eventSourceStream } from "./eventsource-stream.js";
import { fetchStream, type OpenStream } from "./fetch-stream.js";
import { SharedConnection } from "./shared-connection.js";
import { Subscription } from "./subscription.js";

/**
 * The state of a feed: `catching-up` while the history comes, `live` when the server says that it has sent it,
 * `closed` when the feed has ended, `refused` when the server denied access.
 */
export type FeedState = "connecting" | "catching-up" | "live" | "reconnecting" | "closed" | "refused";

/** The dialects of every server; an application may add more. */
export type Dialect = "turnlog" | "blocks" | "blocks-xml" | "blocks-raw" | "office" | "agentic";

// `string & {}` lets editors complete the known names
type OtherDialect = Exclude<Dialect, "turnlog"> | (string & {});

/** The cursor cannot be continued: all events come again. Discard everything folded from this session. */
export interface Reset {
  type: "reset";
  reason: "epoch" | "ahead" | "expired" | "pruned";
  session_id: string;
  epoch: string;
  first: number;
  last: number;
}

/** The position of an event; `cursor` is the `after` that continues behind it. */
export interface EventPosition {
  session: string;
  cursor: string;
}

export interface Timing {
  /** The server's heartbeat interval; after 2.5 times as long without a byte the client reconnects. */
  heartbeatMs: number;
  /** The first delay before a reconnect; it doubles up to `maxRetryMs`, with jitter. */
  retryMs: number;
  maxRetryMs: number;
}

export interface FeedOptions extends RequestOptions {
  /**
   * A cursor for each session, separated by commas. Null, "" or nothing is the start; "end", also for single sessions,
   * is only new events.
   */
  after?: string | null;
  /** Only these types or type prefixes. */
  types?: string[];
  /** Only events of at most this depth. */
  depth?: number;
  /** Only this turn; the feed closes when the turn is over or waits. */
  turn?: string;
  /** Options of the dialect. */
  parameters?: { [name: string]: string | number | boolean };
  /** By default `fetch`: it loads history five times as fast as `eventsource`, which sends no token and no header. */
  transport?: "fetch" | "eventsource";
  /**
   * Whether tabs of this browser share one connection; by default those without a token do. With a text, the name of
   * the signed-in person, only tabs with the same text share.
   */
  share?: boolean | string;
  timing?: Partial<Timing>;
  onReset?: (reset: Reset) => void;
  onState?: (state: FeedState) => void;
  /** The server refused access, and the feed has ended. */
  onError?: (error: HttpError) => void;
}

export type SessionSelection = { session: string; sessions?: undefined } | { sessions: string[]; session?: undefined };

/** Options of the dialect `turnlog`: events are objects. */
export type EventOptions = FeedOptions &
  SessionSelection & { dialect?: "turnlog"; onEvent?: (event: LogEvent, place: EventPosition) => void };

/** Options of other dialects: messages are texts. */
export type TextOptions = FeedOptions &
  SessionSelection & { dialect: OtherDialect; onEvent?: (data: string, place: EventPosition) => void };

export type ConnectOptions = EventOptions | TextOptions;

/** An open subscription of one or several sessions. */
export interface Feed {
  readonly state: FeedState;
  /** The current cursor: `after` of a later `connect`. */
  readonly cursor: string;
  close(): void;
}

const DEFAULT_TIMING: Timing = { heartbeatMs: 15_000, retryMs: 1000, maxRetryMs: 30_000 };
const LEADER_SLACK = 1.1; // a follower waits longer for the leader than the leader for the server

// commas separate the sessions of a stream
const isSessionName = (session: string | undefined): session is string => /^[^,]+$/.test(session ?? "");

class OpenFeed implements Feed {
  #subscription: Subscription;
  #source: Connection | SharedConnection;
  #signal: AbortSignal | undefined;

  constructor(subscription: Subscription, source: Connection | SharedConnection, signal: AbortSignal | undefined) {
    this.#subscription = subscription;
    this.#source = source;
    this.#signal = signal;
    globalThis.addEventListener?.("online", this.#onOnline);
    globalThis.addEventListener?.("offline", this.#onOffline);
    signal?.addEventListener("abort", this.#onAbort);
    if (signal?.aborted) this.close();
  }

  #onOnline = () => this.#source.reconnectNow();
  #onOffline = () => this.#source.disconnect();
  #onAbort = () => this.close();

  get state(): FeedState {
    return this.#subscription.state;
  }

  get cursor(): string {
    return this.#subscription.cursors.text;
  }

  close(): void {
    globalThis.removeEventListener?.("online", this.#onOnline);
    globalThis.removeEventListener?.("offline", this.#onOffline);
    this.#signal?.removeEventListener("abort", this.#onAbort);
    this.#source.close();
    this.#subscription.close();
  }
}

/** Follow sessions: every event is delivered once and in order. */
export function connect(options: EventOptions): Feed;
export function connect(options: TextOptions): Feed;
export function connect(options: ConnectOptions): Feed;
export function connect(options: ConnectOptions): Feed {
  return openFeed(options, createSender(options));
}

/** `connect` with a sender that other requests share. */
export function openFeed(options: ConnectOptions, send: SendRequest): Feed {
  const { sessions = [options.session ?? ""], dialect = "turnlog", after, signal } = options;
  if (!sessions.length || !sessions.every(isSessionName)) throw new TypeError(`expected sessions, got ${sessions}`);
  const timing = { ...DEFAULT_TIMING, ...options.timing };
  const parse = dialect === "turnlog" ? JSON.parse : String;
  const subscription = new Subscription({ sessions, after, parse, hooks: options });
  const makeConnection = connectionFactory(options, dialect, timing, send);
  const name = sharedConnectionName(options, dialect);
  if (name === null) return new OpenFeed(subscription, connectAlone(subscription, makeConnection), signal);
  const timeoutMs = 2.5 * timing.heartbeatMs * LEADER_SLACK;
  const shared = new SharedConnection({ name, subscription, connect: makeConnection, timeoutMs });
  return new OpenFeed(subscription, shared, signal);
}

function connectionFactory(
  options: ConnectOptions,
  dialect: string,
  timing: Timing,
  send: SendRequest,
): MakeConnection {
  const { types, depth, turn, transport = "fetch" } = options;
  const open = TRANSPORTS[transport](send);
  const root = baseUrl(options.url);
  const filters = { dialect, types: types?.join(","), depth, turn, ...options.parameters };
  const urlFor = (cursors: Cursors) =>
    buildUrl(root, "api/events", { session: cursors.sessions.join(","), ...filters, after: cursors.text });
  return (places, hooks) => {
    const cursors = new Cursors([...places.keys()], [...places.values()].map(formatCursor).join(","));
    return new Connection({ open, buildUrl: urlFor, cursors, timing, hooks });
  };
}

const TRANSPORTS: { [name in "fetch" | "eventsource"]: (send: SendRequest) => OpenStream } = {
  fetch: fetchStream,
  eventsource: eventSourceStream,
};

/** Open a connection for one subscription alone. */
function connectAlone(subscription: Subscription, makeConnection: MakeConnection): Connection {
  return makeConnection(subscription.cursors.places, {
    onRecords: (records) => records.forEach((record) => subscription.accept(record)),
    onState: (state) => subscription.setState(state),
    onRefused: (status, message) => subscription.refuse(status, message),
  });
}

/** Return the name of the tabs' channel and lock: equal for the same server, person and options. Null: do not share. */
function sharedConnectionName(options: ConnectOptions, dialect: string): string | null {
  const { token, share = !token, types = [], depth, turn } = options;
  const able = globalThis.document && globalThis.navigator?.locks && globalThis.BroadcastChannel;
  if (!share || !able || turn !== undefined) return null;
  const way = JSON.stringify([dialect, types, depth ?? null, options.parameters ?? {}]);
  return `turnlog 2 ${baseUrl(options.url)} ${share === true ? "" : share} ${way}`;
}
