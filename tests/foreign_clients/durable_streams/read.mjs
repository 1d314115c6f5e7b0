// Follow a JSON stream: node read.mjs URL TOKEN sse|long-poll COUNT [OFFSET]. One line per item, and its offset.
// The client ends a stream whose connection broke: then it is followed again from the last offset.
import { stream } from "@durable-streams/client";
import { BACKOFF } from "./backoff.mjs";

const [url, token, live, count, start = "-1"] = process.argv.slice(2);
let left = Number(count);
let offset = start;

async function follow() {
  const end = new AbortController();
  const response = await stream({
    url,
    headers: { Authorization: `Bearer ${token}` },
    offset,
    live,
    signal: end.signal,
    backoffOptions: BACKOFF,
  });
  response.subscribeJson(async (batch) => {
    for (const item of batch.items) {
      console.log(JSON.stringify({ item, offset: batch.offset }));
      left -= 1;
    }
    offset = batch.offset;
    if (left <= 0) end.abort();
  });
  await response.closed;
}

while (left > 0) {
  await follow().catch(() => {});
}
