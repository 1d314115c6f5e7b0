/** Validates the value of a view's field (docs/protocol.md, sections 3.3 and 3.4), with the server's messages. */

import type { Json } from "../events.js";
import { codePointLength, isBlank } from "../shared/python-text.js";
import type { DatetimeField, NumberField, SelectField, TextField, ViewField } from "./view-nodes.js";

const MAX_LISTED_OPTIONS = 8; // in a message
const MAX_TEXT_CHARS = 10_000;
const CLOCK = "(?:[01]\\d|2[0-3]):[0-5]\\d";
const TIME = new RegExp(`^\\d{4}-\\d\\d-\\d\\d(T${CLOCK}(:[0-5]\\d(\\.\\d{1,6})?)?(Z|[+-]${CLOCK})?)?$`);
const NUMBER = /^(-?)(\d+)(?:\.(\d+))?(?:e([+-]\d+))?$/;
const EXAMPLES = { date: "2026-01-08", datetime: "2026-01-08 or 2026-01-08T12:30" };

/** Return why a value is not valid, as a sentence without its subject, or null. Blank text is no value. */
export function validateField(field: ViewField | { [key: string]: Json }, value: Json): string | null {
  if (value == null || (typeof value === "string" && isBlank(value))) return field.required ? "is required" : null;
  const known = field as ViewField; // of a valid tree
  if (known.type === "field.text") return checkText(known, value);
  if (known.type === "field.number") return checkNumber(known, value);
  return known.type === "field.datetime" ? checkDatetime(known, value) : checkSelect(known, value);
}

function checkText({ max_length = MAX_TEXT_CHARS }: TextField, value: Json): string | null {
  if (typeof value !== "string") return "must be a text";
  return codePointLength(value) <= max_length ? null : `must be at most ${max_length} characters long`;
}

function checkNumber({ above, min, max, step }: NumberField, value: Json): string | null {
  if (typeof value !== "number" || !Number.isFinite(value)) return "must be a number";
  if (above != null && value <= above) return `must be > ${above}`;
  if (min != null && value < min) return `must be >= ${min}`;
  if (max != null && value > max) return `must be <= ${max}`;
  return step == null ? null : checkStep(step, min ?? 0, value);
}

/** Check a step in decimal: 187.6 is a multiple of 0.1. */
function checkStep(step: number, start: number, value: number): string | null {
  const [at, from, by] = [parseDecimal(value), parseDecimal(start), parseDecimal(step)] as const;
  const least = Math.min(at.exponent, from.exponent, by.exponent);
  const scale = ({ digits, exponent }: Decimal) => digits * 10n ** BigInt(exponent - least);
  return (scale(at) - scale(from)) % scale(by) === 0n
    ? null
    : `must be in steps of ${step}${start ? ` from ${start}` : ""}`;
}

interface Decimal {
  digits: bigint;
  exponent: number;
}

function parseDecimal(value: number): Decimal {
  const [, sign, whole, part = "", exponent = "0"] = NUMBER.exec(String(value)) as RegExpExecArray;
  return { digits: BigInt(`${sign}${whole}${part}`), exponent: Number(exponent) - part.length };
}

function checkDatetime({ picks = "datetime", min, max }: DatetimeField, value: Json): string | null {
  if (!isTime(value) || (picks === "date" && value.includes("T"))) return `must be a date like ${EXAMPLES[picks]}`;
  const day = value.slice(0, 10); // the day in the person's own time zone
  if (min != null && day < min) return `must not be before ${min}`;
  return max != null && day > max ? `must not be after ${max}` : null;
}

/** Whether a text is a date or a time that exists. */
function isTime(value: Json): value is string {
  if (typeof value !== "string" || !TIME.test(value)) return false;
  const day = value.slice(0, 10);
  const date = new Date(`${day}T00:00:00Z`);
  return !Number.isNaN(date.getTime()) && date.toISOString().startsWith(day) && !day.startsWith("0000");
}

function checkSelect({ options }: SelectField, value: Json): string | null {
  const values: Json[] = options.map((option) => option.value);
  if (values.includes(value)) return null;
  return `must be one of ${values.slice(0, MAX_LISTED_OPTIONS).join(", ")}${values.length > MAX_LISTED_OPTIONS ? ", …" : ""}`;
}

export { isBlank } from "../shared/python-text.js";
