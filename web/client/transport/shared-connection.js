/**
 * One connection for all tabs of a browser: HTTP/1.1 allows six to a server, and the seventh tab would wait.
 *
 * The tab that holds a Web Lock leads: its connection reads the sessions of all tabs and hands every record on
 * over a BroadcastChannel. A tab that follows begins with a stream of its own, joins, and lets go of the stream
 * as soon as it has everything that the leader has. Every record says what came before it, so a tab that has
 * missed one sees it, and catches up with a stream of its own. The same when the leader says nothing for too
 * long. When the leader goes, the next holder of the lock leads on from where it is, and the others join again.
 *
 * Messages: `lead`, `join` {tab, places}, `at` {places, state}, `records` {records}, `alone` {tab}: read yourself.
 */

import { covers, startOf } from "./cursor.js";
import { newId } from "../shared/ids.js";
import { Watchdog } from "./watchdog.js";

const SESSIONS = 32; // on one stream (docs/protocol.md, section 8)
const GATHER_MS = 30; // tabs that join together are one new stream

export class Tab {
  #id = newId();
  #name;
  #reader;
  #connect; // (sessions and places, hooks) => Connection
  #channel;
  #locks = new AbortController();
  #release = () => {};
  #connection = null;
  #leads = false;
  #others = new Map(); // of the leader: tab -> places
  #gathering = null;
  #theirs = new Map(); // of a follower: where the leader is in my sessions
  #theirState = "connecting";
  #watchdog;

  constructor({ name, reader, connect, patienceMs }) {
    this.#name = name;
    this.#reader = reader;
    this.#connect = connect;
    this.#watchdog = new Watchdog(patienceMs, () => this.#goAlone());
    this.#channel = new BroadcastChannel(name);
    this.#channel.onmessage = ({ data }) => this.#hear(data);
    this.#begin();
  }

  /** Leave: the stream, the channel and the locks. */
  close() {
    this.#connection?.close();
    this.#watchdog.stop();
    clearTimeout(this.#gathering);
    this.#channel.close();
    this.#locks.abort();
    this.#release();
  }

  get #left() {
    return this.#locks.signal.aborted;
  }

  hurry() {
    this.#connection?.hurry();
  }

  /** Lead if nobody does; else follow, and be ready to lead. */
  async #begin() {
    const held = new Promise((resolve) => (this.#release = resolve));
    const alive = `${this.#name} tab ${this.#id}`;
    navigator.locks.request(alive, () => held).catch(() => {}); // no locks in a sandbox: then it is alone
    const first = await this.#request({ ifAvailable: true }, held);
    if (first || this.#left) return;
    this.#ownStream();
    await this.#request({ signal: this.#locks.signal }, held);
  }

  /** Whether the lock was given; it is held until the tab leaves. */
  #request(options, held) {
    return new Promise((resolve) => {
      const lead = (lock) => {
        resolve(lock !== null);
        if (lock === null || this.#left) return undefined;
        this.#lead();
        return held;
      };
      navigator.locks.request(this.#name, options, lead).catch(() => resolve(false)); // aborted: it left
    });
  }

  #say(type, content = {}) {
    this.#channel.postMessage({ type, ...content });
  }

  #hear(message) {
    Tab.hears[this.#leads ? "leader" : "follower"][message.type]?.(this, message);
  }

  #stream(places) {
    if (this.#left) return;
    this.#connection?.close();
    this.#connection = this.#connect(places, {
      onRecords: (records) => this.#take(records),
      onState: (state) => this.#changed(state),
      onRefused: (...why) => this.#refused(...why),
    });
  }

  #take(records) {
    if (this.#others.size > 0) this.#say("records", { records });
    for (const record of records) this.#reader.take(record);
    if (!this.#leads) this.#letGo();
  }

  #changed(state) {
    if (this.#leads) this.#say("at", { places: this.#connection.cursors.places, state });
    else if (state === "catching-up") this.#say("join", { tab: this.#id, places: this.#reader.cursors.places });
    this.#reader.say(state); // at last: whoever hears it may leave
  }

  #refused(...why) {
    if (this.#others.size === 0) {
      this.close();
      return this.#reader.refuse(...why);
    }
    this.#others.clear(); // one of them may not read its session: each has to find out
    this.#say("alone", { tab: null });
    return this.#stream(this.#reader.cursors.places);
  }

  // A tab that leads.

  #lead() {
    this.#leads = true;
    this.#watchdog.stop();
    if (this.#connection === null) this.#stream(this.#reader.cursors.places);
    this.#say("lead");
  }

  #joined({ tab, places }) {
    this.#others.set(tab, places);
    const has = this.#connection.cursors.places;
    if ([...places.keys()].every((session) => has.has(session))) {
      this.#say("at", { places: has, state: this.#connection.state });
    } else {
      clearTimeout(this.#gathering);
      this.#gathering = setTimeout(() => this.#gather(), GATHER_MS);
    }
  }

  /** A stream for the sessions of everybody who is still there, going on from where the last one was. */
  async #gather() {
    const { held } = await navigator.locks.query();
    if (this.#left) return;
    const there = new Set(held.map(({ name }) => name));
    for (const tab of [...this.#others.keys()]) {
      if (!there.has(`${this.#name} tab ${tab}`)) this.#others.delete(tab);
    }
    const has = this.#connection.cursors.places;
    const wanted = this.#reader.cursors.places;
    for (const [tab, places] of [...this.#others]) {
      const news = [...places].filter(([session]) => !wanted.has(session));
      if (wanted.size + news.length > SESSIONS) {
        this.#others.delete(tab); // no room for it
        this.#say("alone", { tab });
      } else for (const [session, place] of news) wanted.set(session, has.get(session) ?? place);
    }
    // Said before the stream is open: the others let go of theirs, and there is a connection left for it.
    this.#say("at", { places: wanted, state: "connecting" });
    this.#stream(wanted);
  }

  // A tab that follows.

  #ownStream() {
    this.#watchdog.stop();
    this.#stream(this.#reader.cursors.places);
  }

  /** Nobody reads for this tab any more. */
  #goAlone(tab = null) {
    if (tab !== null && tab !== this.#id) return;
    this.#theirs.clear();
    if (this.#connection === null) this.#ownStream();
  }

  /** A stream of its own is not needed any more when the leader has nothing that is missing here. */
  #letGo() {
    const { cursors } = this.#reader;
    const covered = (session) => this.#theirs.has(session) && covers(cursors.at(session), this.#theirs.get(session));
    if (this.#left || this.#connection === null || !cursors.sessions.every(covered)) return;
    this.#connection.close();
    this.#connection = null;
    this.#watchdog.start();
    this.#reader.say(this.#theirState);
  }

  #newLeader() {
    this.#theirs.clear();
    if (this.#connection === null || this.#connection.state !== "connecting") {
      this.#say("join", { tab: this.#id, places: this.#reader.cursors.places });
    }
  }

  #heardPlaces({ places, state }) {
    this.#watchdog.alive();
    this.#theirState = state;
    const { cursors } = this.#reader;
    const mine = [...places].filter(([session]) => cursors.at(session) !== undefined);
    for (const [session, place] of mine) this.#theirs.set(session, place);
    if (this.#connection !== null) return this.#letGo();
    if (mine.some(([session, place]) => !covers(cursors.at(session), place))) this.#ownStream();
    return this.#reader.say(state);
  }

  #heardRecords({ records }) {
    this.#watchdog.alive();
    for (const record of records) {
      const { session, at, reset } = record;
      if (this.#reader.cursors.at(session) === undefined) continue;
      this.#theirs.set(session, at ?? startOf(reset));
      if (this.#connection !== null) continue;
      if (this.#reader.follows(record)) this.#reader.take(record);
      else this.#ownStream();
    }
    this.#letGo();
  }

  static hears = {
    leader: { join: (tab, message) => tab.#joined(message) },
    follower: {
      lead: (tab) => tab.#newLeader(),
      at: (tab, message) => tab.#heardPlaces(message),
      records: (tab, message) => tab.#heardRecords(message),
      alone: (tab, message) => tab.#goAlone(message.tab),
    },
  };
}
