/**
 * One open stream: over `fetch`, which may carry a token, or over `EventSource`, which has the page's cookie only.
 *
 * `open(url)` gives a function that closes it. A source says `onOpen`, then `onItems` with what came together:
 * `{event, data, id}`, where no data is an id alone; `onAlive` with every byte it sees; and at last `onEnd` with
 * the `status` of a refusal, `retryAfterMs` and its `message`; without them the stream broke or ended. A closed
 * source is silent.
 */

import { Decoder } from "./sse.js";

const NAMES = ["message", "heartbeat", "reset"]; // the events of every dialect

/** A source over `EventSource`. It is never left to reconnect: its URL holds an old cursor. */
export const overEventSource = () => (url, hooks) => {
  const source = new EventSource(url);
  const probe = new AbortController();
  const take = ({ type, data, lastEventId }) => {
    hooks.onAlive();
    hooks.onItems([{ event: type, data, id: lastEventId }]);
  };
  const end = async () => {
    const refused = source.readyState === EventSource.CLOSED;
    source.close();
    const status = refused ? await statusOf(url, probe.signal) : 0;
    if (!probe.signal.aborted) hooks.onEnd({ status });
  };
  source.onopen = () => {
    hooks.onAlive();
    hooks.onOpen();
  };
  source.onerror = end;
  for (const name of NAMES) source.addEventListener(name, take);
  return () => {
    source.close();
    probe.abort();
  };
};

/** Why a stream was refused: `EventSource` does not say. */
async function statusOf(url, signal) {
  const asked = new AbortController();
  signal.addEventListener("abort", () => asked.abort());
  try {
    const { status } = await fetch(url, { signal: asked.signal, cache: "no-store" });
    return status === 200 ? 0 : status;
  } catch {
    return 0;
  } finally {
    asked.abort();
  }
}

/** A source over `fetch`, with these headers. */
export const overFetch = (headers) => (url, hooks) => {
  const control = new AbortController();
  const { signal } = control;
  const tell = (name, ...values) => !signal.aborted && hooks[name](...values);
  const run = async () => {
    const response = await fetch(url, { headers, signal, cache: "no-store" });
    hooks.onAlive();
    if (response.status !== 200) return refusalOf(response);
    tell("onOpen");
    await read(response.body.getReader(), tell);
    return {};
  };
  run()
    .catch(() => ({}))
    .then((end) => tell("onEnd", end));
  return () => control.abort();
};

/** Hand on what comes; an id that came without data is told too. */
async function read(reader, tell) {
  const decoder = new Decoder();
  for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
    tell("onAlive");
    const items = decoder.feed(piece.value).map(({ event, data, id }) => ({ event, data, id }));
    if (decoder.lastId !== (items.at(-1)?.id ?? "")) items.push({ event: "", data: "", id: decoder.lastId });
    if (items.length > 0) tell("onItems", items);
  }
}

async function refusalOf(response) {
  const said = await response.json().catch(() => null);
  const retryAfterMs = 1000 * (Number(response.headers.get("retry-after")) || 0);
  return { status: response.status, retryAfterMs, message: said?.error };
}
