/**
 * Errors of an action by their places, as messages for people. Pure.
 *
 * A place is the name of a field; or a row's key, a space and a column's name (empty for the row itself); or "" for
 * the form, table or button as a whole. Places are keys of a Map: the names come from outside.
 */

const LATE_MESSAGES = new Map([
  ["view_id", "This is closed. Nothing was sent."],
  ["shown", "A newer version is shown below. Nothing was sent."],
  ["form_id", "This was already sent."],
  ["button_id", "This was already sent."],
  ["table_id", "This was already saved. Wait until the table is shown again."],
]);
const ROW_GONE_MESSAGE = "This row was already deleted.";

/** Return the problems of a refused request, in the form of `OpenViews.validateAction`. */
export function responseProblems(error) {
  const kind = error.status === 409 ? "conflict" : "invalid";
  const reported = error.fault?.details?.problems;
  if (Array.isArray(reported) && reported.length > 0)
    return reported.map(({ path, message }) => ({ kind, path, message }));
  return [{ kind: "failed", path: [], message: `Not sent: ${error.message}` }];
}

/** Return the problem of an incomplete date, which the browser reports as empty. */
export const incompleteDate = (name, ...path) => ({ kind: "invalid", path, message: `${name} is not complete` });

/** Map the problems of a form to its fields. */
export const formErrors = (problems) => errorsByPlace(problems, ([first, name]) => (first === "values" && name) || "");

/** Map the problems of a table to its cells; `keys` are those of the sent rows. */
export const tableErrors = (problems, keys) =>
  errorsByPlace(problems, ([first, at, name]) => {
    if (first !== "rows" || keys[at] === undefined) return "";
    return cellKey(keys[at], name === "row_id" ? "" : (name ?? ""));
  });

export const cellKey = (key, name) => `${key} ${name}`;

/** Return the first message of each place. */
function errorsByPlace(problems, placeOf) {
  const places = new Map();
  for (const problem of problems) {
    const place = placeOf(problem.path);
    if (!places.has(place)) places.set(place, errorText(problem));
  }
  return places;
}

function errorText({ kind, message, path: [first, ...rest] }) {
  if (kind !== "conflict") return message;
  return rest.length > 0 ? ROW_GONE_MESSAGE : (LATE_MESSAGES.get(first) ?? `Too late: ${message}.`);
}

/** Replace a field's name at the start of a message with its label. */
export const withLabel = (message, { name, label }) =>
  message.startsWith(`${name} `) ? label + message.slice(name.length) : message;
