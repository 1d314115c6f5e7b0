/**
 * The stores of a page: one `SessionStore` for each session, which all components share.
 *
 * A store connects with its first subscriber. A store that has lost its last one stays for a while, so that a person
 * who comes back to a session sees it at once. The registry keeps a limited number of such stores.
 */

import { Client, SessionStore, type Snapshot, type StoreOptions } from "@turnlog/client";

/** A page shows a few sessions at a time; the stores of those it has left cost memory only. */
const MAX_IDLE_STORES = 16;

/** What a person can do in a session; the methods of `SessionStore`, bound to it. */
export type SessionActions = Pick<
  SessionStore,
  "send" | "retry" | "discard" | "stop" | "answer" | "fail" | "decide" | "act"
>;

/** A session as components read it. The functions stay the same as long as the entry does. */
export interface SessionEntry {
  readonly store: SessionStore;
  readonly actions: SessionActions;
  readonly subscribe: (listener: () => void) => () => void;
  readonly getSnapshot: () => Snapshot;
  /** Return the snapshot without events: what a server renders, and the first render of a page that it sent. */
  readonly getServerSnapshot: () => Snapshot;
}

/** The options of every store; a `client` sends the requests of all of them. */
export type SessionStoresOptions = Omit<StoreOptions, "session">;

function bindActions(store: SessionStore): SessionActions {
  return {
    send: store.send.bind(store),
    retry: store.retry.bind(store),
    discard: store.discard.bind(store),
    stop: store.stop.bind(store),
    answer: store.answer.bind(store),
    fail: store.fail.bind(store),
    decide: store.decide.bind(store),
    act: store.act.bind(store),
  };
}

export class SessionStores {
  readonly client: Client;
  #options: SessionStoresOptions;
  #entries = new Map<string, SessionEntry>(); // the one that was left last is the last
  #subscribers = new Map<SessionEntry, Set<() => void>>();

  constructor(options: SessionStoresOptions = {}) {
    this.client = options.client ?? new Client(options);
    this.#options = options;
  }

  /** Return the entry of a session. The first call creates its store, which does not connect yet. */
  entry(session: string): SessionEntry {
    const known = this.#entries.get(session);
    if (known !== undefined) return known;
    const entry = this.#createEntry(session);
    this.#entries.set(session, entry);
    return entry;
  }

  #createEntry(session: string): SessionEntry {
    const store = new SessionStore({ ...this.#options, client: this.client, session });
    const initial = store.getSnapshot();
    const entry: SessionEntry = {
      store,
      actions: bindActions(store),
      subscribe: (listener) => this.#subscribe(entry, listener),
      getSnapshot: store.getSnapshot,
      getServerSnapshot: () => initial,
    };
    return entry;
  }

  #subscribe(entry: SessionEntry, listener: () => void): () => void {
    const unsubscribe = entry.store.subscribe(listener);
    const subscribers = this.#subscribers.get(entry) ?? new Set();
    this.#subscribers.set(entry, subscribers.add(unsubscribe));
    return () => {
      unsubscribe();
      if (subscribers.delete(unsubscribe) && subscribers.size === 0) this.#leave(entry);
    };
  }

  #leave(entry: SessionEntry): void {
    const { session } = entry.store;
    this.#subscribers.delete(entry);
    // an entry that was dropped before may still have had a subscriber
    if (this.#entries.get(session) !== entry) return;
    this.#entries.delete(session);
    this.#entries.set(session, entry);
    const idle = [...this.#entries].filter(([, each]) => !this.#subscribers.has(each));
    for (const [name] of idle.slice(0, Math.max(0, idle.length - MAX_IDLE_STORES))) this.#entries.delete(name);
  }
}
