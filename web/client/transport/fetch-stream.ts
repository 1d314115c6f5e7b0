/**
 * One event stream over `fetch`, which can send a token.
 *
 * A closed stream calls no hook.
 */

import type { SendRequest } from "./credentials.js";
import { Decoder } from "./sse.js";

/** A message; an id that came without data has an empty `event`. */
export interface StreamItem {
  event: string;
  data: string;
  id: string;
}

/** Why a stream ended: nothing if it broke, else what the refusal says. */
export interface StreamEnd {
  status?: number;
  retryAfterMs?: number;
  message?: string;
}

export interface StreamHooks {
  /** The server answered 200. */
  onOpen(): void;
  /** Bytes arrived. */
  onAlive(): void;
  /** The messages of one chunk. */
  onItems(items: StreamItem[]): void;
  onEnd(end: StreamEnd): void;
}

/** Opens a stream; returns the function that closes it. */
export type OpenStream = (url: string, hooks: StreamHooks) => () => void;

export const fetchStream =
  (send: SendRequest): OpenStream =>
  (url, hooks) => {
    const control = new AbortController();
    const { signal } = control;
    const whenOpen: StreamHooks = {
      onOpen: () => signal.aborted || hooks.onOpen(),
      onAlive: () => signal.aborted || hooks.onAlive(),
      onItems: (items) => signal.aborted || hooks.onItems(items),
      onEnd: (end) => signal.aborted || hooks.onEnd(end),
    };

    const run = async (): Promise<StreamEnd> => {
      const response = await send(url, { signal });
      whenOpen.onAlive();
      if (response.status !== 200 || response.body === null) return readRefusal(response);
      whenOpen.onOpen();
      await readMessages(response.body.getReader(), whenOpen);
      return {};
    };
    run()
      .catch(() => ({}))
      .then(whenOpen.onEnd);
    return () => control.abort();
  };

async function readMessages(reader: ReadableStreamDefaultReader<Uint8Array>, hooks: StreamHooks): Promise<void> {
  const decoder = new Decoder();
  for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
    hooks.onAlive();
    const items = decoder.feed(piece.value).map(({ event, data, id }) => ({ event, data, id }));
    if (decoder.lastId !== (items.at(-1)?.id ?? "")) items.push({ event: "", data: "", id: decoder.lastId });
    if (items.length > 0) hooks.onItems(items);
  }
}

async function readRefusal(response: Response): Promise<StreamEnd> {
  const body = await response.json().catch(() => null);
  const retryAfterMs = 1000 * (Number(response.headers.get("retry-after")) || 0);
  return { status: response.status, retryAfterMs, message: body?.error };
}
