/**
 * Sums of tokens and costs with the server's results. Tokens saturate at 2**53 - 1, which every JSON reader holds
 * exactly, costs at the largest double. Costs are rounded as Python rounds: to six digits, halves to even.
 */

export const addCounts = (...counts: number[]): number => Math.min(addAll(counts), Number.MAX_SAFE_INTEGER);

export const addCosts = (...costs: number[]): number => Math.min(roundCost(addAll(costs)), Number.MAX_VALUE);

function addAll(numbers: readonly number[]): number {
  let sum = 0;
  for (const number of numbers) sum += number;
  return sum;
}

/** Round to six digits, halves to even. Only odd multiples of 1/128 lie exactly between two millionths. */
export function roundCost(value: number): number {
  if (Number.isInteger(value) || value === Infinity) return value;
  const between = Number.isInteger(value * 128) && !Number.isInteger(value * 64);
  if (!between) return Number(value.toFixed(6));
  const below = Math.floor(value * 1e6);
  return (below % 2 === 0 ? below : below + 1) / 1e6;
}

/** Return the sum of two objects of numbers; without a first one the second. */
export function addRecords<Sums extends object>(
  sum: Sums | null,
  more: Sums,
  add: (...numbers: number[]) => number,
): Sums {
  if (sum === null) return more;
  const added = { ...sum } as { [name: string]: unknown };
  for (const [name, value] of Object.entries(more)) {
    if (typeof value === "number") added[name] = add((added[name] as number | undefined) ?? 0, value);
  }
  return added as Sums;
}
