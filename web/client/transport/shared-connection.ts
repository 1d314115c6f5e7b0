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
import type { FeedState } from "./connect.js";
import type { Connection, MakeConnection, StreamRecord } from "./connection.js";
import { covers, type Position, startPosition } from "./cursor.js";
import type { Subscription } from "./subscription.js";
import { type Timer, Watchdog } from "./watchdog.js";

const MAX_SESSIONS = 32; // per stream (docs/protocol.md, section 8)
const GATHER_MS = 30; // tabs that join within this time get one new stream

type Places = ReadonlyMap<string, Position>;

type TabMessage =
  | { type: "lead" }
  | { type: "join"; tab: string; places: Places }
  | { type: "at"; places: Places; state: FeedState }
  | { type: "records"; records: StreamRecord[] }
  | { type: "alone"; tab: string | null };

export class SharedConnection {
  #id = newId();
  #name: string;
  #subscription: Subscription;
  #connect: MakeConnection;
  #channel: BroadcastChannel;
  #locks = new AbortController();
  #release: () => void = () => {};
  #connection: Connection | null = null;
  #isLeader = false;
  #followers = new Map<string, Places>(); // leader only: tab -> session -> position
  #gatherTimer: Timer | undefined;
  #leaderCursors = new Map<string, Position>(); // follower only: the leader's positions in this tab's sessions
  #leaderState: FeedState = "connecting";
  #watchdog: Watchdog;

  constructor({
    name,
    subscription,
    connect,
    timeoutMs,
  }: {
    name: string;
    subscription: Subscription;
    connect: MakeConnection;
    timeoutMs: number;
  }) {
    this.#name = name;
    this.#subscription = subscription;
    this.#connect = connect;
    this.#watchdog = new Watchdog(timeoutMs, () => this.#readAlone());
    this.#channel = new BroadcastChannel(name);
    this.#channel.onmessage = ({ data }) => this.#onMessage(data);
    this.#start();
  }

  /** Close the stream and the channel, and release the locks. */
  close(): void {
    this.#connection?.close();
    this.#watchdog.stop();
    clearTimeout(this.#gatherTimer);
    this.#channel.close();
    this.#locks.abort();
    this.#release();
  }

  get #isClosed(): boolean {
    return this.#locks.signal.aborted;
  }

  reconnectNow(): void {
    this.#connection?.reconnectNow();
  }

  disconnect(): void {
    this.#connection?.disconnect();
  }

  /** Lead if no tab leads; else follow, and queue for the lock. */
  async #start(): Promise<void> {
    const held = new Promise<void>((resolve) => (this.#release = resolve));
    const alive = `${this.#name} tab ${this.#id}`;
    navigator.locks.request(alive, () => held).catch(() => {}); // a sandbox has no locks: then the tab reads alone
    const first = await this.#request({ ifAvailable: true }, held);
    if (first || this.#isClosed) return;
    this.#ownStream();
    await this.#request({ signal: this.#locks.signal }, held);
  }

  /** Return whether this tab got the lock, which it holds until it closes. */
  #request(options: LockOptions, held: Promise<void>): Promise<boolean> {
    return new Promise((resolve) => {
      const lead = (lock: Lock | null) => {
        resolve(lock !== null);
        if (lock === null || this.#isClosed) return undefined;
        this.#lead();
        return held;
      };
      navigator.locks.request(this.#name, options, lead).catch(() => resolve(false)); // aborted: it left
    });
  }

  #post(message: TabMessage): void {
    this.#channel.postMessage(message);
  }

  #onMessage(message: TabMessage): void {
    if (this.#isLeader) {
      if (message.type === "join") this.#onJoin(message.tab, message.places);
    } else if (message.type === "lead") this.#onNewLeader();
    else if (message.type === "at") this.#onLeaderPlaces(message.places, message.state);
    else if (message.type === "records") this.#onLeaderRecords(message.records);
    else if (message.type === "alone") this.#readAlone(message.tab);
  }

  #stream(places: Places): void {
    if (this.#isClosed) return;
    this.#connection?.close();
    this.#connection = this.#connect(places, {
      onRecords: (records) => this.#accept(records),
      onState: (state) => this.#onState(state),
      onRefused: (status, message) => this.#onRefused(status, message),
    });
  }

  #accept(records: StreamRecord[]): void {
    if (this.#followers.size > 0) this.#post({ type: "records", records });
    for (const record of records) this.#subscription.accept(record);
    if (!this.#isLeader) this.#dropOwnStream();
  }

  #onState(state: FeedState): void {
    if (this.#isLeader && this.#connection) this.#post({ type: "at", places: this.#connection.cursors.places, state });
    else if (!this.#isLeader && state === "catching-up") this.#postJoin();
    this.#subscription.setState(state); // last: the hook may close this connection
  }

  #postJoin(): void {
    this.#post({ type: "join", tab: this.#id, places: this.#subscription.cursors.places });
  }

  #onRefused(status: number, message: string | undefined): void {
    if (this.#followers.size === 0) {
      this.close();
      this.#subscription.refuse(status, message);
      return;
    }
    this.#followers.clear(); // one follower may have no access to its session: each finds out alone
    this.#post({ type: "alone", tab: null });
    this.#stream(this.#subscription.cursors.places);
  }

  // A tab that leads.

  #lead(): void {
    this.#isLeader = true;
    this.#watchdog.stop();
    if (this.#connection === null) this.#stream(this.#subscription.cursors.places);
    this.#post({ type: "lead" });
  }

  #onJoin(tab: string, places: Places): void {
    this.#followers.set(tab, places);
    if (this.#connection === null) return;
    const has = this.#connection.cursors.places;
    if ([...places.keys()].every((session) => has.has(session))) {
      this.#post({ type: "at", places: has, state: this.#connection.state });
    } else {
      clearTimeout(this.#gatherTimer);
      this.#gatherTimer = setTimeout(() => this.#openCommonStream(), GATHER_MS);
    }
  }

  /** Open one stream for the sessions of all tabs that still hold their lock, from the current cursors. */
  async #openCommonStream(): Promise<void> {
    const { held = [] } = await navigator.locks.query();
    if (this.#isClosed || this.#connection === null) return;
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
        this.#post({ type: "alone", tab });
      } else for (const [session, place] of news) positions.set(session, has.get(session) ?? place);
    }
    // before the stream opens: followers close theirs, which leaves a connection for it
    this.#post({ type: "at", places: positions, state: "connecting" });
    this.#stream(positions);
  }

  // A tab that follows.

  #ownStream(): void {
    this.#watchdog.stop();
    this.#stream(this.#subscription.cursors.places);
  }

  /** The leader no longer reads for this tab. */
  #readAlone(tab: string | null = null): void {
    if (tab !== null && tab !== this.#id) return;
    this.#leaderCursors.clear();
    if (this.#connection === null) this.#ownStream();
  }

  /** Close the own stream once this tab has everything that the leader has. */
  #dropOwnStream(): void {
    const { cursors } = this.#subscription;
    const covered = (session: string) => {
      const [mine, theirs] = [cursors.at(session), this.#leaderCursors.get(session)];
      return mine !== undefined && theirs !== undefined && covers(mine, theirs);
    };
    if (this.#isClosed || this.#connection === null || !cursors.sessions.every(covered)) return;
    this.#connection.close();
    this.#connection = null;
    this.#watchdog.start();
    this.#subscription.setState(this.#leaderState);
  }

  #onNewLeader(): void {
    this.#leaderCursors.clear();
    if (this.#connection === null || this.#connection.state !== "connecting") {
      this.#postJoin();
    }
  }

  #onLeaderPlaces(places: Places, state: FeedState): void {
    this.#watchdog.alive();
    this.#leaderState = state;
    const { cursors } = this.#subscription;
    const mine = [...places].filter(([session]) => cursors.at(session) !== undefined);
    for (const [session, place] of mine) this.#leaderCursors.set(session, place);
    if (this.#connection !== null) {
      this.#dropOwnStream();
      return;
    }
    if (mine.some(([session, place]) => !covers(cursors.at(session) as Position, place))) this.#ownStream();
    this.#subscription.setState(state);
  }

  #onLeaderRecords(records: StreamRecord[]): void {
    this.#watchdog.alive();
    for (const record of records) {
      const { session } = record;
      if (this.#subscription.cursors.at(session) === undefined) continue;
      this.#leaderCursors.set(session, record.reset === undefined ? record.at : startPosition(record.reset));
      if (this.#connection !== null) continue;
      if (this.#subscription.follows(record)) this.#subscription.accept(record);
      else this.#ownStream();
    }
    this.#dropOwnStream();
  }
}
