/**
 * Labels and sentences for the entries of a chat. Pure.
 *
 * Tables have no prototype: their keys come from logs, and may be `constructor`.
 */

import { oneLine } from "./one-line.js";

const MAX_LINE_CHARS = 160;

/** Return a value in one line: a text as it is, anything else as JSON. */
export const shortText = (value) =>
  oneLine(typeof value === "string" ? value : (JSON.stringify(value) ?? ""), MAX_LINE_CHARS);

/** Turn an identifier into words: `weight_entry.deleteAll` becomes "Weight entry delete all". Any other text stays. */
export function humanizeName(name) {
  if (!/^[\p{L}\p{N}\s._-]+$/u.test(name)) return name;
  const words = name
    .replace(/([a-z\d])([A-Z])/g, "$1 $2")
    .replace(/[\s._-]+/g, " ")
    .trim()
    .toLowerCase();
  return words ? words[0].toUpperCase() + words.slice(1) : name;
}

export const isContainer = (value) => value !== null && typeof value === "object";
export const plural = (count, one) => `${count} ${one}${count === 1 ? "" : "s"}`;

/** How values are said in English; a page of another language has a table of its own. */
export const VALUE_TEXTS = {
  none: "none",
  yes: "yes",
  no: "no",
  number: String,
  items: (count) => plural(count, "item"),
  values: (count) => plural(count, "value"),
  more: (count) => `and ${count} more`,
};

/** Return a value in a few words: a flat list or object by its values, a nested one by its size. */
export function valueText(value, texts = VALUE_TEXTS) {
  if (value === null || value === undefined || value === "") return texts.none;
  if (typeof value === "boolean") return value ? texts.yes : texts.no;
  if (typeof value === "number") return texts.number(value);
  if (!isContainer(value)) return shortText(value);
  const inner = Object.values(value).filter((each) => each !== null);
  if (inner.length > 0 && !inner.some(isContainer))
    return shortText(inner.map((each) => valueText(each, texts)).join(", "));
  const count = Object.keys(value).length;
  return Array.isArray(value) ? texts.items(count) : texts.values(count);
}

const ID = /^[a-z]+_[\w-]{8,}$|^[\da-f-]{16,}$/i; // ids mean nothing to people
const isReadable = (value) =>
  typeof value === "string" && value !== "" && value.length <= MAX_LINE_CHARS && !ID.test(value);

/** Return the first readable argument of a call, or else its first one. */
export function callSummary(args) {
  const entries = Object.entries(args ?? {});
  const [, text] = entries.find(([, value]) => isReadable(value)) ?? [];
  if (text !== undefined) return shortText(text);
  const [name, value] = entries[0] ?? [];
  return name === undefined ? "" : `${humanizeName(name)}: ${valueText(value)}`;
}

/** By type: title and detail of an event's chip. */
const EVENT_PHRASES = {
  __proto__: null,
  "artifact.write": ({ path, filename }) => ["Wrote", path ?? filename],
  "process.end": ({ process, reason }) => [
    `The ${process} process ended`,
    reason && humanizeName(reason).toLowerCase(),
  ],
  "process.start": ({ process }) => [`The ${process} process started`],
  "roster.join": ({ name }) => [name, "joined"],
};

/** Return title and detail of an event without a look of its own. */
export function eventLabel({ type, payload }) {
  const [title, detail] = EVENT_PHRASES[type]?.(payload) ?? [];
  if (title) return { title, detail: detail ?? "" };
  const values = Object.values(payload ?? {}).filter(
    (value) => value !== null && !(isContainer(value) && isEmpty(value)),
  );
  return {
    title: humanizeName(type.slice(type.indexOf(".") + 1)),
    detail: shortText(values.map((value) => valueText(value)).join(", ")),
  };
}

const isEmpty = (value) => Object.keys(value).length === 0;

/** By stop reason: what happened to an agent that did not finish. */
const END_PHRASES = {
  __proto__: null,
  cancelled: "was stopped",
  error: "ended with an error",
  timeout: "ran out of time",
  max_steps: "reached its limit of steps",
  max_tokens: "reached the limit of its answer's length",
  context_window: "has no room left in its context",
  refusal: "refused to answer",
};

export function endLabel({ agent_name, stop_reason, by, isRestart }) {
  const did = isRestart ? "was cut off by a restart" : (END_PHRASES[stop_reason] ?? `ended: ${stop_reason}`);
  return `${agent_name ?? "The agent"} ${did}${by ? ` by ${by}` : ""}`;
}

/** By `aborted` of a text; a stop has a note of its own. */
export const ABORT_LABELS = {
  __proto__: null,
  error: "Cut off by an error",
  restart: "Cut off by a restart",
  stop: null,
  timeout: "Cut off by a timeout",
};

/** By kind of action: what the person did. `named` returns the quoted title of a part. */
const ACTION_PHRASES = {
  __proto__: null,
  "form.submit": ({ form_id }, named) => `sent ${named("form", form_id) ?? "the form"}`,
  "table.save": ({ table_id, rows, deleted = [] }, named) => {
    const gone = deleted.length > 0 ? `, ${plural(deleted.length, "row")} deleted` : "";
    return `saved ${named("table_editor", table_id) ?? "the table"}: ${plural(rows.length, "row")}${gone}`;
  },
  "table.add_row": ({ table_id }, named) => `added a row to ${named("table_editor", table_id) ?? "the table"}`,
  "table.delete_row": ({ table_id }, named) => `deleted a row of ${named("table_editor", table_id) ?? "the table"}`,
  "button.click": ({ button_id }, named) => `chose ${named("button", button_id) ?? humanizeName(button_id)}`,
  "a2ui.action": ({ name }) => `chose ${humanizeName(name)}`,
  "input.submit": () => "answered",
};

/** Return a sentence about an action. `tree` is the view's, if it is known. */
export function actionLabel(who, action, tree = null) {
  const named = (type, id) => {
    const part = findNode(tree, type, id);
    return part && (part.label ?? part.title) ? `“${part.label ?? part.title}”` : null;
  };
  return `${who ?? "A member"} ${ACTION_PHRASES[action.kind]?.(action, named) ?? `did ${action.kind}`}`;
}

/** Return the part of a tree by type and id, or null. A stored tree may hold anything. */
function findNode(node, type, id) {
  if (node?.type === type && node.id === id) return node;
  const { children } = node ?? {};
  if (!Array.isArray(children)) return null;
  return children.reduce((found, child) => found ?? findNode(child, type, id), null);
}

/** Return the values of a sent form by label: [[label, value]]. */
export function submittedValues(action, tree) {
  if (action.kind !== "form.submit" && action.kind !== "input.submit") return [];
  const { fields = [] } = findNode(tree, "form", action.form_id) ?? {};
  return Object.entries(action.values ?? {}).map(([name, value]) => {
    const { label = humanizeName(name), options = [] } = fields.find((field) => field.name === name) ?? {};
    return [label, options.find((option) => option.value === value)?.label ?? value];
  });
}

export const commandLabel = (who, { kind }) =>
  `${who ?? "A member"} asked: ${kind === "stop" ? "stop, but nothing ran" : kind.replace(/[._]/g, " ")}`;

/** Return the answer to a call of the page in words. */
export function answerLabel({ result, input, question }) {
  if (input !== null) return "Answered";
  if (!result.ok) return "Not answered";
  if (typeof result.result === "boolean") return result.result ? "Yes" : "No";
  const choices = question?.options ?? question?.choices;
  const chosen = Array.isArray(choices) ? choices.find((choice) => choice?.value === result.result) : null;
  return String(chosen?.label ?? valueText(result.result));
}

/** By state of a call: its label and its classes. */
export const CALL_STATES = {
  __proto__: null,
  writing: ["Writing", "work moves"],
  queued: ["Queued", ""],
  running: ["Running", "work moves"],
  waiting: ["Waiting for you", "wait"],
  done: ["Done", "good"],
  error: ["Error", "bad"],
  denied: ["Denied", "bad"],
  aborted: ["Cancelled", ""],
};

/** Return finished work in one line: what it was, and how much failed. */
export function workLabel(entries) {
  const count = (kind) => entries.filter((entry) => entry.kind === kind).length;
  const agents = entries.reduce((sum, { agents: inside = [] }) => sum + inside.length, 0);
  const failed = entries.filter(({ state }) => state === "error" || state === "denied").length;
  const parts = [
    count("call") > 0 && plural(count("call"), "call"),
    agents > 0 && plural(agents, "agent"),
    count("thinking") > 0 && plural(count("thinking"), "thought"),
    failed > 0 && `${failed} failed`,
  ];
  return parts.filter(Boolean).join(", ");
}

export const DECISION_LABELS = { __proto__: null, approve: "Approved", deny: "Denied", expired: "Not decided in time" };

/** By risk of an approval. An application may send its own words instead. */
const RISK_LABELS = {
  __proto__: null,
  read: "It reads data and changes nothing",
  write: "It changes data",
  db_write: "It changes the database",
  delete: "It deletes data",
  db_delete: "It deletes from the database",
  tool_use: "Unknown: the process does not tell",
};

export const riskLabel = (risk) => ({
  words: RISK_LABELS[risk] ?? (/\s/.test(risk) ? risk : humanizeName(risk)),
  isSafe: risk === "read",
});
