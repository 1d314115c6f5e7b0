import type { HttpError } from "../api/errors.js";
import type { LogEvent } from "../events.js";

/**
 * How a feed is: `catching-up` while history comes, `closed` when there will be no more or it was closed,
 * `refused` when the server does not let it read.
 */
export type FeedState = "connecting" | "catching-up" | "live" | "reconnecting" | "closed" | "refused";

/** The dialects of every server; an application may have more, each with a name of its own. */
export type Dialect = "turnlog" | "blocks" | "blocks-xml" | "blocks-raw" | "office" | "agentic";

// `string & {}` keeps the known names in sight of an editor.
type OtherDialect = Exclude<Dialect, "turnlog"> | (string & {});

/** Everything comes again: the cursor could not be continued. Whatever was made of the session is void. */
export interface Reset {
  type: "reset";
  reason: "epoch" | "ahead" | "expired" | "pruned";
  session_id: string;
  epoch: string;
  first: number;
  last: number;
}

/** Where an event stands: the cursor is the `after` of who has it. */
export interface EventPosition {
  session: string;
  cursor: string;
}

export interface Timing {
  /** How often the server gives a sign of life; 2.5 times as long without one is a dead line. */
  heartbeatMs: number;
  /** The first wait before coming back; it doubles up to `maxRetryMs`, and is never the same for two. */
  retryMs: number;
  maxRetryMs: number;
}

interface CommonOptions {
  /** The root of the server; by default the directory of the page. */
  url?: string;
  /** A cursor for each session, with commas between them; without one, as a storage gives it at first, the start. */
  after?: string | null;
  /** For `Authorization`; without one the page's cookie says who is asking. */
  token?: string;
  /** The server streams to this principal only; `eventsource` cannot say so. */
  principal?: string;
  /** Only these types, or first words of types. */
  types?: string[];
  /** Only events of this depth and less. */
  depth?: number;
  /** Only this turn; the feed is closed when it is over or waits. */
  turn?: string;
  /** Options of the dialect. */
  parameters?: Record<string, string | number | boolean>;
  /** By default `fetch`: history comes five times as fast as over `eventsource`, which cannot have a token. */
  transport?: "fetch" | "eventsource";
  /**
   * Whether tabs of this browser share one connection; by default those without a token do. A text says who is
   * signed in: only tabs with the same one share.
   */
  share?: boolean | string;
  timing?: Partial<Timing>;
  onReset?: (reset: Reset) => void;
  onState?: (state: FeedState) => void;
  /** The server does not let this feed read, and it is over. */
  onError?: (error: HttpError) => void;
}

export type SessionSelection = { session: string; sessions?: undefined } | { sessions: string[]; session?: undefined };

/** Events come as values. */
export type EventOptions = CommonOptions &
  SessionSelection & { dialect?: "turnlog"; onEvent?: (event: LogEvent, place: EventPosition) => void };

/** What another dialect says comes as text. */
export type TextOptions = CommonOptions &
  SessionSelection & { dialect: OtherDialect; onEvent?: (data: string, place: EventPosition) => void };

export type ConnectOptions = EventOptions | TextOptions;

/** A session, or several, being followed. */
export interface Feed {
  readonly state: FeedState;
  /** The cursor to go on from. */
  readonly cursor: string;
  close(): void;
}

/** Follow sessions: every event once and in order, for as long as the page lives. */
export declare function connect(options: EventOptions): Feed;
export declare function connect(options: TextOptions): Feed;
export declare function connect(options: ConnectOptions): Feed;
