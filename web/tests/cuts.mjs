// Reads a session over fetch, through a proxy that cuts every connection after a random number of bytes, and
// prints what came: node cuts.mjs '{"url", "cuts", "piece", "seed", "last", "wish"}'
//   {"cuts", "told": [[cursor, data], ...], "resets"}
// until the seq `last`, or until a note says that. `piece` is the most that comes between two cuts, `wish` what
// `connect` is told.

import { connect as dial, createServer } from "node:net";

import { connect } from "../client/dist/transport/connect.js";
import { numbers } from "./random.mjs";

const { url, cuts, piece, seed, last, wish } = JSON.parse(process.argv[2]);
const upstream = new URL(url);

const random = numbers(seed);
let made = 0;

/** Hand bytes on until it is time to cut; most cuts fall into the events, some into the head. */
const proxy = createServer((page) => {
  const server = dial(Number(upstream.port), upstream.hostname);
  let left = made < cuts ? Math.floor(random() ** 2 * piece) : Infinity;
  const cut = () => {
    page.destroy();
    server.destroy();
  };
  server.on("data", (bytes) => {
    page.write(bytes.subarray(0, left));
    left -= bytes.length;
    if (left > 0) return;
    made += 1;
    cut();
  });
  page.pipe(server);
  for (const socket of [page, server]) socket.on("error", cut).on("close", cut);
});
await new Promise((resolve) => proxy.listen(0, "127.0.0.1", resolve));

const told = [];
const resets = [];
const feed = connect({
  ...wish,
  url: `http://127.0.0.1:${proxy.address().port}/`,
  timing: { retryMs: 1, maxRetryMs: 4 },
  onReset: (reset) => resets.push(reset),
  onEvent(event, { cursor }) {
    told.push([cursor, typeof event === "string" ? event : JSON.stringify(event)]);
    if (cursor.split(":")[0] === last || event.payload?.text === last) finish();
  },
});

function finish() {
  feed.close();
  proxy.close();
  process.stdout.write(JSON.stringify({ cuts: made, told, resets }));
}
