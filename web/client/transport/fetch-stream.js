/**
 * One event stream over `fetch`, which can send a token.
 *
 * `fetchStream(headers)` returns `open(url, hooks)`, and that returns a function that closes the stream. Hooks:
 *
 *     onOpen()         the server answered 200
 *     onAlive()        bytes arrived
 *     onItems(items)   messages `{event, data, id}` of one chunk; an id that came without data has an empty `event`
 *     onEnd(end)       the stream ended: {} if it broke, else the refusal's `status`, `retryAfterMs` and `message`
 *
 * A closed stream calls no hook.
 */

import { Decoder } from "./sse.js";

export const fetchStream = (headers) => (url, hooks) => {
  const control = new AbortController();
  const { signal } = control;
  const callHook = (name, ...values) => !signal.aborted && hooks[name](...values);

  const run = async () => {
    const response = await fetch(url, { headers, signal, cache: "no-store" });
    hooks.onAlive();
    if (response.status !== 200) return readRefusal(response);
    callHook("onOpen");
    await readMessages(response.body.getReader(), callHook);
    return {};
  };
  run()
    .catch(() => ({}))
    .then((end) => callHook("onEnd", end));
  return () => control.abort();
};

async function readMessages(reader, callHook) {
  const decoder = new Decoder();
  for (let piece = await reader.read(); !piece.done; piece = await reader.read()) {
    callHook("onAlive");
    const items = decoder.feed(piece.value).map(({ event, data, id }) => ({ event, data, id }));
    if (decoder.lastId !== (items.at(-1)?.id ?? "")) items.push({ event: "", data: "", id: decoder.lastId });
    if (items.length > 0) callHook("onItems", items);
  }
}

async function readRefusal(response) {
  const body = await response.json().catch(() => null);
  const retryAfterMs = 1000 * (Number(response.headers.get("retry-after")) || 0);
  return { status: response.status, retryAfterMs, message: body?.error };
}
