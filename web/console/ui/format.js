/** Formats numbers for people: tokens, money, durations, sizes. An unknown value is a dash, never a guess. */

export const UNKNOWN = "–";

export const formatCount = (number) => number.toLocaleString("en");

/** Format the cost of a meter: a dash if no completion has a price, with a note if some have none. */
export function formatCost({ cost_usd, unpriced, completions }) {
  if (unpriced >= completions) return UNKNOWN;
  return formatMoney(cost_usd) + (unpriced ? ", partly unknown" : "");
}

/** Format the cost of a meter among other words, where a dash says nothing. */
export const costLabel = (meter) => (meter.unpriced >= meter.completions ? "cost unknown" : formatCost(meter));

function formatMoney(usd) {
  if (usd > 0 && usd < 0.0001) return "< $0.0001";
  return `$${usd.toFixed(usd < 1 ? 4 : 2)}`;
}

export function formatDuration(ms) {
  if (ms === null) return UNKNOWN;
  if (ms < 1000) return `${ms} ms`;
  if (ms < 59_950) return `${(ms / 1000).toFixed(1)} s`;
  const seconds = Math.round(ms / 1000);
  if (seconds < 3600) return `${Math.floor(seconds / 60)} min ${seconds % 60} s`;
  const minutes = Math.floor(seconds / 60);
  if (minutes < 24 * 60) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return `${Math.floor(minutes / 1440)} d ${Math.floor((minutes % 1440) / 60)} h`;
}

const UNITS = ["bytes", "kB", "MB", "GB"];

export function formatBytes(bytes) {
  let [amount, unit] = [bytes, 0];
  for (; amount >= 1000 && unit < UNITS.length - 1; unit += 1) amount /= 1000;
  return `${unit === 0 ? amount : amount.toFixed(1)} ${UNITS[unit]}`;
}
