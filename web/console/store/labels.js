/**
 * What entries of a chat say, in plain words. Pure.
 *
 * Tables here have no prototype: what is looked up in them comes from logs, and may be called `constructor`.
 */

const LINE_CHARS = 160;

/** A value in one line. */
export function oneLine(value) {
  const text = typeof value === "string" ? value : (JSON.stringify(value) ?? "");
  const line = text
    .slice(0, 2 * LINE_CHARS)
    .replace(/\s+/g, " ")
    .trim();
  return line.length > LINE_CHARS || text.length > 2 * LINE_CHARS ? `${line.slice(0, LINE_CHARS)}…` : line;
}

/** A name of a program, like `weight_entry.deleteAll`, as words: "Weight entry delete all". Any other text stays. */
export function titleOf(name) {
  if (!/^[\p{L}\p{N}\s._-]+$/u.test(name)) return name;
  const words = name
    .replace(/([a-z\d])([A-Z])/g, "$1 $2")
    .replace(/[\s._-]+/g, " ")
    .trim()
    .toLowerCase();
  return words ? words[0].toUpperCase() + words.slice(1) : name;
}

const isBox = (value) => value !== null && typeof value === "object";
const counted = (count, one) => `${count} ${one}${count === 1 ? "" : "s"}`;

/** A value in a few words: a list or an object by its values, or how many they are if these hold others. */
export function wordsOf(value) {
  if (value === null || value === undefined || value === "") return "none";
  if (typeof value === "boolean") return value ? "yes" : "no";
  if (!isBox(value)) return oneLine(String(value));
  const inner = Object.values(value).filter((each) => each !== null);
  if (inner.length > 0 && !inner.some(isBox)) return oneLine(inner.map(wordsOf).join(", "));
  return counted(Object.keys(value).length, Array.isArray(value) ? "item" : "value");
}

const ID = /^[a-z]+_[\w-]{8,}$|^[\da-f-]{16,}$/i; // of a program, not for people
const isReadable = (value) =>
  typeof value === "string" && value !== "" && value.length <= LINE_CHARS && !ID.test(value);

/** What a call is about: its first argument that a person can read, or else its first one. */
export function gistOf(args) {
  const given = Object.entries(args ?? {});
  const [, text] = given.find(([, value]) => isReadable(value)) ?? [];
  if (text !== undefined) return oneLine(text);
  const [name, value] = given[0] ?? [];
  return name === undefined ? "" : `${titleOf(name)}: ${wordsOf(value)}`;
}

/** Events of every application that are told by a sentence. */
const SENTENCES = {
  __proto__: null,
  "artifact.write": ({ path, filename }) => ["Wrote", path ?? filename],
  "process.end": ({ process, reason }) => [`The ${process} process ended`, reason && titleOf(reason).toLowerCase()],
  "process.start": ({ process }) => [`The ${process} process started`],
  "roster.join": ({ name }) => [name, "joined"],
};

/** An event that has no look of its own: its name in words, and what it says. */
export function eventOf({ type, payload }) {
  const [title, said] = SENTENCES[type]?.(payload) ?? [];
  if (title) return { title, said: said ?? "" };
  const values = Object.values(payload ?? {}).filter((value) => value !== null && !(isBox(value) && isEmpty(value)));
  return { title: titleOf(type.slice(type.indexOf(".") + 1)), said: oneLine(values.map(wordsOf).join(", ")) };
}

const isEmpty = (value) => Object.keys(value).length === 0;

/** How an agent ended that did not come to its end. */
const ENDS = {
  __proto__: null,
  cancelled: "was stopped",
  error: "ended with an error",
  timeout: "ran out of time",
  max_steps: "reached its limit of steps",
  max_tokens: "reached the limit of its answer's length",
  context_window: "has no room left in its context",
  refusal: "refused to answer",
};

export function endOf({ agent_name, payload: { stop_reason }, by, isRestart }) {
  const did = isRestart ? "was cut off by a restart" : (ENDS[stop_reason] ?? `ended: ${stop_reason}`);
  return `${agent_name ?? "The agent"} ${did}${by ? ` by ${by}` : ""}`;
}

/** Why a text ends in the middle. A stop has a note of its own. */
export const CUTS = {
  __proto__: null,
  error: "Cut off by an error",
  restart: "Cut off by a restart",
  stop: null,
  timeout: "Cut off: the time was up",
};

/** What a person did on a view, in the words of the view. */
const ACTIONS = {
  __proto__: null,
  "form.submit": ({ form_id }, named) => `sent ${named("form", form_id) ?? "the form"}`,
  "table.save": ({ table_id, rows, deleted = [] }, named) => {
    const gone = deleted.length > 0 ? `, ${counted(deleted.length, "row")} deleted` : "";
    return `saved ${named("table_editor", table_id) ?? "the table"}: ${counted(rows.length, "row")}${gone}`;
  },
  "table.add_row": ({ table_id }, named) => `added a row to ${named("table_editor", table_id) ?? "the table"}`,
  "table.delete_row": ({ table_id }, named) => `deleted a row of ${named("table_editor", table_id) ?? "the table"}`,
  "button.click": ({ button_id }, named) => `chose ${named("button", button_id) ?? titleOf(button_id)}`,
  "input.submit": () => "answered",
};

/** `tree` is that of the view, if it is known. */
export function actionOf(who, action, tree = null) {
  const named = (type, id) => {
    const part = nodeOf(tree, type, id);
    return part && (part.label ?? part.title) ? `“${part.label ?? part.title}”` : null;
  };
  return `${who ?? "A member"} ${ACTIONS[action.kind]?.(action, named) ?? `did ${action.kind}`}`;
}

/** The part of a tree that an action names, or null. A stored tree may hold anything. */
function nodeOf(node, type, id) {
  if (node?.type === type && node.id === id) return node;
  const { children } = node ?? {};
  if (!Array.isArray(children)) return null;
  return children.reduce((found, child) => found ?? nodeOf(child, type, id), null);
}

/** What a form was sent with, by the labels of its fields: [[label, value]]. */
export function valuesOf(action, tree) {
  if (action.kind !== "form.submit" && action.kind !== "input.submit") return [];
  const { fields = [] } = nodeOf(tree, "form", action.form_id) ?? {};
  return Object.entries(action.values ?? {}).map(([name, value]) => {
    const { label = titleOf(name), options = [] } = fields.find((field) => field.name === name) ?? {};
    return [label, options.find((option) => option.value === value)?.label ?? value];
  });
}

/** What a person told the server to do. */
export const commandOf = (who, { kind }) =>
  `${who ?? "A member"} asked: ${kind === "stop" ? "stop, but nothing ran" : kind.replace(/[._]/g, " ")}`;

/** What a person answered to a call of the page. */
export function answerOf({ result, input, question }) {
  if (input !== null) return "Answered";
  if (!result.ok) return "Not answered";
  if (typeof result.result === "boolean") return result.result ? "Yes" : "No";
  const choices = question?.options ?? question?.choices;
  const chosen = Array.isArray(choices) ? choices.find((choice) => choice?.value === result.result) : null;
  return String(chosen?.label ?? wordsOf(result.result));
}

/** The state of a call, and how it looks. */
export const STATES = {
  __proto__: null,
  writing: ["Writing", "busy moves"],
  queued: ["Queued", ""],
  running: ["Running", "busy moves"],
  waiting: ["Waiting for you", "busy"],
  done: ["Done", "good"],
  error: ["Error", "bad"],
  denied: ["Denied", "bad"],
  aborted: ["Cancelled", ""],
};

export const DECISIONS = { __proto__: null, approve: "Approved", deny: "Denied", expired: "Not decided in time" };

/** The risk of a call in words, and whether it only reads. An application's own words are words already. */
const RISKS = {
  __proto__: null,
  read: "It reads, and changes nothing",
  write: "It changes data",
  db_write: "It changes the database",
  delete: "It deletes data",
  db_delete: "It deletes from the database",
  tool_use: "Not known: the process does not say",
};

export const riskOf = (risk) => ({
  words: RISKS[risk] ?? (/\s/.test(risk) ? risk : titleOf(risk)),
  isSafe: risk === "read",
});
