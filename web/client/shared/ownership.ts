/**
 * Folds that can be read while they change: an object that was handed out is never changed again.
 *
 * A reducer asks its `Ownership` for every object before it changes it. `Batch` copies an object the first time it is
 * asked for it and then returns that copy, so a batch of events copies each object at most once. `IN_PLACE` copies
 * nothing, for folds whose objects nobody compares.
 */

import { copyMap, LayeredMap } from "./layered-map.js";

/** `T` with fields that can be assigned; a read-only list or map becomes a list or map. */
export type Owned<T> =
  T extends ReadonlyMap<infer Key, infer Value>
    ? Map<Key, Value>
    : T extends ReadonlyArray<infer Item>
      ? Item[]
      : { -readonly [Name in keyof T]: T[Name] };

/** Copies an object: a function for one type is fast, because it gets objects of one shape. */
export type Copy<T> = (value: T) => T;

export interface Ownership {
  /** Return the object to change: a plain object, a list or a map. `copy` is faster than the general copy. */
  own<T extends object>(value: T, copy?: Copy<T>): Owned<T>;
  /** Declare that a reducer has made an object itself, so that it is not copied. Returns the object. */
  adopt<T extends object>(value: T): T;
}

export const IN_PLACE: Ownership = {
  own: <T extends object>(value: T) => value as unknown as Owned<T>,
  adopt: <T extends object>(value: T) => value,
};

const MAX_LISTED = 16; // a list is searched faster than a set, up to about here

export class Batch implements Ownership {
  #list: object[] = [];
  #set: Set<object> | null = null; // in place of the list

  own<T extends object>(value: T, copy: Copy<T> = copyShallow): Owned<T> {
    return (this.owns(value) ? value : this.adopt(copy(value))) as unknown as Owned<T>;
  }

  /** Whether this batch has copied or made an object. */
  owns(value: object): boolean {
    return this.#set === null ? this.#list.includes(value) : this.#set.has(value);
  }

  adopt<T extends object>(value: T): T {
    if (this.#set !== null) this.#set.add(value);
    else if (this.#list.push(value) > MAX_LISTED) this.#set = new Set(this.#list);
    return value;
  }
}

function copyShallow<T extends object>(value: T): T {
  if (Array.isArray(value)) return value.slice() as unknown as T;
  if (value instanceof Map) return copyMap(value) as unknown as T;
  if (value instanceof LayeredMap) return value.copy() as unknown as T;
  return { ...value };
}

/** Own the object in a field of an owned object, and return it. */
export function ownField<Parent extends object, Name extends keyof Parent>(
  owner: Ownership,
  parent: Parent,
  name: Name,
  copy?: Copy<Parent[Name] & object>,
): Owned<Parent[Name] & object> {
  const value = owner.own(parent[name] as Parent[Name] & object, copy);
  parent[name] = value as Parent[Name];
  return value;
}

/** Own the value of a key of an owned map, and return it; undefined if the map has none. */
export function ownEntry<Key, Value extends object>(
  owner: Ownership,
  map: Map<Key, Value>,
  key: Key,
  copy?: Copy<Value>,
): Owned<Value> | undefined {
  const before = map.get(key);
  if (before === undefined) return undefined;
  const value = owner.own(before, copy);
  if ((value as unknown) !== before) map.set(key, value as unknown as Value);
  return value;
}
