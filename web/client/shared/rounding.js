/**
 * Sums of tokens and costs, as `turnlog.events.agent` makes them. They saturate: tokens at 2**53 - 1, what every
 * JSON reader holds exactly, costs at the largest double. Costs are rounded as Python rounds them: to six
 * digits, halves to the even one.
 */

/** The sum of counts. */
export const addCounts = (...counts) =>
  Math.min(
    counts.reduce((sum, count) => sum + count, 0),
    Number.MAX_SAFE_INTEGER,
  );

/** The sum of costs. */
export const addCosts = (...costs) => Math.min(roundCost(costs.reduce((sum, cost) => sum + cost, 0)), Number.MAX_VALUE);

/** A sum of money. Only odd multiples of 1/128 lie exactly between two millionths. */
export function roundCost(value) {
  if (Number.isInteger(value) || value === Infinity) return value;
  const between = Number.isInteger(value * 128) && !Number.isInteger(value * 64);
  if (!between) return Number(value.toFixed(6));
  const below = Math.floor(value * 1e6);
  return (below % 2 === 0 ? below : below + 1) / 1e6;
}

/** The sum of two records of numbers, or the second if there is none yet. */
export function addRecords(sum, more, add) {
  if (sum === null) return more;
  const numbers = Object.entries(more).filter(([, value]) => typeof value === "number");
  const added = numbers.map(([name, value]) => [name, add(sum[name] ?? 0, value)]);
  return { ...sum, ...Object.fromEntries(added) };
}
