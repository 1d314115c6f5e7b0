/**
 * A map whose copy costs as much as its last changes: for a map that grows with the session while a few entries change.
 *
 * The entries that changed lately are in a small map above a large one, which no copy changes. When the small map is
 * full, the next copy merges both. The order is that of a `Map`: an entry stays where it was set first.
 */

const MAX_RECENT = 8;

export class LayeredMap<Key, Value> implements ReadonlyMap<Key, Value> {
  #base: ReadonlyMap<Key, Value>;
  #recent: Map<Key, Value>;
  #size: number;

  constructor(base: ReadonlyMap<Key, Value> = new Map(), recent: Map<Key, Value> = new Map(), size = base.size) {
    this.#base = base;
    this.#recent = recent;
    this.#size = size;
  }

  /** Return a map with the same entries; a change of one is none of the other. */
  copy(): LayeredMap<Key, Value> {
    if (this.#recent.size < MAX_RECENT) return new LayeredMap(this.#base, copyMap(this.#recent), this.#size);
    return new LayeredMap(copyMap(this));
  }

  set(key: Key, value: Value): this {
    if (!this.has(key)) this.#size += 1;
    this.#recent.set(key, value);
    return this;
  }

  get(key: Key): Value | undefined {
    return this.#recent.get(key) ?? this.#base.get(key);
  }

  has(key: Key): boolean {
    return this.#recent.has(key) || this.#base.has(key);
  }

  get size(): number {
    return this.#size;
  }

  *entries(): MapIterator<[Key, Value]> {
    for (const [key, value] of this.#base) yield [key, this.#recent.get(key) ?? value];
    for (const entry of this.#recent) if (!this.#base.has(entry[0])) yield entry;
  }

  *keys(): MapIterator<Key> {
    for (const [key] of this.entries()) yield key;
  }

  *values(): MapIterator<Value> {
    for (const [, value] of this.entries()) yield value;
  }

  forEach(visit: (value: Value, key: Key, map: ReadonlyMap<Key, Value>) => void): void {
    for (const [key, value] of this) visit(value, key, this);
  }

  [Symbol.iterator](): MapIterator<[Key, Value]> {
    return this.entries();
  }
}

/** Return a copy of a map. `new Map(map)` takes the entries from an iterator: for small maps a loop is twice as fast. */
export function copyMap<Key, Value>(map: ReadonlyMap<Key, Value>): Map<Key, Value> {
  const copy = new Map<Key, Value>();
  for (const [key, value] of map) copy.set(key, value);
  return copy;
}
