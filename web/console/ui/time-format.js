/**
 * Formats times of the log in the time zone of this machine. A text that is no time, as a foreign log may hold, stays.
 * The console shows the same form everywhere; the participant's page shows that of the browser.
 */

const pad = (number, digits = 2) => String(number).padStart(digits, "0");
const isTime = (date) => !Number.isNaN(date.getTime());
const formatDay = (date) => `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())}`;
const formatMinute = (date) => `${pad(date.getHours())}:${pad(date.getMinutes())}`;

/** Return HH:MM:SS.mmm. */
export function formatClock(ts) {
  const date = new Date(ts);
  if (!isTime(date)) return String(ts);
  return `${formatMinute(date)}:${pad(date.getSeconds())}.${pad(date.getMilliseconds(), 3)}`;
}

/** Return the time of day; with the date if it is not today. A locale such as "en-GB" chooses the form. */
export function formatShortTime(ts, { locale = null, now = new Date() } = {}) {
  const date = new Date(ts);
  if (!isTime(date)) return String(ts);
  const isToday = formatDay(date) === formatDay(now);
  if (locale) {
    return date.toLocaleString(locale, { timeStyle: "short", ...(isToday ? {} : { dateStyle: "medium" }) });
  }
  return isToday ? formatMinute(date) : `${formatDay(date)} ${formatMinute(date)}`;
}

/** Return the date and the time, to the second. */
export function formatDateTime(ts) {
  const date = new Date(ts);
  return isTime(date) ? `${formatDay(date)} ${formatMinute(date)}:${pad(date.getSeconds())}` : String(ts);
}

/** Return the time in UTC, and the time zone of the shown time. */
export function utcTooltip(ts) {
  const date = new Date(ts);
  if (!isTime(date)) return "";
  const zone = new Intl.DateTimeFormat().resolvedOptions().timeZone;
  return `${date.toISOString().replace("T", " ").replace("Z", " UTC")}, shown in the time zone ${zone}`;
}
