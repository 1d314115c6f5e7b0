/** The most that one SSE message may take, unless told otherwise. */
export declare const MAX_MESSAGE_BYTES: number;

/** What came from outside is wrong. */
export declare class BadInput extends Error {
  name: "BadInput";
}

/** One dispatched message. `id` is the last one seen, `retryMs` only what this message itself said. */
export interface SseMessage {
  data: string;
  event: string;
  id: string;
  retryMs: number | null;
}

/** Reads a stream of Server-Sent Events fed in any pieces. */
export declare class Decoder {
  constructor(limitBytes?: number);
  readonly limitBytes: number;
  /** The id to reconnect with. */
  readonly lastId: string;
  /** The last waiting time the server asked for. */
  readonly retryMs: number | null;
  /** Take the next piece of the stream; return the messages it completed. Throws `BadInput` beyond the limit. */
  feed(chunk: Uint8Array): SseMessage[];
  /** The stream ended: an unfinished message is dropped, and the next stream may begin. */
  flush(): SseMessage[];
}
