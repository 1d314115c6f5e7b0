/**
 * Cursors (docs/protocol.md, section 7): `<epoch>:<seq>`, or `<epoch>:<seq>.<chunk>` inside an event.
 *
 * A position is a parsed cursor; without a chunk it is behind all chunks of its event. `Cursors` holds the positions
 * of some sessions in the order of the URL; its `text` is the `after` of a request.
 */

const CURSOR = /^(?:([a-z0-9]{1,32}):)?(-1(?!\.)|[0-9]{1,18})(?:\.([0-9]{1,9}))?$/;

/** Return the position of a cursor; an empty text is the start. Null if the text is no cursor. */
export function parseCursor(text) {
  const match = CURSOR.exec(text || "-1");
  if (match === null) return null;
  const [, epoch = null, seq, chunk] = match;
  // BigInt: a number does not hold 18 digits exactly
  return { epoch, seq: BigInt(seq), chunk: chunk === undefined ? Infinity : Number(chunk) };
}

/** Return the position before the first event of a reset log. */
export const startPosition = ({ epoch }) => ({ epoch, seq: -1n, chunk: Infinity });

export const formatCursor = ({ epoch, seq, chunk }) =>
  `${epoch === null ? "" : `${epoch}:`}${seq}${chunk === Infinity ? "" : `.${chunk}`}`;

/** Whether a position is after another one of the same epoch. */
export const isAhead = (place, other) =>
  place.seq > other.seq || (place.seq === other.seq && place.chunk > other.chunk);

/** Whether a subscriber at a position has not seen another position; another epoch is unseen. */
export const isUnseen = (place, reader) =>
  (reader.epoch !== null && place.epoch !== reader.epoch) || isAhead(place, reader);

/** Whether a subscriber at a position has everything up to another one. */
export const covers = (reader, place) =>
  (place.seq < 0 && place.epoch === null) || (reader.epoch === place.epoch && !isAhead(place, reader));

/** The positions of a subscription in its sessions. */
export class Cursors {
  #places;

  /** `after` has a cursor for each session, separated by commas; "", null and undefined are the start. */
  constructor(sessions, after) {
    const text = String(after ?? "");
    const places = (text ? text.split(",") : sessions.map(() => "")).map(parseCursor);
    if (places.length !== sessions.length || places.includes(null)) {
      throw new TypeError(`expected ${sessions.length} cursors like k3x9:41, got ${after}`);
    }
    this.#places = new Map(sessions.map((session, at) => [session, places[at]]));
  }

  get sessions() {
    return [...this.#places.keys()];
  }

  /** A copy of the positions by session. */
  get places() {
    return new Map(this.#places);
  }

  get text() {
    return [...this.#places.values()].map(formatCursor).join(",");
  }

  /** Return the position in a session; undefined for another session. */
  at(session) {
    return this.#places.get(session);
  }

  set(session, place) {
    this.#places.set(session, place);
  }

  /** Advance to the positions of an SSE id; return those that moved: [{session, before, at}]. */
  move(id) {
    const texts = id.split(",");
    if (texts.length !== this.#places.size) return [];
    const moved = [];
    let number = 0;
    for (const [session, before] of this.#places) {
      const at = parseCursor(texts[number]);
      number += 1;
      if (at === null || !isUnseen(at, before)) continue;
      this.#places.set(session, at);
      moved.push({ session, before, at });
    }
    return moved;
  }
}
