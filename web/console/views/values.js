/**
 * Converts between values of a view's fields and texts of inputs. Pure.
 *
 * No text is lost: a text that is no number goes to the server as typed, and the server refuses it; a time that the
 * browser's pickers cannot hold is edited as text. Blank text is null.
 */

import { isBlank } from "../../client/views/fields.js";

const NUMBER = /^[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?$/i;
const MOMENT = /^(\d{4}-\d\d-\d\d)(?:T(\d\d:\d\d(?::\d\d)?)(Z|[+-]\d\d:\d\d)?)?$/;

/** Return the text of a value for an input. */
export function inputText(field, value) {
  if (value == null) return "";
  if (field.type === "field.select" && !field.options.some((option) => option.value === value)) return "";
  return String(value).replace(/\r\n?/g, "\n"); // as an input would say it back
}

/** Return a value as read-only text: the label of an option, a time as `2026-01-08 12:30 -05:00`. */
export function displayText(field, value) {
  const text = inputText(field, value);
  if (field.type === "field.select") return field.options.find((option) => option.value === text)?.label ?? text;
  const moment = field.type === "field.datetime" ? parseMoment(text) : null;
  return moment
    ? [moment.day, moment.time.replace(/^(\d\d:\d\d):00$/, "$1"), moment.zone].filter(Boolean).join(" ")
    : text;
}

/** Return the value of an input's text. */
export function parseValue(field, text) {
  if (isBlank(text)) return null;
  return field.type === "field.number"
    ? parseNumber(text.trim())
    : field.type === "field.datetime"
      ? text.trim()
      : text;
}

function parseNumber(text) {
  const number = NUMBER.test(text) ? Number(text) : NaN;
  return Number.isFinite(number) ? number : text;
}

/** Return the day, the time and the offset of a text; null if it is no date. */
export function parseMoment(text) {
  if (text === "") return { day: "", time: "", zone: "" };
  const [, day, time = "", zone = ""] = MOMENT.exec(text) ?? [];
  return day && isDay(day) && isClock(time) ? { day, time, zone } : null;
}

export const joinMoment = ({ day, time, zone }) => (time ? `${day}T${time}${zone}` : day);

/** Whether a day exists: a picker clears one that does not. */
function isDay(day) {
  const date = new Date(`${day}T00:00:00Z`);
  return !Number.isNaN(date.getTime()) && date.toISOString().startsWith(day) && !day.startsWith("0000");
}

const isClock = (time) =>
  time === "" ||
  (time < "24" &&
    time
      .split(":")
      .slice(1)
      .every((part) => part < "60"));

const INPUT_KINDS = {
  "field.text": ({ multiline }, first) => (multiline || first.includes("\n") ? "area" : "text"),
  "field.number": () => "number",
  "field.select": () => "select",
  "field.datetime": ({ picks = "datetime" }, first) => {
    const moment = parseMoment(first);
    if (moment === null || (picks === "date" && moment.time)) return "text";
    return picks === "date" ? "date" : "moment";
  },
};

/** Return the kind of a field's input. It depends on the initial text, never on what is typed. */
export const inputKind = (field, first) => INPUT_KINDS[field.type](field, first);
