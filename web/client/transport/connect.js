/**
 * `connect`: follow one or several sessions from a cursor, until the page closes the feed.
 *
 * Every event is delivered once and in order, or `onReset` announces that all events come again. A connection without
 * a sign of life for 2.5 heartbeats is replaced. The tabs of a browser share one connection where the browser can
 * (`shared-connection.js`).
 */

import { authHeaders, baseUrl, buildUrl } from "../shared/urls.js";
import { Connection } from "./connection.js";
import { Cursors, formatCursor } from "./cursor.js";
import { eventSourceStream } from "./eventsource-stream.js";
import { fetchStream } from "./fetch-stream.js";
import { SharedConnection } from "./shared-connection.js";
import { Subscription } from "./subscription.js";

const DEFAULT_TIMING = { heartbeatMs: 15_000, retryMs: 1000, maxRetryMs: 30_000 };
const LEADER_SLACK = 1.1; // a follower waits longer for the leader than the leader for the server

const isSessionName = (session) => /^[^,]+$/.test(session ?? ""); // commas separate the sessions of a stream

class Feed {
  #subscription;
  #source; // a Connection or a SharedConnection
  #onOnline;

  constructor(subscription, source) {
    this.#subscription = subscription;
    this.#source = source;
    this.#onOnline = () => source.reconnectNow();
    globalThis.addEventListener?.("online", this.#onOnline);
  }

  /** One of connecting, catching-up, live, reconnecting, closed, refused. */
  get state() {
    return this.#subscription.state;
  }

  /** The current cursor: `after` of a later `connect`. */
  get cursor() {
    return this.#subscription.cursors.text;
  }

  close() {
    globalThis.removeEventListener?.("online", this.#onOnline);
    this.#source.close();
    this.#subscription.close();
  }
}

export function connect(options) {
  const { sessions = [options.session], dialect = "turnlog", after } = options;
  if (!sessions.length || !sessions.every(isSessionName)) throw new TypeError(`expected sessions, got ${sessions}`);
  const timing = { ...DEFAULT_TIMING, ...options.timing };
  const parse = dialect === "turnlog" ? JSON.parse : String;
  const subscription = new Subscription({ sessions, after, parse, hooks: options });
  const makeConnection = connectionFactory(options, dialect, timing);
  const name = sharedConnectionName(options, dialect);
  if (name === null) return new Feed(subscription, connectAlone(subscription, makeConnection));
  const timeoutMs = 2.5 * timing.heartbeatMs * LEADER_SLACK;
  return new Feed(subscription, new SharedConnection({ name, subscription, connect: makeConnection, timeoutMs }));
}

/** Return the function that opens a stream: (session -> position, hooks) => Connection. */
function connectionFactory(options, dialect, timing) {
  const { types, depth, turn, transport = "fetch" } = options;
  const open = TRANSPORTS[transport](new Headers(authHeaders(options)));
  const root = baseUrl(options.url);
  const filters = { dialect, types: types?.join(","), depth, turn, ...options.parameters };
  const urlFor = (cursors) =>
    buildUrl(root, "api/events", { session: cursors.sessions.join(","), ...filters, after: cursors.text });
  return (places, hooks) => {
    const cursors = new Cursors([...places.keys()], [...places.values()].map(formatCursor).join(","));
    return new Connection({ open, buildUrl: urlFor, cursors, timing, hooks });
  };
}

const TRANSPORTS = { fetch: fetchStream, eventsource: eventSourceStream };

/** Open a connection for one subscription alone. */
function connectAlone(subscription, makeConnection) {
  return makeConnection(subscription.cursors.places, {
    onRecords: (records) => records.forEach((record) => subscription.accept(record)),
    onState: (state) => subscription.setState(state),
    onRefused: (...why) => subscription.refuse(...why),
  });
}

/** Return the name of the tabs' channel and lock: equal for the same server, person and options. Null: do not share. */
function sharedConnectionName(options, dialect) {
  const { token, share = !token, types = [], depth, turn } = options;
  const able = globalThis.document && globalThis.navigator?.locks && globalThis.BroadcastChannel;
  if (!share || !able || turn !== undefined) return null;
  const way = JSON.stringify([dialect, types, depth ?? null, options.parameters ?? {}]);
  return `turnlog 2 ${baseUrl(options.url)} ${share === true ? "" : share} ${way}`;
}
