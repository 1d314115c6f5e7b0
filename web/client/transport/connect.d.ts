import type { HttpError } from "../api/errors.js";
import type { LogEvent } from "../events.js";

/**
 * The state of a feed: `catching-up` while the history comes, `closed` when it has ended, `refused` when the server
 * denied access.
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

interface CommonOptions {
  /** The root URL of the server; by default the directory of the page. */
  url?: string;
  /**
   * A cursor for each session, separated by commas. Null, "" or nothing is the start; "end", also for single sessions,
   * is only new events.
   */
  after?: string | null;
  /** For `Authorization`; without one the page's cookie authenticates. */
  token?: string;
  /** The server streams to this principal only; not with `eventsource`. */
  principal?: string;
  /** Only these types or type prefixes. */
  types?: string[];
  /** Only events of at most this depth. */
  depth?: number;
  /** Only this turn; the feed closes when the turn is over or waits. */
  turn?: string;
  /** Options of the dialect. */
  parameters?: Record<string, string | number | boolean>;
  /** By default `fetch`: it loads history five times as fast as `eventsource`, which cannot send a token. */
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
export type EventOptions = CommonOptions &
  SessionSelection & { dialect?: "turnlog"; onEvent?: (event: LogEvent, place: EventPosition) => void };

/** Options of other dialects: messages are texts. */
export type TextOptions = CommonOptions &
  SessionSelection & { dialect: OtherDialect; onEvent?: (data: string, place: EventPosition) => void };

export type ConnectOptions = EventOptions | TextOptions;

/** An open subscription of one or several sessions. */
export interface Feed {
  readonly state: FeedState;
  /** The current cursor: `after` of a later `connect`. */
  readonly cursor: string;
  close(): void;
}

/** Follow sessions: every event is delivered once and in order. */
export declare function connect(options: EventOptions): Feed;
export declare function connect(options: TextOptions): Feed;
export declare function connect(options: ConnectOptions): Feed;
