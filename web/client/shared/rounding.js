/**
 * Sums of tokens and costs with the server's results. Tokens saturate at 2**53 - 1, which every JSON reader holds
 * exactly, costs at the largest double. Costs are rounded as Python rounds: to six digits, halves to even.
 */

export const addCounts = (...counts) =>
  Math.min(
    counts.reduce((sum, count) => sum + count, 0),
    Number.MAX_SAFE_INTEGER,
  );

export const addCosts = (...costs) => Math.min(roundCost(costs.reduce((sum, cost) => sum + cost, 0)), Number.MAX_VALUE);

/** Round to six digits, halves to even. Only odd multiples of 1/128 lie exactly between two millionths. */
export function roundCost(value) {
  if (Number.isInteger(value) || value === Infinity) return value;
  const between = Number.isInteger(value * 128) && !Number.isInteger(value * 64);
  if (!between) return Number(value.toFixed(6));
  const below = Math.floor(value * 1e6);
  return (below % 2 === 0 ? below : below + 1) / 1e6;
}

/** Return the sum of two objects of numbers; without a first one the second. */
export function addRecords(sum, more, add) {
  if (sum === null) return more;
  const numbers = Object.entries(more).filter(([, value]) => typeof value === "number");
  const added = numbers.map(([name, value]) => [name, add(sum[name] ?? 0, value)]);
  return { ...sum, ...Object.fromEntries(added) };
}
