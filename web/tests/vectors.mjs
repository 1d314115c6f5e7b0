// The vectors that Python and JavaScript share, and their logs as a reader would get them.

import { readFileSync } from "node:fs";

export const vectors = (name) =>
  JSON.parse(readFileSync(new URL(`../../tests/vectors/${name}.json`, import.meta.url), "utf-8"));

/** The log of a vector: entries have the fields of an envelope, without what their place decides. */
export const logOf = (entries) =>
  entries.map((fields, seq) => ({
    id: `evt_${seq}`,
    seq,
    ts: new Date(1_767_875_696_000 + seq).toISOString(),
    session_id: "sess_1",
    origin: "system",
    ...fields,
  }));

/** A fold after some events. */
export function folded(fold, events) {
  for (const event of events) fold.apply(event);
  return fold;
}
