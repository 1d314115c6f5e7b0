/**
 * What is wrong with an action, at its place and in plain words. Pure.
 *
 * A place is the name of a field; a row's key, a space and a column's name, or nothing for the row itself; "" is the
 * form, the table or the button as a whole. Places are keys of a Map: their names come from outside.
 */

const LATE_MESSAGES = new Map([
  ["view_id", "This is closed. Nothing was sent."],
  ["shown", "A newer version is shown below. Nothing was sent."],
  ["form_id", "This was already sent."],
  ["button_id", "This was already sent."],
  ["table_id", "This was already saved. Wait until the table is shown again."],
]);
const ROW_GONE_MESSAGE = "This row was already deleted.";

/** The problems of a request that failed, as `OpenViews.validateAction` would tell them. */
export function responseProblems(error) {
  const kind = error.status === 409 ? "conflict" : "invalid";
  const told = error.fault?.details?.problems;
  if (Array.isArray(told) && told.length > 0) return told.map(({ path, message }) => ({ kind, path, message }));
  return [{ kind: "failed", path: [], message: `Not sent: ${error.message}` }];
}

/** A date that is not complete: the browser would say that there is none. */
export const incompleteDate = (name, ...path) => ({ kind: "invalid", path, message: `${name} is not complete` });

/** Problems by their places in a form. */
export const formErrors = (problems) => errorsByPlace(problems, ([first, name]) => (first === "values" && name) || "");

/** Problems by their places in a table; `keys` are those of the rows that were sent. */
export const tableErrors = (problems, keys) =>
  errorsByPlace(problems, ([first, at, name]) => {
    if (first !== "rows" || keys[at] === undefined) return "";
    return cellKey(keys[at], name === "row_id" ? "" : (name ?? ""));
  });

export const cellKey = (key, name) => `${key} ${name}`;

/** The first problem of each place. */
function errorsByPlace(problems, placeOf) {
  const places = new Map();
  for (const problem of problems) {
    const place = placeOf(problem.path);
    if (!places.has(place)) places.set(place, errorText(problem));
  }
  return places;
}

/** What a problem says, to a person. */
function errorText({ kind, message, path: [first, ...rest] }) {
  if (kind !== "conflict") return message;
  return rest.length > 0 ? ROW_GONE_MESSAGE : (LATE_MESSAGES.get(first) ?? `Too late: ${message}.`);
}

/** A message that begins with a field's name, with its label instead. */
export const withLabel = (message, { name, label }) =>
  message.startsWith(`${name} `) ? label + message.slice(name.length) : message;
