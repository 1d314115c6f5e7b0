/**
 * JSON that JavaScript and Python read alike, and messages of the dialect `blocks`.
 *
 * Where the two languages differ (numbers beyond 2**53 - 1, lone surrogates, more than 128 levels) `readValue` returns
 * undefined and the caller keeps the text. Nothing here throws. The Python client has the same module.
 */

import type { Json } from "../events.js";
import type { FrontendCall, JsonObject, Scalar } from "./block-json.js";

/** A message of the dialect. */
export interface BlockMessage {
  type: string;
  agent: string;
  final: boolean;
  delta: string;
  /** Of a citation: which one a chunk continues. */
  index: number | null;
  id: string | null;
  /** The other fields that are scalars. */
  extra: { [key: string]: Scalar };
}

const MAX_DEPTH = 128; // input validation stops at 32, histories add levels; far below any stack

const COMMON_FIELDS = new Set(["type", "agent", "final", "delta", "index"]);

const OBJECT_START = /^[ \t\r\n]*\{/;
const LONE_SURROGATE = /\p{Surrogate}/u; // with the flag u, a pair is one character and not a surrogate
const LONE_SURROGATES = /\p{Surrogate}/gu;

/** Return the fields of a message: {} for a line that is no object, null for a broken object. */
export function readFields(text: string): JsonObject | null {
  return OBJECT_START.test(text) ? ((readJson(text) as JsonObject | undefined) ?? null) : {};
}

/** Return a message; null if a common field is missing or has another type. */
export function readMessage(type: string, fields: JsonObject): BlockMessage | null {
  const { agent, final, delta, index } = fields;
  if (typeof agent !== "string" || typeof delta !== "string" || typeof final !== "boolean") return null;
  const extra: { [key: string]: Scalar } = Object.fromEntries(
    Object.entries(fields).flatMap(([key, value]) => {
      if (COMMON_FIELDS.has(key) || !isScalar(value)) return [];
      return [[replaceSurrogates(key), typeof value === "string" ? replaceSurrogates(value) : value]];
    }),
  );
  const place = isCount(index) ? index : null;
  return { type, agent: replaceSurrogates(agent), final, delta, index: place, id: textField(extra, "id"), extra };
}

/** Return a field that is a non-empty text, else null. */
export function textField(fields: unknown, key: string): string | null {
  const value = isObject(fields) ? fields[key] : null;
  return typeof value === "string" && value !== "" ? value : null;
}

const isSafe = (value: number): boolean => Math.abs(value) <= Number.MAX_SAFE_INTEGER;
export const isCount = (value: unknown): value is number => Number.isSafeInteger(value) && (value as number) >= 0;
export const isObject = (value: unknown): value is JsonObject =>
  typeof value === "object" && value !== null && !Array.isArray(value);

const isScalar = (value: unknown): value is Scalar =>
  typeof value === "number" ? isSafe(value) : typeof value === "string" || typeof value === "boolean";

/** Replace lone surrogates, which UTF-8 cannot encode. */
export const replaceSurrogates = (text: string): string =>
  LONE_SURROGATE.test(text) ? text.replace(LONE_SURROGATES, "\ufffd") : text;

/** Return the value of a JSON text; undefined if it is no JSON, or not portable. */
export function readValue(text: string): Json | undefined {
  const value = readJson(text);
  return value !== undefined && isPortable(value) ? value : undefined;
}

function readJson(text: string): Json | undefined {
  try {
    const value: Json = JSON.parse(text);
    return isShallow(value, MAX_DEPTH) ? value : undefined;
  } catch {
    return undefined;
  }
}

function isShallow(value: Json, levels: number): boolean {
  if (typeof value !== "object" || value === null) return true;
  return levels > 0 && Object.values(value).every((item) => isShallow(item, levels - 1));
}

/** Whether Python and JavaScript read this value alike. */
function isPortable(value: Json): boolean {
  if (typeof value === "number") return isSafe(value);
  if (typeof value === "string") return !LONE_SURROGATE.test(value);
  if (typeof value !== "object" || value === null) return true;
  if (Array.isArray(value)) return value.every(isPortable);
  return Object.entries(value).every(([key, item]) => !LONE_SURROGATE.test(key) && isPortable(item));
}

export function readFiles(text: string): Json[] | undefined {
  const value = readValue(text);
  return isObject(value) && Array.isArray(value.files) ? value.files : undefined;
}

export function readCalls(text: string): FrontendCall[] | undefined {
  const value = readValue(text);
  return Array.isArray(value) && value.every(isCall) ? value : undefined;
}

const isCall = (value: Json): value is FrontendCall => isObject(value) && typeof value.tool_use_id === "string";
