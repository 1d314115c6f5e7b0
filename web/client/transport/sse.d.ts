/** The default limit of one SSE message. */
export declare const MAX_MESSAGE_BYTES: number;

/** The input breaks a limit. */
export declare class BadInput extends Error {
  name: "BadInput";
}

/** One message. `id` is the last id of the stream, `retryMs` only of this message. */
export interface SseMessage {
  data: string;
  event: string;
  id: string;
  retryMs: number | null;
}

/** Decodes a stream of Server-Sent Events, in pieces of any size. */
export declare class Decoder {
  constructor(limitBytes?: number);
  readonly limitBytes: number;
  /** The id to reconnect with. */
  readonly lastId: string;
  /** The last retry delay that the server sent. */
  readonly retryMs: number | null;
  /** Decode the next piece; return the messages it completed. Throws `BadInput` beyond the limit. */
  feed(chunk: Uint8Array): SseMessage[];
  /** End the stream: an unfinished message is dropped, and the next stream may start. */
  flush(): SseMessage[];
}
