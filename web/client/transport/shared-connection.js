/**
 * One connection for all tabs of a browser: HTTP/1.1 allows six to a server, and the seventh tab would hang.
 *
 * The tab that holds a Web Lock is the leader: it reads the sessions of all tabs and sends every record over a
 * BroadcastChannel. A follower starts with a stream of its own, joins, and closes that stream when it has all that the
 * leader has. Every record carries the position before it: a follower that missed one opens a stream of its own again,
 * and so it does when the leader is silent for too long. When the leader closes, the next holder of the lock leads
 * from its own cursors, and the others join again.
 *
 * Messages: `lead`, `join` {tab, places}, `at` {places, state}, `records` {records}, `alone` {tab}: read without the
 * leader.
 */

import { newId } from "../shared/ids.js";
import { covers, startPosition } from "./cursor.js";
import { Watchdog } from "./watchdog.js";

const MAX_SESSIONS = 32; // per stream (docs/protocol.md, section 8)
const GATHER_MS = 30; // tabs that join within this time get one new stream

export class SharedConnection {
  #id = newId();
  #name;
  #subscription;
  #connect; // (session -> position, hooks) => Connection
  #channel;
  #locks = new AbortController();
  #release = () => {};
  #connection = null;
  #isLeader = false;
  #followers = new Map(); // leader only: tab -> session -> position
  #gatherTimer = null;
  #leaderCursors = new Map(); // follower only: the leader's positions in this tab's sessions
  #leaderState = "connecting";
  #watchdog;

  constructor({ name, subscription, connect, timeoutMs }) {
    this.#name = name;
    this.#subscription = subscription;
    this.#connect = connect;
    this.#watchdog = new Watchdog(timeoutMs, () => this.#readAlone());
    this.#channel = new BroadcastChannel(name);
    this.#channel.onmessage = ({ data }) => this.#onMessage(data);
    this.#start();
  }

  /** Close the stream and the channel, and release the locks. */
  close() {
    this.#connection?.close();
    this.#watchdog.stop();
    clearTimeout(this.#gatherTimer);
    this.#channel.close();
    this.#locks.abort();
    this.#release();
  }

  get #isClosed() {
    return this.#locks.signal.aborted;
  }

  reconnectNow() {
    this.#connection?.reconnectNow();
  }

  /** Lead if no tab leads; else follow, and queue for the lock. */
  async #start() {
    const held = new Promise((resolve) => (this.#release = resolve));
    const alive = `${this.#name} tab ${this.#id}`;
    navigator.locks.request(alive, () => held).catch(() => {}); // a sandbox has no locks: then the tab reads alone
    const first = await this.#request({ ifAvailable: true }, held);
    if (first || this.#isClosed) return;
    this.#ownStream();
    await this.#request({ signal: this.#locks.signal }, held);
  }

  /** Return whether this tab got the lock, which it holds until it closes. */
  #request(options, held) {
    return new Promise((resolve) => {
      const lead = (lock) => {
        resolve(lock !== null);
        if (lock === null || this.#isClosed) return undefined;
        this.#lead();
        return held;
      };
      navigator.locks.request(this.#name, options, lead).catch(() => resolve(false)); // aborted: it left
    });
  }

  #post(type, content = {}) {
    this.#channel.postMessage({ type, ...content });
  }

  #onMessage(message) {
    SharedConnection.HANDLERS[this.#isLeader ? "leader" : "follower"][message.type]?.(this, message);
  }

  #stream(places) {
    if (this.#isClosed) return;
    this.#connection?.close();
    this.#connection = this.#connect(places, {
      onRecords: (records) => this.#accept(records),
      onState: (state) => this.#onState(state),
      onRefused: (...why) => this.#onRefused(...why),
    });
  }

  #accept(records) {
    if (this.#followers.size > 0) this.#post("records", { records });
    for (const record of records) this.#subscription.accept(record);
    if (!this.#isLeader) this.#dropOwnStream();
  }

  #onState(state) {
    if (this.#isLeader) this.#post("at", { places: this.#connection.cursors.places, state });
    else if (state === "catching-up") this.#post("join", { tab: this.#id, places: this.#subscription.cursors.places });
    this.#subscription.setState(state); // last: the hook may close this connection
  }

  #onRefused(...why) {
    if (this.#followers.size === 0) {
      this.close();
      return this.#subscription.refuse(...why);
    }
    this.#followers.clear(); // one follower may have no access to its session: each finds out alone
    this.#post("alone", { tab: null });
    return this.#stream(this.#subscription.cursors.places);
  }

  // A tab that leads.

  #lead() {
    this.#isLeader = true;
    this.#watchdog.stop();
    if (this.#connection === null) this.#stream(this.#subscription.cursors.places);
    this.#post("lead");
  }

  #onJoin({ tab, places }) {
    this.#followers.set(tab, places);
    const has = this.#connection.cursors.places;
    if ([...places.keys()].every((session) => has.has(session))) {
      this.#post("at", { places: has, state: this.#connection.state });
    } else {
      clearTimeout(this.#gatherTimer);
      this.#gatherTimer = setTimeout(() => this.#openCommonStream(), GATHER_MS);
    }
  }

  /** Open one stream for the sessions of all tabs that still hold their lock, from the current cursors. */
  async #openCommonStream() {
    const { held } = await navigator.locks.query();
    if (this.#isClosed) return;
    const there = new Set(held.map(({ name }) => name));
    for (const tab of [...this.#followers.keys()]) {
      if (!there.has(`${this.#name} tab ${tab}`)) this.#followers.delete(tab);
    }
    const has = this.#connection.cursors.places;
    const positions = this.#subscription.cursors.places;
    for (const [tab, places] of [...this.#followers]) {
      const news = [...places].filter(([session]) => !positions.has(session));
      if (positions.size + news.length > MAX_SESSIONS) {
        this.#followers.delete(tab); // the stream is full
        this.#post("alone", { tab });
      } else for (const [session, place] of news) positions.set(session, has.get(session) ?? place);
    }
    // before the stream opens: followers close theirs, which leaves a connection for it
    this.#post("at", { places: positions, state: "connecting" });
    this.#stream(positions);
  }

  // A tab that follows.

  #ownStream() {
    this.#watchdog.stop();
    this.#stream(this.#subscription.cursors.places);
  }

  /** The leader no longer reads for this tab. */
  #readAlone(tab = null) {
    if (tab !== null && tab !== this.#id) return;
    this.#leaderCursors.clear();
    if (this.#connection === null) this.#ownStream();
  }

  /** Close the own stream once this tab has everything that the leader has. */
  #dropOwnStream() {
    const { cursors } = this.#subscription;
    const covered = (session) =>
      this.#leaderCursors.has(session) && covers(cursors.at(session), this.#leaderCursors.get(session));
    if (this.#isClosed || this.#connection === null || !cursors.sessions.every(covered)) return;
    this.#connection.close();
    this.#connection = null;
    this.#watchdog.start();
    this.#subscription.setState(this.#leaderState);
  }

  #onNewLeader() {
    this.#leaderCursors.clear();
    if (this.#connection === null || this.#connection.state !== "connecting") {
      this.#post("join", { tab: this.#id, places: this.#subscription.cursors.places });
    }
  }

  #onLeaderPlaces({ places, state }) {
    this.#watchdog.alive();
    this.#leaderState = state;
    const { cursors } = this.#subscription;
    const mine = [...places].filter(([session]) => cursors.at(session) !== undefined);
    for (const [session, place] of mine) this.#leaderCursors.set(session, place);
    if (this.#connection !== null) return this.#dropOwnStream();
    if (mine.some(([session, place]) => !covers(cursors.at(session), place))) this.#ownStream();
    return this.#subscription.setState(state);
  }

  #onLeaderRecords({ records }) {
    this.#watchdog.alive();
    for (const record of records) {
      const { session, at, reset } = record;
      if (this.#subscription.cursors.at(session) === undefined) continue;
      this.#leaderCursors.set(session, at ?? startPosition(reset));
      if (this.#connection !== null) continue;
      if (this.#subscription.follows(record)) this.#subscription.accept(record);
      else this.#ownStream();
    }
    this.#dropOwnStream();
  }

  static HANDLERS = {
    leader: { join: (tab, message) => tab.#onJoin(message) },
    follower: {
      lead: (tab) => tab.#onNewLeader(),
      at: (tab, message) => tab.#onLeaderPlaces(message),
      records: (tab, message) => tab.#onLeaderRecords(message),
      alone: (tab, message) => tab.#readAlone(message.tab),
    },
  };
}
