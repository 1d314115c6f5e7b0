/** Return whether two values are the same: the same object or primitive, or lists with the same items. */
export function isSameValue(before: unknown, after: unknown): boolean {
  if (!Array.isArray(before) || !Array.isArray(after)) return Object.is(before, after);
  return before.length === after.length && before.every((item, at) => Object.is(item, after[at]));
}
