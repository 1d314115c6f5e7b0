/**
 * Cursors (docs/protocol.md, section 7): `<seq>:<epoch>`, or `<seq>.<chunk>:<epoch>` inside an event.
 *
 * A position is a parsed cursor; without a chunk it is behind all chunks of its event. `Cursors` holds the positions
 * of some sessions in the order of the URL; its `text` is the `after` of a request.
 */

const CURSOR = /^(-1(?!\.)|[0-9]{1,18})(?:\.([0-9]{1,9}))?(?::([a-z0-9]{1,32}))?$/;
const END = "end";

/** A parsed cursor. The seq of "end" is Infinity. */
export interface Position {
  readonly epoch: string | null;
  readonly seq: bigint | number;
  readonly chunk: number;
}

/** A position that moved. */
export interface Move {
  readonly session: string;
  readonly before: Position;
  readonly at: Position;
}

/** The position of a subscriber that wants only new events, until the server's first id says where it began. */
const END_POSITION: Position = { epoch: null, seq: Infinity, chunk: Infinity };
const isEnd = ({ seq }: Position): boolean => seq === Infinity;

/** Return the position of a cursor; an empty text is the start. Null if the text is no cursor. */
export function parseCursor(text: string): Position | null {
  const match = CURSOR.exec(text || "-1");
  if (match === null) return null;
  const [, seq = "", chunk, epoch = null] = match;
  // BigInt: a number does not hold 18 digits exactly
  return { epoch, seq: BigInt(seq), chunk: chunk === undefined ? Infinity : Number(chunk) };
}

/** Return the position before the first event of a reset log. */
export const startPosition = ({ epoch }: { epoch: string | null }): Position => ({ epoch, seq: -1n, chunk: Infinity });

export function formatCursor({ epoch, seq, chunk }: Position): string {
  if (seq === Infinity) return END;
  return `${seq}${chunk === Infinity ? "" : `.${chunk}`}${epoch === null ? "" : `:${epoch}`}`;
}

/** Whether a position is after another one of the same epoch. */
export const isAhead = (place: Position, other: Position): boolean =>
  place.seq > other.seq || (place.seq === other.seq && place.chunk > other.chunk);

/** Whether a subscriber at a position has not seen another position; another epoch is unseen. */
export const isUnseen = (place: Position, reader: Position): boolean =>
  isEnd(reader) || (reader.epoch !== null && place.epoch !== reader.epoch) || isAhead(place, reader);

/** Whether a subscriber at a position has everything up to another one; false while its position is not known. */
export const covers = (reader: Position, place: Position): boolean =>
  !isEnd(reader) &&
  ((place.seq < 0 && place.epoch === null) || (reader.epoch === place.epoch && !isAhead(place, reader)));

const parseAfter = (text: string): Position | null => (text === END ? END_POSITION : parseCursor(text));

/** The positions of a subscription in its sessions. */
export class Cursors {
  #places: Map<string, Position>;

  /**
   * `after` has a cursor or "end" for each session, separated by commas. "end" alone is the end of every session, and
   * "", null and undefined are the start.
   */
  constructor(sessions: readonly string[], after?: string | null) {
    const text = String(after ?? "");
    const texts = text === "" || text === END ? sessions.map(() => text) : text.split(",");
    const places = texts.map(parseAfter);
    const isComplete = (found: Array<Position | null>): found is Position[] =>
      found.length === sessions.length && !found.includes(null);
    if (!isComplete(places)) {
      throw new TypeError(`expected ${sessions.length} cursors like 41:k3x9, got ${after}`);
    }
    this.#places = new Map(sessions.map((session, at) => [session, places[at] as Position]));
  }

  get sessions(): string[] {
    return [...this.#places.keys()];
  }

  /** A copy of the positions by session. */
  get places(): Map<string, Position> {
    return new Map(this.#places);
  }

  get text(): string {
    return [...this.#places.values()].map(formatCursor).join(",");
  }

  /** Return the position in a session; undefined for another session. */
  at(session: string): Position | undefined {
    return this.#places.get(session);
  }

  set(session: string, place: Position): void {
    this.#places.set(session, place);
  }

  /** Advance to the positions of an SSE id; return those that moved: [{session, before, at}]. */
  move(id: string): Move[] {
    const texts = id.split(",");
    if (texts.length !== this.#places.size) return [];
    const moved: Move[] = [];
    let number = 0;
    for (const [session, before] of this.#places) {
      const text = texts[number] as string;
      number += 1;
      // A message before the first id of a stream has an empty id, which is no position: read as the start, it would
      // make the next reconnect load the whole history again.
      const at = text === "" ? null : parseCursor(text);
      if (at === null || !isUnseen(at, before)) continue;
      this.#places.set(session, at);
      moved.push({ session, before, at });
    }
    return moved;
  }
}
