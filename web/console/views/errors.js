/**
 * Errors of an action by their places, as messages for people. Pure.
 *
 * A place is the name of a field; or a row's key, a space and a column's name (empty for the row itself); or "" for
 * the form, table or button as a whole. Places are keys of a Map: the names come from outside.
 */

import { VIEW_TEXTS } from "./texts.js";

/** Return the problems of a refused request, in the form of `OpenViews.validateAction`. */
export function responseProblems(error, texts = VIEW_TEXTS) {
  const kind = error.status === 409 ? "conflict" : "invalid";
  const reported = error.fault?.details?.problems;
  if (Array.isArray(reported) && reported.length > 0)
    return reported.map(({ path, message }) => ({ kind, path, message }));
  return [{ kind: "failed", path: [], message: texts.notSent(error.message) }];
}

/** Return the problem of an incomplete date, which the browser reports as empty. */
export const incompleteDate = (texts, name, ...path) => ({
  kind: "invalid",
  path,
  message: `${name} ${texts.incomplete}`,
});

/** Map the problems of a form to its fields. */
export const formErrors = (problems, texts) =>
  errorsByPlace(problems, ([first, name]) => (first === "values" && name) || "", texts);

/** Map the problems of a table to its cells; `keys` are those of the sent rows. */
export const tableErrors = (problems, keys, texts) =>
  errorsByPlace(
    problems,
    ([first, at, name]) => {
      if (first !== "rows" || keys[at] === undefined) return "";
      return cellKey(keys[at], name === "row_id" ? "" : (name ?? ""));
    },
    texts,
  );

export const cellKey = (key, name) => `${key} ${name}`;

/** Return the first message of each place. */
function errorsByPlace(problems, placeOf, texts = VIEW_TEXTS) {
  const places = new Map();
  for (const problem of problems) {
    const place = placeOf(problem.path);
    if (!places.has(place)) places.set(place, errorText(problem, texts));
  }
  return places;
}

function errorText({ kind, message, path: [first, ...rest] }, texts) {
  if (kind !== "conflict") return message;
  if (rest.length > 0) return texts.rowGone;
  return Object.hasOwn(texts.late, first) ? texts.late[first] : texts.tooLate(message);
}

/** Replace a field's name at the start of a message with its label. */
export const withLabel = (message, { name, label }) =>
  message.startsWith(`${name} `) ? label + message.slice(name.length) : message;
