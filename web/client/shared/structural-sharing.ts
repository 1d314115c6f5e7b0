/** Structural sharing: what has the same fields as before is the same object as before, so `===` tells a change. */

/** Return `before` if it has the same fields. */
export function shareFields<T extends object>(before: T | undefined, after: T): T {
  if (before === undefined) return after;
  for (const name of Object.keys(after) as Array<keyof T>) if (before[name] !== after[name]) return after;
  return before;
}

/** Return `before` if both lists have the same items. */
export function shareItems<T>(before: readonly T[], after: readonly T[]): readonly T[] {
  if (before === after || before.length !== after.length) return after;
  for (let at = 0; at < after.length; at += 1) if (before[at] !== after[at]) return after;
  return before;
}

/** Return `after` with every object that has the same fields as the one in its place before replaced by that one. */
export const shareRows = <T extends object>(before: readonly T[], after: readonly T[]): readonly T[] =>
  shareItems(
    before,
    after.map((row, at) => shareFields(before[at], row)),
  );
