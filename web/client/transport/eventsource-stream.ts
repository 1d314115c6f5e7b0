/**
 * One event stream over `EventSource`, which sends the page's cookie and no token. Same hooks as `fetch-stream.js`.
 *
 * The browser never reconnects it: the URL holds an old cursor.
 */

import type { OpenStream } from "./fetch-stream.js";

const EVENT_NAMES = ["message", "heartbeat", "reset", "caught-up"]; // of every dialect

export const eventSourceStream = (): OpenStream => (url, hooks) => {
  const source = new EventSource(url);
  const probe = new AbortController();

  const onMessage = ({ type, data, lastEventId }: MessageEvent<string>) => {
    hooks.onAlive();
    hooks.onItems([{ event: type, data, id: lastEventId }]);
  };
  const onError = async () => {
    const isRefused = source.readyState === EventSource.CLOSED;
    source.close();
    const status = isRefused ? await fetchStatus(url, probe.signal) : 0;
    if (!probe.signal.aborted) hooks.onEnd({ status });
  };

  source.onopen = () => {
    hooks.onAlive();
    hooks.onOpen();
  };
  source.onerror = onError;
  for (const name of EVENT_NAMES) source.addEventListener(name, onMessage);
  return () => {
    source.close();
    probe.abort();
  };
};

/** Return the status of a refusal, which `EventSource` does not tell; 0 if the server answers 200 or not at all. */
async function fetchStatus(url: string, signal: AbortSignal): Promise<number> {
  const request = new AbortController();
  signal.addEventListener("abort", () => request.abort());
  try {
    const { status } = await fetch(url, { signal: request.signal, cache: "no-store" });
    return status === 200 ? 0 : status;
  } catch {
    return 0;
  } finally {
    request.abort(); // a 200 is a stream that goes on
  }
}
