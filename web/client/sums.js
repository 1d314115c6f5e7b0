/** Numbers that are added up, rounded as Python rounds them: to six digits, halves to the even one. */

/** A sum of money or tokens. Only odd multiples of 1/128 lie exactly between two millionths. */
export function rounded(value) {
  if (Number.isInteger(value)) return value;
  const between = Number.isInteger(value * 128) && !Number.isInteger(value * 64);
  if (!between) return Number(value.toFixed(6));
  const below = Math.floor(value * 1e6);
  return (below % 2 === 0 ? below : below + 1) / 1e6;
}

/** The sum of two records of numbers, or the second if there is none yet. */
export function total(sum, more) {
  if (sum === null) return more;
  const numbers = Object.entries(more).filter(([, value]) => typeof value === "number");
  const added = numbers.map(([name, value]) => [name, rounded((sum[name] ?? 0) + value)]);
  return { ...sum, ...Object.fromEntries(added) };
}
