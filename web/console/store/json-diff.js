/**
 * The differences between two JSON values as a list of paths. Arrays are compared by index. The list is bounded,
 * because a person reads it.
 */

const MAX_CHANGES = 200;

/** Return at most `most` differences `{ path, kind, before?, after? }`; kind is added, removed or changed. */
export function diffJson(before, after, most = MAX_CHANGES) {
  const found = [];
  const todo = [["", before, after]];
  while (todo.length && found.length < most) {
    const [path, old, now] = todo.pop();
    if (Object.is(old, now)) continue;
    if (containerKind(old) && containerKind(old) === containerKind(now))
      todo.push(...childPairs(path, old, now).reverse());
    else found.push(describeChange(path || "all", old, now));
  }
  return found;
}

const containerKind = (value) =>
  Array.isArray(value) ? "array" : typeof value === "object" && value !== null && "object";

function childPairs(path, old, now) {
  const names = [...new Set([...Object.keys(old), ...Object.keys(now)])];
  return names.map((name) => [path + pathStep(name, Array.isArray(now), path), own(old, name), own(now, name)]);
}

const own = (value, name) => (Object.hasOwn(value, name) ? value[name] : undefined);

/** Return one step of a path: `.name`, `[3]`, or `["other name"]`. */
function pathStep(name, isArray, path) {
  if (isArray) return `[${name}]`;
  if (!/^[A-Za-z_$][\w$]*$/.test(name)) return `[${JSON.stringify(name)}]`;
  return path ? `.${name}` : name;
}

function describeChange(path, before, after) {
  if (before === undefined) return { path, kind: "added", after };
  if (after === undefined) return { path, kind: "removed", before };
  return { path, kind: "changed", before, after };
}
