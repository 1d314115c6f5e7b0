/**
 * `connect`: follow one session or several, from any cursor, for as long as the page lives.
 *
 * Every event comes once and in order, whatever happens to the network, the server or other tabs; or `onReset`
 * says that everything comes again. A silent line is noticed after 2.5 heartbeats. Tabs of a browser share one
 * connection where they can (`tabs.js`).
 */

import { addressOf, headersOf, rootOf } from "../shared/urls.js";
import { Connection } from "./connection.js";
import { Cursors, textOf } from "./cursor.js";
import { eventSourceStream } from "./eventsource-stream.js";
import { fetchStream } from "./fetch-stream.js";
import { Reader } from "./subscription.js";
import { Tab } from "./shared-connection.js";

const TIMING = { heartbeatMs: 15_000, retryMs: 1000, maxRetryMs: 30_000 };
const SLACK = 1.1; // a tab waits a little longer for the leader than the leader for the server

const isName = (session) => /^[^,]+$/.test(session ?? ""); // commas stand between those of one stream

/** What `connect` gives: where it is, how it is, and the way to end it. */
class Feed {
  #reader;
  #lines; // who reads: a connection of its own, or a tab among others
  #hurry;

  constructor(reader, lines) {
    this.#reader = reader;
    this.#lines = lines;
    this.#hurry = () => lines.hurry();
    globalThis.addEventListener?.("online", this.#hurry);
  }

  /** connecting, catching-up, live, reconnecting, closed or refused. */
  get state() {
    return this.#reader.state;
  }

  /** The cursor to go on from: `after` of another `connect`. */
  get cursor() {
    return this.#reader.cursors.text;
  }

  close() {
    globalThis.removeEventListener?.("online", this.#hurry);
    this.#lines.close();
    this.#reader.close();
  }
}

/** Follow sessions. */
export function connect(options) {
  const { sessions = [options.session], dialect = "turnlog", after } = options;
  if (!sessions.length || !sessions.every(isName)) throw new TypeError(`expected sessions, got ${sessions}`);
  const timing = { ...TIMING, ...options.timing };
  const read = dialect === "turnlog" ? JSON.parse : String;
  const reader = new Reader({ sessions, after, read, hooks: options });
  const makeConnection = connecting(options, dialect, timing);
  const name = sharedName(options, dialect);
  if (name === null) return new Feed(reader, alone(reader, makeConnection));
  const patienceMs = 2.5 * timing.heartbeatMs * SLACK;
  return new Feed(reader, new Tab({ name, reader, connect: makeConnection, patienceMs }));
}

/** How a stream of some sessions is made: (session -> place, hooks) => Connection. */
function connecting(options, dialect, timing) {
  const { types, depth, turn, transport = "fetch" } = options;
  const open = TRANSPORTS[transport](new Headers(headersOf(options)));
  const root = rootOf(options.url);
  const filters = { dialect, types: types?.join(","), depth, turn, ...options.parameters };
  const urlOf = (cursors) =>
    addressOf(root, "api/events", { session: cursors.sessions.join(","), ...filters, after: cursors.text });
  return (places, hooks) => {
    const cursors = new Cursors([...places.keys()], [...places.values()].map(textOf).join(","));
    return new Connection({ open, urlOf, cursors, timing, hooks });
  };
}

const TRANSPORTS = { fetch: fetchStream, eventsource: eventSourceStream };

/** A reader with a connection of its own. */
function alone(reader, makeConnection) {
  return makeConnection(reader.cursors.places, {
    onRecords: (records) => records.forEach((record) => reader.take(record)),
    onState: (state) => reader.say(state),
    onRefused: (...why) => reader.refuse(...why),
  });
}

/** The name under which tabs find each other: the same server, the same person, the same way of reading. */
function sharedName(options, dialect) {
  const { token, share = !token, types = [], depth, turn } = options;
  const able = globalThis.document && globalThis.navigator?.locks && globalThis.BroadcastChannel;
  if (!share || !able || turn !== undefined) return null;
  const way = JSON.stringify([dialect, types, depth ?? null, options.parameters ?? {}]);
  return `turnlog 2 ${rootOf(options.url)} ${share === true ? "" : share} ${way}`;
}
