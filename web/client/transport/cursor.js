/**
 * Where a reader is (docs/protocol.md, section 7): `<epoch>:<seq>`, or `<epoch>:<seq>.<chunk>` inside an event.
 *
 * A `Place` is such a cursor taken apart; the plain form is behind all chunks of its event. `Cursors` are the
 * places in some sessions, in the order of the URL: their `text` is what a stream is asked to begin after.
 */

const CURSOR = /^(?:([a-z0-9]{1,32}):)?(-1(?!\.)|[0-9]{1,18})(?:\.([0-9]{1,9}))?$/;

/** The place of a cursor; an empty text is the start. Null if it is none. */
export function parseCursor(text) {
  const match = CURSOR.exec(text || "-1");
  if (match === null) return null;
  const [, epoch = null, seq, chunk] = match;
  // BigInt: 18 digits are more than a number holds exactly
  return { epoch, seq: BigInt(seq), chunk: chunk === undefined ? Infinity : Number(chunk) };
}

/** Where a reader begins again after a reset. */
export const startPosition = ({ epoch }) => ({ epoch, seq: -1n, chunk: Infinity });

/** A place as it stands in a URL. */
export const formatCursor = ({ epoch, seq, chunk }) =>
  `${epoch === null ? "" : `${epoch}:`}${seq}${chunk === Infinity ? "" : `.${chunk}`}`;

/** Whether a place comes after another one of the same epoch. */
export const isAhead = (place, other) =>
  place.seq > other.seq || (place.seq === other.seq && place.chunk > other.chunk);

/** Whether what stands at a place is news for who is at another one; another epoch is. */
export const isUnseen = (place, reader) =>
  (reader.epoch !== null && place.epoch !== reader.epoch) || isAhead(place, reader);

/** Whether who is at a place has everything up to another one. */
export const covers = (reader, place) =>
  (place.seq < 0 && place.epoch === null) || (reader.epoch === place.epoch && !isAhead(place, reader));

/** The places of a reader in its sessions. */
export class Cursors {
  #places;

  /** `after` is a cursor for each session with commas between them; or empty, or nothing that was kept. */
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

  /** By session, as they are now. */
  get places() {
    return new Map(this.#places);
  }

  get text() {
    return [...this.#places.values()].map(formatCursor).join(",");
  }

  /** The place in a session; undefined if it is none of these. */
  at(session) {
    return this.#places.get(session);
  }

  set(session, place) {
    this.#places.set(session, place);
  }

  /** Go on to the places of an SSE id; what moved: [{session, before, at}]. */
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
