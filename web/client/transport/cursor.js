/**
 * Cursors (docs/protocol.md, section 7): `<seq>:<epoch>`, or `<seq>.<chunk>:<epoch>` inside an event.
 *
 * A position is a parsed cursor; without a chunk it is behind all chunks of its event. `Cursors` holds the positions
 * of some sessions in the order of the URL; its `text` is the `after` of a request.
 */

const CURSOR = /^(-1(?!\.)|[0-9]{1,18})(?:\.([0-9]{1,9}))?(?::([a-z0-9]{1,32}))?$/;
const END = "end";

/** The position of a subscriber that wants only new events, until the server's first id says where it began. */
const END_POSITION = { epoch: null, seq: Infinity, chunk: Infinity };
const isEnd = ({ seq }) => seq === Infinity;

/** Return the position of a cursor; an empty text is the start. Null if the text is no cursor. */
export function parseCursor(text) {
  const match = CURSOR.exec(text || "-1");
  if (match === null) return null;
  const [, seq, chunk, epoch = null] = match;
  // BigInt: a number does not hold 18 digits exactly
  return { epoch, seq: BigInt(seq), chunk: chunk === undefined ? Infinity : Number(chunk) };
}

/** Return the position before the first event of a reset log. */
export const startPosition = ({ epoch }) => ({ epoch, seq: -1n, chunk: Infinity });

export function formatCursor({ epoch, seq, chunk }) {
  if (seq === Infinity) return END;
  return `${seq}${chunk === Infinity ? "" : `.${chunk}`}${epoch === null ? "" : `:${epoch}`}`;
}

/** Whether a position is after another one of the same epoch. */
export const isAhead = (place, other) =>
  place.seq > other.seq || (place.seq === other.seq && place.chunk > other.chunk);

/** Whether a subscriber at a position has not seen another position; another epoch is unseen. */
export const isUnseen = (place, reader) =>
  isEnd(reader) || (reader.epoch !== null && place.epoch !== reader.epoch) || isAhead(place, reader);

/** Whether a subscriber at a position has everything up to another one; false while its position is not known. */
export const covers = (reader, place) =>
  !isEnd(reader) &&
  ((place.seq < 0 && place.epoch === null) || (reader.epoch === place.epoch && !isAhead(place, reader)));

const parseAfter = (text) => (text === END ? END_POSITION : parseCursor(text));

/** The positions of a subscription in its sessions. */
export class Cursors {
  #places;

  /**
   * `after` has a cursor or "end" for each session, separated by commas. "end" alone is the end of every session, and
   * "", null and undefined are the start.
   */
  constructor(sessions, after) {
    const text = String(after ?? "");
    const texts = text === "" || text === END ? sessions.map(() => text) : text.split(",");
    const places = texts.map(parseAfter);
    if (places.length !== sessions.length || places.includes(null)) {
      throw new TypeError(`expected ${sessions.length} cursors like 41:k3x9, got ${after}`);
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
