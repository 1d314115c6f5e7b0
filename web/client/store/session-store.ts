/**
 * `SessionStore`: the state of one session for a page, as snapshots that never change.
 *
 * The store connects with its first subscriber and closes its feed a while after the last one has left. It folds the
 * events of some milliseconds at once (`reduce.ts`), then calls the subscribers. `getSnapshot` returns the same object
 * until then, so the store fits `useSyncExternalStore` and its kind. Without a document it can be constructed and read.
 */

import { Client, type ClientOptions } from "../api/client.js";
import { Conflict, type HttpError } from "../api/errors.js";
import type { UploadedFile } from "../api/upload.js";
import type { ErrorInfo, Json, UiMessage } from "../events.js";
import type { AnyEvent, IsDeclared } from "../folds/event-text.js";
import type { PendingCall } from "../folds/pending.js";
import type { TreeState } from "../folds/tree.js";
import { newId } from "../shared/ids.js";
import type { Feed, FeedOptions, FeedState } from "../transport/connect.js";
import { reportUncaught } from "../transport/subscription.js";
import type { Timer } from "../transport/watchdog.js";
import type { Action } from "../views/views.js";
import { emptyState, type FoldState, resetState, withSnapshot } from "./fold-state.js";
import { addUnsent, findUnsent, markUnsent, removeUnsent } from "./outbox.js";
import { reduceEvents } from "./reduce.js";
import type { ApprovalPart, Snapshot, ViewPart } from "./types.js";

const NOTIFY_INTERVAL_MS = 50; // text still flows, and the rest of the time is free
const CATCH_UP_INTERVAL_MS = 500; // while history comes, folding costs and not drawing
const LINGER_MS = 2000; // a page that changes its view leaves and comes back

export interface StoreOptions extends ClientOptions, Pick<FeedOptions, "share" | "timing" | "transport"> {
  session: string;
  /** Sends the requests and opens the feed, in place of one with these options. */
  client?: Client;
  /** The event types of the application. */
  types?: readonly string[];
  /** Called with the events of each fold, in order, before the subscribers: for folds of an application's own. */
  onEvents?: (events: readonly AnyEvent[]) => void;
  /** The log was replaced: all its events come again. Called before the subscribers. */
  onReset?: () => void;
}

export interface SendOptions {
  channel?: string;
  /** The agent that is addressed. */
  target?: string;
  /** Files that `upload` of the client has stored, with their names for people. */
  attachments?: readonly Attachment[];
}

/** An uploaded file of a message. */
export interface Attachment extends UploadedFile {
  name: string;
}

/** A message as it is posted: the server turns `attachments` into its `content`. */
type PostedMessage = UiMessage & { attachments?: Array<{ blob: string; name: string }> };

/** The call that a question or an approval is about. */
type Call = Pick<PendingCall, "call_id" | "tool">;

const ENDED: ReadonlySet<FeedState> = new Set<FeedState>(["closed", "refused"]);
const CATCHING_UP: ReadonlySet<FeedState> = new Set<FeedState>(["connecting", "catching-up"]);

export class SessionStore {
  readonly session: string;
  readonly client: Client;
  #options: StoreOptions;
  #isDeclared: IsDeclared;
  #state: FoldState;
  #unsentPayloads = new Map<string, PostedMessage>(); // by id
  #events: AnyEvent[] = []; // that have come since the last fold
  #listeners = new Set<() => void>();
  #feed: Feed | null = null;
  #cursor: string | null = null;
  #flushTimer: Timer | undefined;
  #lingerTimer: Timer | undefined;
  #flushedMs = Number.NEGATIVE_INFINITY;

  constructor(options: StoreOptions) {
    if (!options.session) throw new TypeError(`expected the id of a session, got ${options.session}`);
    this.session = options.session;
    this.client = options.client ?? new Client(options);
    this.#options = options;
    const types = new Set(options.types);
    this.#isDeclared = (type) => types.has(type);
    this.#state = emptyState(options.session);
  }

  /** Return the current snapshot: the same object until the next call of the subscribers. */
  getSnapshot = (): Snapshot => this.#state.snapshot;

  /** The open agents and calls, as `listPending` takes them. */
  get tree(): TreeState {
    return this.#state.tree;
  }

  /** Call a function after every change. Return a function that ends it. */
  subscribe = (listener: () => void): (() => void) => {
    const call = () => listener(); // the same function may subscribe twice
    this.#listeners.add(call);
    clearTimeout(this.#lingerTimer);
    if (this.#listeners.size === 1 || this.#state.snapshot.connection !== "refused") this.open();
    return () => {
      if (this.#listeners.delete(call) && this.#listeners.size === 0) {
        clearTimeout(this.#lingerTimer);
        this.#lingerTimer = setTimeout(() => this.close(), LINGER_MS);
      }
    };
  };

  /** Connect without a subscriber, also after a refusal: the person may have signed in since. */
  open(): void {
    if (this.#feed !== null) return;
    if (ENDED.has(this.#state.snapshot.connection)) this.#setConnection("connecting", null);
    const { share, timing, transport } = this.#options;
    let isRefused = false;
    this.#feed = this.client.connect({
      session: this.session,
      after: this.#cursor,
      ...(share !== undefined && { share }),
      ...(timing !== undefined && { timing }),
      ...(transport !== undefined && { transport }),
      onEvent: (event) => {
        this.#events.push(event);
        this.#scheduleFlush();
      },
      onReset: () => {
        this.#events = [];
        this.#callHook(() => this.#options.onReset?.());
        this.#setState(resetState(this.#state));
      },
      onState: (state) => {
        isRefused ||= state === "refused";
        if (!isRefused) this.#setConnection(state); // a refusal is told with its error
      },
      onError: (error) => {
        this.#releaseFeed()?.close();
        this.#setConnection("refused", error);
      },
    });
  }

  /** Close the feed. A later `open` or subscriber continues from where it was. */
  close(): void {
    clearTimeout(this.#lingerTimer);
    this.#releaseFeed()?.close();
    this.flush();
  }

  #releaseFeed(): Feed | null {
    const feed = this.#feed;
    this.#feed = null;
    this.#cursor = feed?.cursor || this.#cursor;
    return feed;
  }

  /** Fold the events that have come, and call the subscribers if there are any. */
  flush(): void {
    clearTimeout(this.#flushTimer);
    this.#flushTimer = undefined;
    this.#flushedMs = performance.now();
    const events = this.#events;
    if (events.length === 0) return;
    this.#events = [];
    this.#callHook(() => this.#options.onEvents?.(events));
    const state = reduceEvents(this.#state, events, this.#isDeclared);
    // a log that is replaced in a live stream is followed by no other state
    const hasHistory = state.snapshot.hasHistory || state.snapshot.connection === "live";
    const { snapshot } = state;
    this.#setState(snapshot.hasHistory === hasHistory ? state : withSnapshot(state, { ...snapshot, hasHistory }));
  }

  /**
   * Send a message. It is in the snapshot at once and is replaced by its event. If the server does not accept it, it
   * stays as `failed` and the error is thrown.
   */
  send(text: string, { channel, target, attachments = [] }: SendOptions = {}): Promise<string> {
    const payload = { text, ...(channel !== undefined && { channel }), ...(target !== undefined && { target }) };
    const id = `evt_${newId()}`;
    const author = this.#options.principal ?? null;
    const shown = { ...payload, ...(attachments.length > 0 && { content: contentOf(text, attachments) }) };
    const named = attachments.map(({ blob, name }) => ({ blob, name }));
    this.#unsentPayloads.set(id, { ...payload, ...(named.length > 0 && { attachments: named }) });
    this.#setState(addUnsent(this.#state, { id, ts: new Date().toISOString(), author, payload: shown }));
    return this.#deliver(id);
  }

  /** Send a failed message again, under its id. */
  retry(id: string): Promise<string> {
    const message = findUnsent(this.#state, id);
    if (message === undefined) throw new TypeError(`expected a message that failed, got ${id}`);
    this.#setState(markUnsent(this.#state, id, { state: "sending", error: null }));
    return this.#deliver(id);
  }

  /** Remove a failed message. */
  discard(id: string): void {
    this.#unsentPayloads.delete(id);
    this.#setState(removeUnsent(this.#state, id));
  }

  /** Stop all agents of the session, or one turn or agent. */
  stop(options: { turn?: string; agent?: string } = {}): Promise<number> {
    return this.client.stop(this.session, options);
  }

  /** Answer a question: with its values, or with the result of a tool of the page. Throws `Conflict` if it is answered. */
  answer(call: Call, value: Json): Promise<number> {
    if (this.#executorOf(call) !== "backend") return this.client.answer(this.session, call, value);
    return this.client.submitInput(this.session, call, value as { [name: string]: Json });
  }

  /** Answer a question with an error. */
  fail(call: Call, fault: ErrorInfo): Promise<number> {
    return this.client.fail(this.session, call, fault);
  }

  /** Approve or deny a call. */
  async decide(
    approval: Pick<ApprovalPart, "request"> | Pick<PendingCall, "approval">,
    decision: "approve" | "deny",
    notes?: string,
  ): Promise<number> {
    const request = "request" in approval ? approval.request : approval.approval;
    if (request === null) throw new Conflict("this call needs no approval", 409);
    return this.client.decide(this.session, request, decision, notes);
  }

  /** Submit an action on a view. */
  act({ view_id, event_id }: Pick<ViewPart, "view_id" | "event_id">, action: Action): Promise<number> {
    return this.client.submitView(this.session, view_id, action, { shown: event_id });
  }

  async #deliver(id: string): Promise<string> {
    const payload = this.#unsentPayloads.get(id) as PostedMessage;
    try {
      await this.client.dispatch(this.session, [{ type: "ui.message", payload, id }]);
    } catch (thrown) {
      this.flush();
      // the event has come although the answer was lost
      if (findUnsent(this.#state, id) === undefined) return this.#finish(id);
      const error = thrown instanceof Error ? thrown : new Error(String(thrown));
      this.#setState(markUnsent(this.#state, id, { state: "failed", error }));
      throw thrown;
    }
    if (findUnsent(this.#state, id)) this.#setState(markUnsent(this.#state, id, { state: "sent", error: null }));
    return this.#finish(id);
  }

  #finish(id: string): string {
    this.#unsentPayloads.delete(id);
    return id;
  }

  #executorOf({ call_id }: Call): string | null {
    for (const { calls } of this.#state.tree.open.values()) {
      const open = calls.get(call_id);
      if (open) return open.call.executor ?? "backend";
    }
    return null;
  }

  /** What came before a state is folded before it: a page that is live has the history. */
  #setConnection(connection: FeedState, error: HttpError | null = this.#state.snapshot.error): void {
    this.flush();
    const { snapshot } = this.#state;
    const hasHistory = snapshot.hasHistory || connection === "live";
    if (snapshot.connection === connection && snapshot.error === error && snapshot.hasHistory === hasHistory) return;
    this.#setState(withSnapshot(this.#state, { ...snapshot, connection, hasHistory, error }));
  }

  #setState(state: FoldState): void {
    this.#state = state;
    for (const listener of [...this.#listeners]) this.#callHook(listener);
  }

  /** Call a function of the application; its error must not stop the fold. */
  #callHook(hook: () => void): void {
    try {
      hook();
    } catch (error) {
      reportUncaught(error);
    }
  }

  #scheduleFlush(): void {
    if (this.#flushTimer !== undefined) return;
    const interval = CATCHING_UP.has(this.#state.snapshot.connection) ? CATCH_UP_INTERVAL_MS : NOTIFY_INTERVAL_MS;
    const waitMs = Math.max(0, interval - (performance.now() - this.#flushedMs));
    this.#flushTimer = setTimeout(() => this.flush(), waitMs);
  }
}

/** Return the content of a message with files, as the server will store it. */
const contentOf = (text: string, attachments: readonly Attachment[]): NonNullable<UiMessage["content"]> => [
  ...(text.trim() === "" ? [] : [{ type: "text" as const, text }]),
  ...attachments.map(({ name, url, media_type, size_bytes }) => {
    const type = media_type.startsWith("image/") ? ("image" as const) : ("document" as const);
    return { type, src: url, media_type, size_bytes, title: name };
  }),
];
