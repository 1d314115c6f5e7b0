/**
 * Times of the log as people read them: in the zone of this machine. Every screen uses these, so that no screen has
 * two clocks. What is no time, as a foreign log may hold, stays as it is.
 */

const pad = (number, digits = 2) => String(number).padStart(digits, "0");
const isTime = (date) => !Number.isNaN(date.getTime());
const formatDay = (date) => `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
const formatMinute = (date) => `${pad(date.getHours())}:${pad(date.getMinutes())}`;

/** HH:MM:SS.mmm. */
export function formatClock(ts) {
  const date = new Date(ts);
  if (!isTime(date)) return String(ts);
  return `${formatMinute(date)}:${pad(date.getSeconds())}.${pad(date.getMilliseconds(), 3)}`;
}

/** The time of day for today, else the day with it: as short as a list needs it. */
export function formatShortTime(ts, now = new Date()) {
  const date = new Date(ts);
  if (!isTime(date)) return String(ts);
  return formatDay(date) === formatDay(now) ? formatMinute(date) : `${formatDay(date)} ${formatMinute(date)}`;
}

/** The day and the time, to the second. */
export function formatDateTime(ts) {
  const date = new Date(ts);
  return isTime(date) ? `${formatDay(date)} ${formatMinute(date)}:${pad(date.getSeconds())}` : String(ts);
}

/** What a tooltip adds: the same time in UTC, and the zone of the time that is shown. */
export function utcTooltip(ts) {
  const date = new Date(ts);
  if (!isTime(date)) return "";
  const zone = new Intl.DateTimeFormat().resolvedOptions().timeZone;
  return `${date.toISOString().replace("T", " ").replace("Z", " UTC")}, shown in the time zone ${zone}`;
}
